// Starts the page, and asks for the numbers once a second while somebody can see them.

import { getJson } from "./api.js";
import { startChat } from "./chat.js";
import { showGraph, startGraph } from "./graph.js";
import { askKey } from "./key.js";
import { showStats } from "./overview.js";
import { showSessions, startSessions } from "./sessions.js";
import { onTab, openTab, startTabs } from "./tabs.js";
import { startTheme } from "./theme.js";
import { byId, setText } from "./view.js";

const EVERY_MS = 1000;
const STATES = {
  ready: "",
  draining: "The server is shutting down.",
  failed: "The engine has failed; the log says why.",
};
let timer = 0;
let polling = false;
let wantsKey = false;

async function poll() {
  if (polling || document.hidden) return;
  polling = true;
  wantsKey = false;
  clearTimeout(timer);
  try {
    const stats = await getJson("stats");
    setText(byId("model-name"), stats.model);
    say(STATES[stats.state] ?? `The server is ${stats.state}.`);
    showStats(stats);
    if (openTab() === "sessions") await showSessions();
  } catch (error) {
    say(error.message);
    wantsKey = error.status === 401;
  } finally {
    polling = false;
    // Without a key there is nothing to see; the button asks for one again.
    if (!document.hidden && !wantsKey) timer = setTimeout(poll, EVERY_MS);
  }
}

function say(text) {
  setText(byId("server-state"), text);
}

startTheme();
startSessions();
startGraph();
startChat();
onTab((name) => {
  if (name === "graph") showGraph();
  if (name === "sessions") poll();
});
startTabs();
byId("key-open").addEventListener("click", askKey);
addEventListener("key-given", poll);
document.addEventListener("visibilitychange", poll);
poll();

// The requests in the engine, and the button that empties the prefix cache.

import { call, getJson } from "./api.js";
import { byId, duration, make, number, setText } from "./view.js";

const FORGOTTEN = "All cached prompts were forgotten.";
const FORGOTTEN_IN_PART = "Forgotten, but for those that running requests use.";

export async function showSessions() {
  const { data } = await getJson("sessions");
  const counts = {};
  for (const each of data) counts[each.state] = (counts[each.state] ?? 0) + 1;
  const parts = Object.entries(counts).map(([state, count]) => `${count} ${state}`);
  setText(byId("sessions-summary"), parts.join(", ") || "No request is in the engine.");
  byId("sessions-rows").replaceChildren(...data.map(row));
}

function row(each) {
  const pages = Object.entries(each.pages).map(([pool, count]) => `${pool} ${count}`);
  const made = make("tr");
  made.append(
    make("td", { class: "code" }, each.request_id),
    make("td", {}, each.state),
    make("td", { class: "number" }, each.priority),
    make("td", { class: "number" }, duration(each.age_s)),
    make("td", { class: "number" }, number(each.prompt_tokens)),
    make("td", { class: "number" }, number(each.cached_tokens)),
    make("td", { class: "number" }, number(each.generated_tokens)),
    make("td", {}, pages.join(", ")),
  );
  return made;
}

export function startSessions() {
  byId("reset-cache").addEventListener("click", async () => {
    const result = byId("reset-result");
    try {
      const { whole } = await (await call("reset_prefix_cache", { method: "POST" })).json();
      setText(result, whole ? FORGOTTEN : FORGOTTEN_IN_PART);
    } catch (error) {
      setText(result, error.message);
    }
  });
}

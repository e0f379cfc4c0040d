// A conversation with the model: streams an answer, can be stopped, says in words what went wrong.

import { call, getJson } from "./api.js";
import { Answer, said } from "./answer.js";
import { events } from "./events.js";
import { onTab } from "./tabs.js";
import { byId, number, setText } from "./view.js";

const NUMBERS = [
  "temperature",
  "top_p",
  "top_k",
  "min_p",
  "repetition_penalty",
  "seed",
  "max_tokens",
];
// Requests that say nothing get OpenAI's temperature of 1, at which small models ramble. A talk
// begins with these, as `radiance chat` does, unless the model or a setting says something.
const TALKING = { temperature: 0.7, top_p: 0.95 };
let messages = [];
let running = null;

function options() {
  const fields = byId("chat-options").elements;
  const asked = { stream: true, stream_options: { include_usage: true } };
  for (const name of NUMBERS) {
    if (fields[name].value !== "") asked[name] = Number(fields[name].value);
  }
  if (fields.stop.value !== "") asked.stop = fields.stop.value;
  if (!byId("chat-thinking").hidden) asked.enable_thinking = fields.enable_thinking.checked;
  const system = fields.system.value.trim();
  const before = system ? [{ role: "system", content: system }] : [];
  return { ...asked, messages: [...before, ...messages] };
}

async function send() {
  const text = byId("chat-text").value.trim();
  if (running || !text || !byId("chat-options").reportValidity()) return;
  byId("chat-text").value = "";
  const conversation = messages;
  conversation.push({ role: "user", content: text });
  byId("chat-log").append(said("user", text));
  running = new AbortController();
  const answer = new Answer(byId("chat-log"));
  busy(true);
  try {
    const response = await call("v1/chat/completions", {
      method: "POST",
      body: options(),
      signal: running.signal,
    });
    for await (const data of events(response)) answer.take(data);
    answer.end();
  } catch (error) {
    answer.fail(error, running.signal.aborted);
  }
  running = null;
  busy(false);
  if (conversation !== messages) return; // a new one was begun meanwhile
  if (answer.message !== null) {
    conversation.push(answer.message);
  } else if (!answer.done) {
    conversation.pop();
    byId("chat-text").value ||= text;
  }
  setText(byId("chat-status"), summary(answer));
}

function summary({ outcome, usage, seconds, toFirst }) {
  if (usage === null) return outcome;
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  return (
    `${outcome} ${number(usage.prompt_tokens)} prompt tokens (${number(cached)} cached), ` +
    `${number(usage.completion_tokens)} generated in ${seconds.toFixed(1)} s, ` +
    `the first after ${number(toFirst * 1000)} ms, ` +
    `${number(usage.completion_tokens / seconds)} tokens/s.`
  );
}

function busy(now) {
  byId("chat-log").setAttribute("aria-busy", String(now));
  byId("chat-send").disabled = now;
  byId("chat-stop").disabled = !now;
  if (now) setText(byId("chat-status"), "Answering …");
}

function stop() {
  running?.abort();
}

// What the server does when nothing is asked, and whether the model can be told not to think.
async function askDefaults() {
  try {
    const { chat_template_variables: read } = await getJson("get_tokenizer_info");
    byId("chat-thinking").hidden = !read.includes("enable_thinking");
    const { default_sampling: defaults, default_sampling_from: from } =
      await getJson("server_info");
    const fields = byId("chat-options").elements;
    for (const [name, value] of Object.entries(TALKING)) {
      if (from[name] === "built-in") fields[name].value ||= value;
    }
    for (const name of NUMBERS) {
      if (Number.isFinite(defaults[name])) fields[name].placeholder = defaults[name];
    }
  } catch {
    // The header says when the server does not answer; the fields are there without it.
  }
}

export function startChat() {
  byId("chat-form").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  byId("chat-options").addEventListener("submit", (event) => event.preventDefault());
  byId("chat-text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  byId("panel-chat").addEventListener("keydown", (event) => {
    if (event.key === "Escape") stop();
  });
  byId("chat-stop").addEventListener("click", () => {
    stop();
    byId("chat-text").focus();
  });
  byId("chat-clear").addEventListener("click", () => {
    stop();
    messages = [];
    byId("chat-log").replaceChildren();
    setText(byId("chat-status"), "");
    byId("chat-text").focus();
  });
  onTab((name) => {
    if (name === "chat") askDefaults();
  });
}

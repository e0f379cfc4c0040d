// One answer as it comes: thoughts, text and calls, each as text.

import { make, makeAround } from "./view.js";

const WHO = { user: "You", assistant: "Model" };
const ENDINGS = {
  stop: "Done.",
  length: "The limit of tokens was reached.",
  tool_calls: "The model asks for a tool.",
};

const CUT_OFF = "The answer was cut off: the connection ended before it was whole.";
const LOST = "The connection to the server was lost.";

export function said(role, text) {
  const article = makeAround("article", { class: role }, make("h2", {}, WHO[role]));
  if (text !== undefined) article.append(make("p", { class: "text" }, text));
  return article;
}

export class Answer {
  constructor(log) {
    this.log = log;
    this.article = said("assistant");
    this.content = "";
    this.reasoning = "";
    this.calls = [];
    this.places = {};
    this.usage = null;
    this.reason = null;
    this.done = false;
    this.outcome = "";
    this.began = performance.now();
    this.firstAt = null;
    this.lastAt = this.began;
    log.append(this.article);
    this.follow();
  }

  get seconds() {
    return Math.max(this.lastAt - this.began, 1) / 1000;
  }

  get toFirst() {
    return ((this.firstAt ?? this.lastAt) - this.began) / 1000;
  }

  // What the next request says that the model said; null for nothing.
  get message() {
    if (!this.content && !this.calls.length) return null;
    const message = { role: "assistant", content: this.content };
    if (this.reasoning) message.reasoning_content = this.reasoning;
    if (this.calls.length) message.tool_calls = this.calls;
    return message;
  }

  take(data) {
    if (data === "[DONE]") {
      this.done = true;
      return;
    }
    const event = JSON.parse(data);
    if (event.error) throw new Error(event.error.message);
    this.lastAt = performance.now();
    if (event.usage) this.usage = event.usage;
    const ignored = event.radiance?.ignored ?? [];
    if (ignored.length) this.tell("note", `Ignored: ${ignored.join(", ")}`);
    const [choice] = event.choices;
    if (choice) this.gain(choice);
  }

  gain({ delta, finish_reason: reason }) {
    const thought = delta.reasoning_content ?? delta.reasoning;
    if (thought) this.reasoning += this.write("reasoning", thought);
    if (delta.content) this.content += this.write("text", delta.content);
    delta.tool_calls?.forEach((call) => this.gainCall(call));
    if (reason) this.reason = reason;
  }

  gainCall({ index, id, function: { name, arguments: text } }) {
    if (!this.calls[index]) {
      this.calls[index] = { id, type: "function", function: { name, arguments: "" } };
      this.write(`call ${index}`, `${name}(`);
    }
    this.calls[index].function.arguments += this.write(`call ${index}`, text ?? "");
  }

  // Add text where it belongs and return it.
  write(kind, text) {
    this.firstAt ??= performance.now();
    const atEnd = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 40;
    this.places[kind] ??= this.place(kind).appendChild(new Text());
    this.places[kind].appendData(text);
    if (atEnd) this.follow();
    return text;
  }

  place(kind) {
    if (kind === "reasoning") {
      const text = make("p", { class: "text" });
      this.article.append(
        makeAround("details", { open: "" }, make("summary", {}, "Thoughts"), text),
      );
      return text;
    }
    const text = make("p", { class: kind === "text" ? "text" : "text code" });
    this.article.append(text);
    return text;
  }

  tell(kind, text) {
    this.article.append(
      make("p", kind === "error" ? { class: kind, role: "alert" } : { class: kind }, text),
    );
    this.follow();
  }

  follow() {
    this.log.scrollTop = this.log.scrollHeight;
  }

  end() {
    this.calls.forEach((_, index) => this.write(`call ${index}`, ")"));
    if (!this.done) this.fail(new Error(CUT_OFF), false);
    else this.outcome = ENDINGS[this.reason] ?? `Ended: ${this.reason}.`;
  }

  fail(error, stopped) {
    if (stopped) {
      this.outcome = "Stopped.";
      this.tell("note", "Stopped.");
    } else {
      this.outcome = "There was an error.";
      this.tell("error", error instanceof TypeError ? LOST : error.message);
    }
  }
}

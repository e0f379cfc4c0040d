// The API key: asked for when the server wants one, kept in this tab only.

import { byId, setText } from "./view.js";

const PLACE = "radiance-key";
let key = sessionStorage.getItem(PLACE);
let asking = null;

export function headers() {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

// Ask once, however many requests were refused; resolves to whether there is a key to try.
export function askKey() {
  asking ??= ask().finally(() => (asking = null));
  return asking;
}

async function ask() {
  const dialog = byId("key-dialog");
  const text = byId("key-text");
  setText(byId("key-reason"), key ? "That key was not accepted." : "");
  dialog.returnValue = "";
  text.value = "";
  dialog.showModal();
  text.focus();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  byId("key-open").hidden = dialog.returnValue === "given";
  if (dialog.returnValue !== "given") return false;
  key = text.value.trim();
  text.value = "";
  if (byId("key-keep").checked) {
    sessionStorage.setItem(PLACE, key);
  } else {
    sessionStorage.removeItem(PLACE);
  }
  dispatchEvent(new Event("key-given"));
  return true;
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  byId("key-dialog").close("given");
});

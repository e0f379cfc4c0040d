// Asks the server; what goes wrong is an error with a sentence in it.

import { askKey, headers } from "./key.js";

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function call(path, { method = "GET", body, signal } = {}) {
  for (;;) {
    const response = await send(path, method, body, signal);
    if (response.ok) return response;
    const refused = new Refused(response.status, await reason(response));
    if (response.status !== 401 || !(await askKey())) throw refused;
  }
}

export async function getJson(path, options) {
  return (await call(path, options)).json();
}

async function send(path, method, body, signal) {
  const given = body === undefined ? {} : { "Content-Type": "application/json" };
  try {
    return await fetch(new URL(path, document.baseURI), {
      method,
      headers: { ...headers(), ...given },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server does not answer. Is it still running?");
  }
}

async function reason(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The server answered with status ${response.status}.`;
  }
}

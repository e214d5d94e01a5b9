// What the page asks of the server: OpenAI's API, at the address that the page came from.

import { remember, remembered } from "./store.js";

const TOKEN = "alara.token";
let token = remembered(TOKEN);
// The key in the page's address, with which NPCs may ask the person here.
const KEY = "alara.key";
let key = remembered(KEY);
if (location.hash.length > 1) {
  key = location.hash.slice(1);
  remember(KEY, key);
  history.replaceState(null, "", location.pathname);
}

/** What the server said instead of an answer, with its `status` and `retryAfter`, if there are. */
class ServerError extends Error {
  constructor(message, more) {
    super(message);
    Object.assign(this, more);
  }
}

/** Sends this token from now on, until the tab is closed. */
export function setToken(given) {
  token = given;
  remember(TOKEN, given);
}

/** The names of the models and NPCs; `lead` is the one to begin with, if there is one. */
export async function models() {
  const { data } = await (await ask("v1/models")).json();
  const lead = data.find((model) => model.alara?.lead)?.id;
  return { names: data.map((model) => model.id), lead };
}

/** Answers the question of an NPC that has this id: "yes", "session" or "no". */
export async function reply(id, answer) {
  await ask("v1/alara/answers", { method: "POST", body: JSON.stringify({ id, answer }) });
}

/** The chunks of a streamed answer. */
export async function* chat(body, signal) {
  const more = { stream_options: { include_usage: true }, timings_per_token: true };
  const alara = { events: true, ask: Boolean(token || key), key };
  const asked = { ...body, stream: true, ...more, alara };
  const request = { method: "POST", body: JSON.stringify(asked), signal };
  const response = await ask("v1/chat/completions", request);
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(chunk.error.message ?? data);
    yield chunk;
  }
  throw new ServerError("the connection ended before the answer did");
}

async function ask(path, request) {
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(path, { ...request, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("the server can't be reached");
  }
  if (response.ok) return response;
  const text = await response.text();
  let message = text.trim().slice(0, 2000);
  try {
    message = JSON.parse(text).error.message;
  } catch {
    // Not OpenAI's shape, as from a proxy: what it said will do.
  }
  const { status, headers: told } = response;
  throw new ServerError(message || `status ${status}`, { status, retryAfter: told.get("Retry-After") });
}

/** The data of server-sent events; of each it is one line. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data:")) yield line.slice(5).trim();
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

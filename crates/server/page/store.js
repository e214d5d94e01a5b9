// What is kept in this browser. Each chat has a key of its own: two tabs don't undo each other.
//
// A chat: {id, title, updated, messages}. A message: {role: "user", content, files?: [{name, text}]},
// or as answer.js has it.

const PREFIX = "alara.chat.";
const SETTINGS = "alara.settings";
const FORMAT = "alara-chats";
/** Browsers keep about five million characters for a page. */
const CHARACTERS = 4_000_000;
const CHATS = 200;

export class Store {
  #chats = new Map();
  #tell;

  /** `tell` is called with a text when a chat can't be kept. */
  constructor(tell) {
    this.#tell = tell;
    for (const [key, text] of attempt(() => Object.entries(localStorage)) ?? []) {
      const chat = key.startsWith(PREFIX) && attempt(() => JSON.parse(text));
      if (isChat(chat) && PREFIX + chat.id === key) this.#chats.set(chat.id, chat);
    }
  }

  /** All chats, the latest first. */
  list() {
    return [...this.#chats.values()].sort((one, other) => other.updated - one.updated);
  }

  get(id) {
    return this.#chats.get(id);
  }

  /** Keeps a chat; the oldest others go where there is no room for it. */
  save(chat) {
    const text = JSON.stringify(chat);
    this.#chats.set(chat.id, chat);
    const others = this.list().filter((other) => other !== chat);
    while (text.length <= CHARACTERS) {
      try {
        const kept = Object.entries(localStorage).filter(([key]) => key !== PREFIX + chat.id);
        const size = kept.reduce((sum, [, other]) => sum + other.length, text.length);
        if (size <= CHARACTERS && others.length < CHATS) {
          localStorage.setItem(PREFIX + chat.id, text);
          return;
        }
      } catch (error) {
        if (error.name !== "QuotaExceededError") break;
      }
      const oldest = others.pop();
      if (!oldest) break;
      this.remove(oldest.id);
      this.#tell(`The oldest chat, “${oldest.title}”, was removed to make room.`);
    }
    this.#tell("The browser can't keep this chat: it is gone when the page is closed.");
  }

  remove(id) {
    this.#chats.delete(id);
    attempt(() => localStorage.removeItem(PREFIX + id));
  }

  /** All chats as the text of a file. */
  exported() {
    return JSON.stringify({ format: FORMAT, version: 1, chats: this.list() }, null, 1);
  }

  /** Takes the chats of such a file; how many were new. Throws where it is none. */
  imported(text) {
    const file = attempt(() => JSON.parse(text));
    if (file?.format !== FORMAT || file.version !== 1 || !Array.isArray(file.chats)) {
      throw new Error("this is no file of exported chats");
    }
    const wrong = file.chats.findIndex((chat) => !isChat(chat));
    if (wrong >= 0) throw new Error(`chat ${wrong + 1} of the file is damaged; nothing was imported`);
    const fresh = file.chats.filter((chat) => !(this.get(chat.id)?.updated >= chat.updated));
    fresh.sort((one, other) => one.updated - other.updated);
    fresh.forEach((chat) => this.save(chat));
    return fresh.length;
  }
}

/** The settings that were kept: texts, as in the fields of the dialog. */
export function settings() {
  const kept = attempt(() => JSON.parse(localStorage.getItem(SETTINGS)));
  return { model: "", system: "", temperature: "", max_tokens: "", ...kept };
}

export function keepSettings(settings) {
  attempt(() => localStorage.setItem(SETTINGS, JSON.stringify(settings)));
}

/** Keeps a text until the tab is closed. */
export function remember(key, text) {
  attempt(() => sessionStorage.setItem(key, text));
}

export function remembered(key) {
  return attempt(() => sessionStorage.getItem(key));
}

/** The value, or nothing where storage is forbidden, or a text is no JSON. */
function attempt(action) {
  try {
    return action();
  } catch {
    return undefined;
  }
}

/** Whether this is a chat: what is stored or imported may be anything. */
function isChat(value) {
  return has(value, "id title", "updated") && value.messages?.every?.(isMessage);
}

function isMessage(value) {
  if (value?.role === "user") {
    const { files = [] } = value;
    return has(value, "content") && files?.every?.((file) => has(file, "name text"));
  }
  const all = { error: "", seconds: 0, rate: 0, usage: { prompt: 0, generated: 0, cached: 0 }, ...value };
  return (
    has(all, "model error", "seconds rate") &&
    has(all.usage, "", "prompt generated cached") &&
    all.role === "assistant" &&
    all.parts?.every?.(isPart)
  );
}

function isPart(value) {
  if (value?.kind === "call") return has(value, "name") && has(value.result ?? {}, "");
  return ["text", "reasoning"].includes(value?.kind) && has(value, "text");
}

/** Whether it has these texts and numbers. */
function has(value, texts, numbers = "") {
  const names = (list) => list.split(" ").filter(Boolean);
  return (
    typeof value === "object" &&
    names(texts).every((name) => typeof value?.[name] === "string") &&
    names(numbers).every((name) => Number.isFinite(value?.[name]))
  );
}

// Chats, kept in this browser: each under a key of its own, so that two tabs don't undo each other.
//
// A chat: {id, title, updated, messages}. A message of the user: {role: "user", content};
// of the model: {role: "assistant", model, parts, …}, as answer.js fills it.

const PREFIX = "alara.chat.";
const SETTINGS = "alara.settings";
const FORMAT = "alara-chats";
/** Browsers keep about five million characters for a page. */
const CHATS = 200;
const CHARACTERS = 4_000_000;

export class Store {
  #chats = new Map();
  #sizes = new Map();
  #tell;

  /** `tell` is called with a text when a chat can't be kept. */
  constructor(tell) {
    this.#tell = tell;
    for (const key of attempt(() => Object.keys(localStorage)) ?? []) {
      if (key.startsWith(PREFIX)) this.reread(key);
    }
  }

  /** All chats, the latest first. */
  list() {
    return [...this.#chats.values()].sort((one, other) => other.updated - one.updated);
  }

  get(id) {
    return this.#chats.get(id);
  }

  /** Takes over what another tab wrote; whether that was a chat. */
  reread(key) {
    if (!key?.startsWith(PREFIX)) return false;
    const text = attempt(() => localStorage.getItem(key));
    const chat = checked(attempt(() => JSON.parse(text)));
    const id = key.slice(PREFIX.length);
    if (chat?.id === id) {
      this.#chats.set(id, chat);
      this.#sizes.set(id, text.length);
    } else this.#forget(id);
    return true;
  }

  /** Keeps a chat; the oldest others go where there is no room for it. */
  save(chat) {
    this.#chats.set(chat.id, chat);
    const text = JSON.stringify(chat);
    this.#sizes.set(chat.id, text.length);
    for (;;) {
      const total = [...this.#sizes.values()].reduce((sum, size) => sum + size, 0);
      if (this.#chats.size <= CHATS && total <= CHARACTERS) {
        if (attempt(() => localStorage.setItem(PREFIX + chat.id, text) ?? true)) return true;
      }
      const oldest = this.list().findLast((other) => other.id !== chat.id);
      if (!oldest) {
        this.#tell("The browser has no room for this chat: it is gone when the page is closed.");
        return false;
      }
      this.remove(oldest.id);
      this.#tell(`The oldest chat, “${oldest.title}”, was removed to make room.`);
    }
  }

  remove(id) {
    this.#forget(id);
    attempt(() => localStorage.removeItem(PREFIX + id));
  }

  #forget(id) {
    this.#chats.delete(id);
    this.#sizes.delete(id);
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
    const chats = file.chats.map(checked);
    const wrong = chats.indexOf(null);
    if (wrong >= 0) throw new Error(`chat ${wrong + 1} of the file is damaged; nothing was imported`);
    const fresh = chats.filter((chat) => !(this.get(chat.id)?.updated >= chat.updated));
    fresh.sort((one, other) => one.updated - other.updated);
    fresh.forEach((chat) => this.save(chat));
    return fresh.length;
  }
}

/** The settings that were kept. */
export function settings() {
  const kept = attempt(() => JSON.parse(localStorage.getItem(SETTINGS)));
  const text = (value) => (typeof value === "string" ? value : "");
  const number = (value) => (typeof value === "number" ? value : null);
  return {
    model: text(kept?.model),
    system: text(kept?.system),
    temperature: number(kept?.temperature),
    maxTokens: number(kept?.maxTokens),
  };
}

export function keepSettings(value) {
  attempt(() => localStorage.setItem(SETTINGS, JSON.stringify(value)));
}

/** Keeps the theme that was chosen; none: the system's. theme.js reads it. */
export function keepTheme(theme) {
  const key = "alara.theme";
  attempt(() => (theme ? localStorage.setItem(key, theme) : localStorage.removeItem(key)));
}

/** The value, or nothing where storage is forbidden or full, or a text is no JSON. */
function attempt(action) {
  try {
    return action();
  } catch {
    return undefined;
  }
}

/** The chat, if it is one: what is stored or imported may be anything. */
function checked(chat) {
  const good =
    isObject(chat) &&
    texts(chat, "id", "title") &&
    Number.isFinite(chat.updated) &&
    Array.isArray(chat.messages) &&
    chat.messages.every(isMessage);
  return good ? chat : null;
}

function isMessage(value) {
  if (!isObject(value)) return false;
  if (value.role === "user") return texts(value, "content");
  const { role, parts, usage = { prompt: 0, generated: 0, cached: 0 }, seconds = 0, rate = 0 } = value;
  const numbers = [usage?.prompt, usage?.generated, usage?.cached, seconds, rate];
  return (
    role === "assistant" &&
    texts(value, "model") &&
    texts({ error: "", ...value }, "error") &&
    numbers.every(Number.isFinite) &&
    Array.isArray(parts) &&
    parts.every(isPart)
  );
}

function isPart(value) {
  if (!isObject(value)) return false;
  if (value.kind === "call") return texts(value, "name") && isObject(value.result ?? {});
  return ["text", "reasoning"].includes(value.kind) && texts(value, "text");
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function texts(value, ...names) {
  return names.every((name) => typeof value[name] === "string");
}

// Text files that go along with a message, bounded as those of `alara run "… @FILE"`.

import { byId, element, iconButton, printable } from "./dom.js";

/** Most bytes of all files of one message. */
const MOST = 128 * 1024;

export class Attachments {
  #files = [];
  #notice;

  /** `notice` is called with a text when a file can't go along. */
  constructor(notice) {
    this.#notice = notice;
    const field = byId("attach-files");
    byId("attach").onclick = () => field.click();
    field.onchange = async () => {
      const chosen = [...field.files];
      field.value = "";
      await this.#add(chosen);
    };
  }

  /** The files of the message that is being written: [{name, text}]. */
  get files() {
    return this.#files;
  }

  set files(files) {
    this.#files = files;
    const rows = files.map((file) => {
      const remove = iconButton(`Remove ${printable(file.name)}`, "close", () => {
        this.files = this.#files.filter((other) => other !== file);
      });
      return element("li", {}, label(file), remove);
    });
    byId("attached").replaceChildren(...rows);
  }

  async #add(chosen) {
    const refused = [];
    for (const file of chosen) {
      const name = file.name.replace(/\s/g, " ");
      const text = file.size > MOST ? null : await read(file);
      // One of the same name takes the place of the earlier one.
      const others = this.#files.filter((other) => other.name !== name);
      if (others.reduce((sum, other) => sum + size(other.text), file.size) > MOST) {
        refused.push(`${name} has ${bytes(file.size)}, and the files of a message at most ${bytes(MOST)}.`);
      } else if (text === null) refused.push(`${name} is no text (UTF-8).`);
      else this.files = [...others, { name, text }];
    }
    if (refused.length) this.#notice(refused.join(" "));
  }
}

/** What is shown of a file beside a message: its name and size. */
export function label({ name, text }) {
  return `${printable(name)} (${bytes(size(text))})`;
}

/** The text of a file; null if it is none. */
async function read(file) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

function size(text) {
  return new Blob([text]).size;
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const unit = Math.min(Math.floor(Math.log2(Math.max(count, 1)) / 10), units.length - 1);
  return unit ? `${(count / 1024 ** unit).toFixed(1)} ${units[unit]}` : `${count} B`;
}

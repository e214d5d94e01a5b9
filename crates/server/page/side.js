// The list of chats: open, rename, delete, export and import.

import { count } from "./answer.js";
import { button, byId, element, iconButton, printable } from "./dom.js";

export class Side {
  #store;
  #on;

  /** `on` = {current, open, removed, notice}. */
  constructor(store, on) {
    this.#store = store;
    this.#on = on;
    byId("menu").onclick = () => this.toggle(true);
    byId("shade").onclick = () => this.toggle(false);
    byId("export").onclick = () => this.#export();
    byId("import").onclick = () => byId("file").click();
    byId("file").onchange = () => this.#import();
  }

  /** Shows or hides the list where the window is narrow; whether that changed anything. */
  toggle(open) {
    if (document.body.classList.contains("side-open") === open) return false;
    document.body.classList.toggle("side-open");
    byId("menu").ariaExpanded = `${open}`;
    (open ? byId("new") : byId("menu")).focus();
    return true;
  }

  update() {
    const rows = this.#store.list().map((chat) => this.#row(chat));
    byId("chats").replaceChildren(...rows);
    byId("export").disabled = !rows.length;
  }

  #row(chat) {
    const title = printable(chat.title);
    const current = chat.id === this.#on.current();
    const open = button(title, () => this.#on.open(chat), "open");
    open.title = title;
    open.ariaCurrent = `${current}`;
    const rename = iconButton(`Rename “${title}”`, "edit", () => this.#rename(chat));
    const remove = iconButton(`Delete “${title}”`, "trash", () => this.#remove(chat));
    return element("li", { className: current ? "current" : "" }, open, rename, remove);
  }

  #rename(chat) {
    const title = prompt("Name of the chat", chat.title)?.trim();
    if (title) {
      chat.title = title;
      this.#store.save(chat);
      this.update();
    }
    this.#focus(chat.id);
  }

  #focus(id) {
    const at = this.#store.list().findIndex((chat) => chat.id === id);
    (byId("chats").children[at]?.querySelector("button") ?? byId("new")).focus();
  }

  #remove(chat) {
    const next = this.#store.list().find((other) => other.id !== chat.id);
    this.#store.remove(chat.id);
    this.#on.removed(chat);
    this.update();
    this.#focus(next?.id);
    this.#on.notice(`“${chat.title}” is deleted.`, "Undo", () => {
      this.#store.save(chat);
      this.update();
    });
  }

  #export() {
    const url = URL.createObjectURL(new Blob([this.#store.exported()], { type: "application/json" }));
    element("a", { href: url, download: "alara-chats.json" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }

  async #import() {
    const [file] = byId("file").files;
    byId("file").value = "";
    if (!file) return;
    try {
      const fresh = this.#store.imported(await file.text());
      this.#on.notice(`${count(fresh, "chat")} imported from ${file.name}.`);
    } catch (error) {
      this.#on.notice(`${file.name}: ${error.message}.`);
    }
    this.update();
  }
}

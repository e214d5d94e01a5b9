// Messages on the screen. A call looks as in alara's terminal:
//
//   > write_file  path: hello.txt  content: hello
//     ok, 0.16 s
//     | wrote hello.txt

import { cut, said } from "./answer.js";
import { button, copy, element, printable } from "./dom.js";
import { Markdown } from "./markdown.js";

/** How many lines of a result are shown at first. */
const LINES = 6;
/** How many characters of an argument or a line. */
const CHARACTERS = 120;

/** A message of the user; `actions` = {edit}. */
export function userView(message, actions) {
  const body = element("div", { className: "body" }, printable(message.content));
  const buttons = [
    button("Edit and retry", "edit", () => actions.edit()),
    button("Copy", "copy", (event) => copy(message.content, event.currentTarget)),
  ];
  return article("user", "You", body, buttons);
}

/** The user's message as a field; `done` gets the new text, or nothing where it stays. */
export function editView(message, done) {
  const area = element("textarea", { value: message.content, "aria-label": "Edit your message" });
  const send = () => area.value.trim() && done(area.value);
  area.onkeydown = (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      done(null);
    } else if (isSend(event)) {
      event.preventDefault();
      send();
    }
  };
  area.oninput = () => fit(area);
  const buttons = element(
    "p",
    { className: "buttons" },
    button("Cancel", null, () => done(null), "plain"),
    button("Send", null, send, ""),
  );
  const view = article("user editing", "You", element("div", { className: "body" }, area, buttons), []);
  // Its height is known when it is on the page.
  queueMicrotask(() => {
    fit(area);
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  });
  return view;
}

/** Whether a key sends what was written; on a touch screen the button does. */
export function isSend(event) {
  if (event.key !== "Enter" || event.isComposing || event.shiftKey || event.altKey) return false;
  return event.ctrlKey || event.metaKey || !matchMedia("(pointer: coarse)").matches;
}

/** Makes a field as high as its text. */
export function fit(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + area.offsetHeight - area.clientHeight}px`;
}

/** An answer; `actions` = {regenerate, retry}. */
export class AnswerView {
  #answer;
  #actions;
  #parts = [];
  #body = element("div", { className: "body" });
  #foot = element("div", { className: "remark" });

  constructor(answer, actions) {
    this.#answer = answer;
    this.#actions = actions;
    const buttons = [
      button("Regenerate", "again", () => actions.regenerate()),
      button("Copy", "copy", (event) => copy(said(answer), event.currentTarget)),
    ];
    const body = element("div", {}, this.#body, this.#foot);
    this.element = article("assistant", answer.model, body, buttons);
  }

  /** Shows what has come since; `running` while more is to come. */
  update(running) {
    const { parts, error } = this.#answer;
    // What the server tells at the end may put a call before the text.
    const same = this.#parts.findIndex((view, index) => view.part !== parts[index]);
    if (same >= 0) this.#parts.splice(same).forEach((view) => view.element.remove());
    for (const part of parts.slice(this.#parts.length)) {
      const view = partView(part);
      this.#parts.push(view);
      this.#body.append(view.element);
    }
    const open = (index) => running && index === parts.length - 1;
    this.#parts.forEach((view, index) => view.update(open(index), running));
    this.element.classList.toggle("running", running);
    this.element.classList.toggle("waiting", running && !parts.length);
    this.element.setAttribute("aria-busy", `${running}`);
    this.#foot.replaceChildren();
    if (running) return;
    if (error) {
      const again = button("Retry", null, () => this.#actions.retry(), "");
      const words = element("span", {}, `Error: ${printable(error)}`);
      this.#foot.append(element("div", { className: "error" }, words, again));
    } else this.#foot.append(cut(this.#answer) || (parts.length ? "" : "no answer"));
  }
}

function article(kind, who, body, buttons) {
  const head = element("div", { className: "who" }, element("span", {}, printable(who)), ...buttons);
  return element("article", { className: `message ${kind}`, "aria-label": printable(who) }, head, body);
}

function partView(part) {
  if (part.kind === "call") return callView(part);
  return part.kind === "reasoning" ? reasoningView(part) : textView(part);
}

function textView(part) {
  const root = element("div", { className: "markdown" });
  const markdown = new Markdown(root);
  return { part, element: root, update: () => markdown.show(part.text) };
}

function reasoningView(part) {
  const title = element("summary");
  const text = document.createTextNode("");
  const root = element("details", { className: "reasoning" }, title, element("div", {}, text));
  const update = (open) => {
    title.textContent = open ? "Reasoning…" : "Reasoning";
    text.data = printable(part.text.trim());
  };
  return { part, element: root, update };
}

function callView(part) {
  const lines = element("pre");
  const more = element("button", { type: "button", className: "plain" });
  more.setAttribute("aria-expanded", "false");
  const root = element("div", { className: "call", role: "group" }, lines, more);
  let whole = false;
  let shown = "";
  const update = (_, running) => {
    const key = JSON.stringify([part, running, whole]);
    if (key === shown) return;
    shown = key;
    const { call, verdict, result, hidden } = callText(part, running, whole);
    const kind = part.result ? (part.result.ok ? "ok" : "failed") : "open";
    const text = (className, value) => element("span", { className }, value);
    lines.replaceChildren(text("line", call), text(kind, verdict), text("result", result));
    root.setAttribute("aria-label", `Tool call ${printable(part.name)}`);
    more.hidden = !hidden && !whole;
    more.textContent = whole ? "less" : hidden;
    more.setAttribute("aria-expanded", `${whole}`);
  };
  more.onclick = () => {
    whole = !whole;
    update(false, false);
  };
  return { part, element: root, update };
}

/** The lines of a call, and what is not shown of it. */
function callText({ name, arguments: args, result }, running, whole) {
  let cut = false;
  const shorten = (text) => {
    const line = printable(whole ? text : text.replaceAll("\n", " "));
    const letters = [...line.slice(0, 4 * CHARACTERS)];
    if (whole || letters.length <= CHARACTERS) return line;
    cut = true;
    return `${letters.slice(0, CHARACTERS).join("")}…`;
  };
  const pairs = Object.entries(parsed(args)).map(([key, value]) => {
    const plain = typeof value === "string" && value && (whole || !/[\n"]/.test(value));
    return `  ${shorten(key)}: ${shorten(plain ? value : JSON.stringify(value))}`;
  });
  const call = `> ${shorten(name)}${pairs.join("")}`;
  if (!result) return { call, verdict: `\n  ${running ? "…" : "not made"}`, result: "", hidden: "" };
  const output = [result.output, result.complaint].filter((text) => typeof text === "string" && text);
  const lines = output.join("\n").trimEnd().split("\n");
  const first = (whole ? lines : lines.slice(0, LINES)).filter((_, index) => index || lines[0]);
  const text = first.map((line) => `\n  | ${shorten(line)}`).join("");
  const left = lines.length - LINES;
  const hidden = left > 0 ? `… ${left} more` : cut ? "… all of it" : "";
  return { call, verdict: `\n  ${verdict(result)}`, result: text, hidden: whole ? "" : hidden };
}

function verdict({ ok, exit, seconds }) {
  const end = ok ? "ok" : Number.isInteger(exit) ? `failed with exit status ${exit}` : "failed";
  return Number.isFinite(seconds) ? `${end}, ${seconds.toFixed(2)} s` : end;
}

/** The arguments as an object: a model's may be a text, and not whole. */
function parsed(args) {
  if (args && typeof args === "object") return args;
  try {
    const value = JSON.parse(args || "{}");
    if (value && typeof value === "object") return value;
  } catch {
    // Shown as it came.
  }
  return { arguments: `${args}` };
}

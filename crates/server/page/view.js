// Messages on the screen. A call looks as in alara's terminal:
//
//   > write_file  path: hello.txt  content: hello
//     ok, 0.16 s
//     | wrote hello.txt

import { cut, said } from "./answer.js";
import { label } from "./attach.js";
import { button, copy, element, iconButton, printable } from "./dom.js";
import { Markdown } from "./markdown.js";

/** How many lines of a result are shown at first, and characters of a line or an argument. */
const [LINES, CHARACTERS] = [6, 120];

export function userView(message, edit) {
  const words = element("div", { className: "body" }, printable(message.content));
  const files = (message.files ?? []).map((file) => {
    const text = element("pre", {}, printable(file.text));
    return element("details", { className: "file" }, element("summary", {}, label(file)), text);
  });
  const body = element("div", {}, words, files);
  return article("user", "You", body, iconButton("Edit and retry", "edit", edit));
}

/** Whether a key sends what was written; on a touch screen Enter is a new line. */
export function isSend(event) {
  if (event.key !== "Enter" || event.isComposing || event.shiftKey || event.altKey) return false;
  return event.ctrlKey || event.metaKey || !matchMedia("(pointer: coarse)").matches;
}

export function fit(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + area.offsetHeight - area.clientHeight}px`;
}

/** An answer; `again` has it given anew. */
export class AnswerView {
  #answer;
  #again;
  #parts = [];
  #body = element("div", { className: "body" });
  #foot = element("div", { className: "remark" });

  constructor(answer, again) {
    this.#answer = answer;
    this.#again = again;
    const copying = iconButton("Copy", "copy", () => copy(said(answer), copying));
    const body = element("div", {}, this.#body, this.#foot);
    this.element = article("assistant", answer.model, body, iconButton("Regenerate", "again", again), copying);
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
    this.#parts.forEach((view) => view.update(running));
    this.element.classList.toggle("running", running);
    this.element.classList.toggle("waiting", running && !parts.length);
    this.element.ariaBusy = `${running}`;
    this.#foot.replaceChildren();
    if (running) return;
    if (error) {
      const words = element("span", {}, `Error: ${printable(error)}`);
      const retry = button("Retry", this.#again);
      this.#foot.append(element("div", { className: "error" }, words, retry));
    } else this.#foot.append(cut(this.#answer) || (parts.length ? "" : "no answer"));
  }
}

function article(kind, who, body, ...buttons) {
  const ariaLabel = printable(who);
  const head = element("div", { className: "who" }, element("span", {}, ariaLabel), ...buttons);
  return element("article", { className: `message ${kind}`, ariaLabel }, head, body);
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
  const text = element("div", {});
  const title = element("summary", {}, "Reasoning");
  const root = element("details", { className: "reasoning" }, title, text);
  return { part, element: root, update: () => (text.textContent = printable(part.text.trim())) };
}

function callView(part) {
  const root = element("div", { className: "call", role: "group" });
  let shown = "";
  const update = (running) => {
    const state = `${running} ${!part.result}`;
    if (state === shown) return;
    shown = state;
    root.ariaLabel = `Tool call ${printable(part.name)}`;
    const { lines, hidden } = call(part, running, false);
    root.replaceChildren(lines);
    if (!hidden) return;
    const whole = call(part, running, true).lines;
    root.append(element("details", {}, element("summary", {}, hidden), whole));
  };
  return { part, element: root, update };
}

/** A call and its result, whole or in short, and what is not shown of them. */
function call({ name, arguments: args, result }, running, whole) {
  let hidden = "";
  const shorten = (text) => {
    const line = printable(whole ? text : text.replaceAll("\n", " "));
    // Characters, not halves of them.
    const characters = [...line.slice(0, 2 * CHARACTERS + 2)];
    if (whole || characters.length <= CHARACTERS) return line;
    hidden = "… all of it";
    return `${characters.slice(0, CHARACTERS).join("")}…`;
  };
  const pairs = Object.entries(args ?? {}).map(([key, value]) => {
    const plain = typeof value === "string" && value && (whole || !/[\n"]/.test(value));
    return `  ${shorten(key)}: ${shorten(plain ? value : JSON.stringify(value))}`;
  });
  const line = `> ${shorten(name)}${pairs.join("")}`;
  const texts = [result?.output, result?.complaint].filter((text) => typeof text === "string" && text);
  const output = texts.length ? texts.join("\n").trimEnd().split("\n") : [];
  const first = output.slice(0, whole ? undefined : LINES);
  if (output.length > first.length) hidden = `… ${output.length - first.length} more`;
  if (result?.left_out) first.push(`… ${result.left_out} bytes left out`);
  const said = first.map((text) => `\n  | ${shorten(text)}`).join("");
  const state = result ? verdict(result) : running ? "…" : "not made";
  const kind = result?.ok === false ? "failed" : "verdict";
  const span = (className, text) => element("span", { className }, text);
  const lines = element("pre", {}, span("line", line), span(kind, `\n  ${state}`), said);
  return { lines, hidden };
}

function verdict({ ok, exit, seconds }) {
  const end = ok ? "ok" : Number.isInteger(exit) ? `failed with exit status ${exit}` : "failed";
  return Number.isFinite(seconds) ? `${end}, ${seconds.toFixed(2)} s` : end;
}

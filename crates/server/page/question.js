// A question of an NPC, as alara's terminal shows it: all of the call, then what may be answered.

import { button, byId, element, printable } from "./dom.js";

/** How many blanks may follow each other in what a person is asked about, and how many empty lines. */
const [BLANKS, EMPTY] = [40, 5];
/** Characters that nobody sees; `printable` shows those that turn the direction of writing. */
const UNSEEN = /[\u061c\u200b\u200e\u200f\u2028\u2029\u2060-\u2064\u206a-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;
const BLANK = /[\s\u115f\u1160\u2800\u3164\uffa0]+/gu;

/** Shows a question; `give` gets what is answered: "yes", "session" or "no". */
export function showQuestion({ title, arguments: args, lines, diff, asks, answers }, give) {
  const told = Object.entries(args).map(([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    return `  ${inFull(name)}: ${inFull(text).replaceAll("\n", "\n    ")}`;
  });
  told.push(...lines.map((line) => `  ${inFull(line)}`));
  if (diff) told.push(inFull(diff));
  const buttons = answers.map(({ answer, label }) => button(label, () => give(answer), "plain"));
  byId("question").replaceChildren(
    element("strong", {}, inFull(title)),
    element("pre", {}, told.join("\n")),
    element("p", { className: "answers" }, element("span", {}, asks), buttons),
  );
  byId("question").hidden = false;
}

/** Takes the question away. */
export function hideQuestion() {
  const box = byId("question");
  const focused = box.contains(document.activeElement);
  box.hidden = true;
  box.replaceChildren();
  if (focused) byId("prompt").focus();
}

/** All of a text: nothing in it is unseen or pushed out of sight. */
export function inFull(text) {
  const shown = [];
  let empty = 0;
  for (const line of printable(text).replace(UNSEEN, "\ufffd").split("\n")) {
    if (!line.replace(BLANK, "")) {
      empty += 1;
      continue;
    }
    if (empty > EMPTY) shown.push(`[${empty} empty lines]`);
    else shown.push(...Array(empty).fill(""));
    empty = 0;
    shown.push(line.replace(BLANK, (run) => (run.length > BLANKS ? ` [${run.length} blanks] ` : run)));
  }
  return shown.join("\n");
}

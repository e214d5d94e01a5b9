// Emphasis, code and links within a block's text as DOM nodes.
//
// The text is a model's, so the work grows no faster than the text.

import { element, printable } from "./dom.js";

const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"' };
const TOKEN =
  /\\([!-/:-@[-`{-~])|(`+)|(\*+|_+|~+)|(!?\[)|(\])|(\n)|<br\s*\/?>|&(amp|lt|gt|quot);|(?<![\p{L}\p{N}])(https?:\/\/[^\s<>"`]+)|[^\\`*_~![\]\n<&h]+|[^]/giuy;
const TARGET =
  /\( ?(?:<([^<>\n]{0,2000})>|([^\s()]*(?:\([^\s()]*\)[^\s()]*)*))(?: (?:"[^"\n]{0,500}"|'[^'\n]{0,500}'))? ?\)/y;
/** How deep emphasis may lie in emphasis. */
const DEPTH = 16;
/** How many characters an address may have. */
const ADDRESS = 2000;

/** A text with emphasis, code and links as nodes. */
export function inline(source) {
  return build(scan(printable(source)));
}

// Strings, nodes, addresses ({bare}), runs of marks ({mark}), brackets ({bracket}, with a `url`
// where a link begins) and the ends of links ({linkEnd}).
function scan(text) {
  const items = [];
  const brackets = [];
  // The runs of marks that are not paired yet.
  const runs = [];
  const closingTicks = ticksOf(text);
  TOKEN.lastIndex = 0;
  for (let found; (found = TOKEN.exec(text)); ) {
    const [all, escaped, ticks, marks, opening, closing, newline, entity, bare] = found;
    const end = TOKEN.lastIndex;
    if (escaped) items.push(escaped);
    else if (ticks) {
      const close = closingTicks(end, ticks.length);
      if (close === undefined) items.push(ticks);
      else {
        const code = text.slice(end, close).replaceAll("\n", " ");
        const spaced = code.startsWith(" ") && code.endsWith(" ") && code.trim();
        items.push(element("code", {}, spaced ? code.slice(1, -1) : code));
        TOKEN.lastIndex = close + ticks.length;
      }
    } else if (marks) {
      const made = run(text, end - marks.length, end);
      items.push(made);
      runs.push(made);
    } else if (opening) {
      const bracket = { bracket: opening, at: items.length, runs: runs.length };
      items.push(bracket);
      brackets.push(bracket);
    } else if (closing) {
      const bracket = brackets.pop();
      TARGET.lastIndex = end;
      const target = bracket && TARGET.exec(text);
      const url = target && safe(target[1] ?? target[2]);
      if (!url) items.push("]");
      else {
        bracket.url = url;
        bracket.empty = bracket.at === items.length - 1;
        emphasize(runs.splice(bracket.runs));
        items.push({ linkEnd: true });
        TOKEN.lastIndex = TARGET.lastIndex;
      }
    } else if (newline || all.startsWith("<br")) items.push(element("br", {}));
    else if (entity) items.push(ENTITIES[entity.toLowerCase()]);
    else if (bare) {
      const url = trimmed(bare);
      items.push(safe(url) ? { bare: url } : url);
      TOKEN.lastIndex = end - bare.length + url.length;
    } else items.push(all);
  }
  emphasize(runs);
  return items;
}

/** Finds where a run of so many backticks begins, at `from` or later; asked with growing `from`. */
function ticksOf(text) {
  let starts;
  return (from, count) => {
    if (!starts) {
      starts = new Map();
      for (const { 0: ticks, index } of text.matchAll(/`+/g)) {
        if (!starts.has(ticks.length)) starts.set(ticks.length, { next: 0, list: [] });
        starts.get(ticks.length).list.push(index);
      }
    }
    const known = starts.get(count);
    while (known?.list[known.next] < from) known.next += 1;
    return known?.list[known.next];
  };
}

/** A run of marks, and what it can do (https://spec.commonmark.org/0.31.2/#emphasis-and-strong-emphasis). */
function run(text, start, end) {
  const mark = text[start];
  const length = end - start;
  const kind = (c) => (!c || /\s/.test(c) ? 0 : /[\p{P}\p{S}]/u.test(c) ? 1 : 2);
  const before = kind(text[start - 1]);
  const after = kind(text[end]);
  const left = after === 2 || (after === 1 && before < 2);
  const right = before === 2 || (before === 1 && after < 2);
  const within = mark === "_" && left && right;
  const pairs = mark !== "~" || length === 2;
  return {
    mark,
    length,
    // Marks that belong to no element.
    count: length,
    open: pairs && left && (!within || before === 1),
    close: pairs && right && (!within || after === 1),
    // The elements that begin and end here, the innermost first.
    begins: [],
    ends: [],
  };
}

/** Finds which of these runs belong together. */
function emphasize(runs) {
  const openers = [];
  // For each kind of closing run: none of the first so many openers opens it.
  const floors = {};
  for (const closing of runs) {
    const kind = `${closing.mark}${closing.open}${closing.length % 3}`;
    while (closing.close && closing.count) {
      const floor = floors[kind] ?? 0;
      let at = openers.length - 1;
      while (at >= floor && !opens(openers[at], closing)) at -= 1;
      if (at < floor) {
        floors[kind] = openers.length;
        break;
      }
      const opening = openers[at];
      const size = closing.mark === "~" || Math.min(opening.count, closing.count) > 1 ? 2 : 1;
      const tag = closing.mark === "~" ? "del" : size === 2 ? "strong" : "em";
      const made = { tag, marks: closing.mark.repeat(size) };
      opening.begins.push(made);
      closing.ends.push(made);
      opening.count -= size;
      closing.count -= size;
      // What lies between them opens nothing outside.
      openers.length = opening.count ? at + 1 : at;
      for (const key in floors) floors[key] = Math.min(floors[key], openers.length);
    }
    if (closing.open && closing.count) openers.push(closing);
  }
}

function opens(opening, closing) {
  if (opening.mark !== closing.mark) return false;
  const odd = (opening.close || closing.open) && (opening.length + closing.length) % 3 === 0;
  return closing.mark === "~" || !odd || closing.length % 3 === 0;
}

/** Makes nodes of items, from the outside in. */
function build(items) {
  const tree = new Tree();
  // For what has begun and not ended: whether an element was made for it.
  const made = [];
  let inLink = false;
  for (const item of items) {
    if (typeof item === "string") tree.text(item);
    else if (item instanceof Node) tree.append(item);
    else if (item.mark) {
      for (const { marks } of item.ends) {
        if (made.pop()) tree.end();
        else tree.text(marks);
      }
      tree.text(item.mark.repeat(item.count));
      for (const { tag, marks } of item.begins.reverse()) {
        const fits = tree.depth < DEPTH;
        if (fits) tree.begin(element(tag, {}));
        else tree.text(marks);
        made.push(fits);
      }
    } else if (item.bare) {
      // Links don't lie in each other.
      if (inLink) tree.text(item.bare);
      else tree.append(link(item.bare, item.bare));
    } else if (item.url) {
      made.push(!inLink);
      if (!inLink) tree.begin(link(item.url));
      inLink = true;
      if (item.empty) tree.text(item.url);
    } else if (item.linkEnd) {
      if (made.pop()) {
        tree.end();
        inLink = false;
      }
    } else tree.text(item.bracket);
  }
  return tree.end();
}

/** Nodes that are being made. */
class Tree {
  #top = [];
  /** The elements that have begun and not ended. */
  #open = [];
  /** The text that comes next. */
  #text = "";

  get depth() {
    return this.#open.length;
  }

  text(text) {
    this.#text += text;
  }

  append(...nodes) {
    if (this.#text) nodes.unshift(this.#text);
    this.#text = "";
    const parent = this.#open.at(-1);
    if (parent) parent.append(...nodes);
    else this.#top.push(...nodes);
  }

  begin(node) {
    this.append(node);
    this.#open.push(node);
  }

  /** Ends the innermost element; gives all that lies in none. */
  end() {
    this.append();
    this.#open.pop();
    return this.#top;
  }
}

function safe(url) {
  return url.length <= ADDRESS && /^https?:\/\//i.test(url) && URL.canParse(url) ? url : null;
}

/** An address in running text without what is the sentence's. */
function trimmed(url) {
  // Closing parentheses that have no opening one.
  let unbalanced = 0;
  for (const c of url) unbalanced += c === ")" ? 1 : c === "(" ? -1 : 0;
  let end = url.length;
  for (;;) {
    const last = url[end - 1];
    if (last === ")" && unbalanced > 0) unbalanced -= 1;
    else if (!last || !".,;:!?'*_~]".includes(last)) return url.slice(0, end);
    end -= 1;
  }
}

function link(url, ...inside) {
  return element("a", { href: url, target: "_blank", rel: "noreferrer", title: url }, inside);
}

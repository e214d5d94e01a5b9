// Markdown of a model as DOM nodes, while it streams.
//
// Text becomes text nodes only: no way leads from a model's text to HTML.
// Blocks: paragraphs, headings, fences, lists, quotes, tables, rules.
// Indented code and HTML are left as text; images are links, since nothing is loaded.

import { button, copy, element, printable } from "./dom.js";
import { inline } from "./inline.js";

// The text is a model's, so no expression may take more than linear time: neighbours that match the
// same characters try every division between them.
const FENCE = /^ *(`{3,}(?!`)|~{3,}(?!~))([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(\s[^]*)?$/;
const RULE = /^ {0,3}([-*_])\s*(?:\1\s*){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:( +)([^]*))?$/;
/** How deep quotes and lists may lie in each other. */
const DEPTH = 16;
/** How many columns a table may have. */
const COLUMNS = 100;

/** Shows a text that grows at its end; no more than the last blocks are made anew. */
export class Markdown {
  #root;
  /** Where the blocks begin that more text can still change. */
  #open = 0;
  /** These blocks, and their nodes. */
  #blocks = [];

  constructor(root) {
    this.#root = root;
  }

  /** Shows `source`, which begins as that of the last call. */
  show(source) {
    const lines = source.slice(this.#open).split("\n");
    const starts = [];
    let start = this.#open;
    for (const line of lines) {
      starts.push(start);
      start += line.length + 1;
    }
    const old = this.#blocks;
    this.#blocks = parse(lines, 0).map((block, index) => {
      block.start = starts[block.from];
      block.raw = lines.slice(block.from, block.to).join("\n");
      const before = old[index];
      if (before?.type === block.type && (before.raw === block.raw || before.update?.(block))) {
        return { ...before, ...block };
      }
      block.node = draw(block);
      if (before) before.node.replaceWith(block.node);
      else this.#root.append(block.node);
      return block;
    });
    old.slice(this.#blocks.length).forEach((block) => block.node.remove());
    // A line can still change what the one before it begins: a table. So two lines are open.
    const decided = starts.at(-2) ?? 0;
    const last = this.#blocks.findLastIndex((block) => block.start < decided);
    if (last > 0) {
      this.#blocks.splice(0, last);
      this.#open = this.#blocks[0].start;
    }
  }
}

function parse(lines, depth) {
  const blocks = [];
  for (let at = 0; at < lines.length; ) {
    const block = lines[at].trim() ? blockAt(lines, at, depth) : { to: at + 1 };
    if (block.type) blocks.push({ ...block, from: at });
    at = block.to;
  }
  return blocks;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  if (FENCE.test(line)) return fence(lines, at);
  const heading = HEADING.exec(line);
  if (heading) return { type: `h${heading[1].length}`, text: heading[2]?.trim() ?? "", to: at + 1 };
  if (RULE.test(line)) return { type: "hr", to: at + 1 };
  if (depth < DEPTH && QUOTE.test(line)) return quote(lines, at, depth);
  if (depth < DEPTH && ITEM.test(untab(line))) return list(lines, at, depth);
  return table(lines, at) ?? paragraph(lines, at, depth);
}

function paragraph(lines, at, depth) {
  let to = at + 1;
  while (to < lines.length && lines[to].trim() && !interrupts(lines, to, depth)) to += 1;
  return { type: "p", text: lines.slice(at, to).map((line) => line.trim()).join("\n"), to };
}

/** Whether a line ends the paragraph before it; a list does so with a text, from 1 on. */
function interrupts(lines, at, depth) {
  const line = lines[at];
  const item = ITEM.exec(untab(line));
  if (item && !RULE.test(line)) {
    return depth < DEPTH && !!item[4]?.trim() && (item[2].length === 1 || parseInt(item[2]) === 1);
  }
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line)) return true;
  return (depth < DEPTH && QUOTE.test(line)) || !!tableHead(lines, at);
}

function fence(lines, at) {
  const [, mark, info] = FENCE.exec(lines[at]);
  const indent = lines[at].search(/\S/);
  const end = new RegExp(`^ *\\${mark[0]}{${mark.length},}\\s*$`);
  let to = at + 1;
  while (to < lines.length && !end.test(lines[to])) to += 1;
  const inside = lines.slice(at + 1, to);
  const text = inside.map((line) => line.slice(Math.min(indent, leading(line)))).join("\n");
  const language = info.trim().split(/\s/)[0];
  return { type: "pre", text, language, to: Math.min(to + 1, lines.length) };
}

function quote(lines, at, depth) {
  let to = at;
  while (to < lines.length && QUOTE.test(lines[to])) to += 1;
  const inside = lines.slice(at, to).map((line) => line.replace(QUOTE, ""));
  return { type: "blockquote", blocks: parse(inside, depth + 1), to };
}

function list(lines, at, depth) {
  const item = (line) => ITEM.exec(untab(line));
  const first = item(lines[at]);
  const ordered = first[2].length > 1;
  const items = [];
  let to = at;
  while (to < lines.length) {
    const found = item(lines[to]);
    if (!found || found[2].length > 1 !== ordered || RULE.test(lines[to])) break;
    const [, indent, mark, space = " ", text = ""] = found;
    const inside = [text];
    // Two spaces are enough to lie in an item: models write so below "1." too.
    const needed = indent.length + 2;
    const strip = indent.length + mark.length + space.length;
    let blank = 0;
    for (to += 1; to < lines.length; to += 1) {
      const line = untab(lines[to]);
      const within = leading(line) >= needed;
      if (!line.trim()) {
        blank += 1;
        continue;
      }
      if (!within && (blank || ITEM.test(line) || interrupts(lines, to, depth))) break;
      for (; blank; blank -= 1) inside.push("");
      inside.push(line.slice(Math.min(strip, leading(line))));
    }
    items.push(parse(inside, depth + 1));
  }
  return { type: ordered ? "ol" : "ul", items, first: parseInt(first[2]), to };
}

function table(lines, at) {
  const begun = tableHead(lines, at);
  if (!begun) return undefined;
  const rows = [];
  let to = at + 2;
  for (; to < lines.length && lines[to].includes("|"); to += 1) rows.push(cells(lines[to]));
  return { type: "table", ...begun, rows, to };
}

/** The first row of a table that begins here, and how its columns are aligned. */
function tableHead(lines, at) {
  if (!lines[at].includes("|") || !/^[-:|\s]+$/.test(lines[at + 1] ?? "")) return undefined;
  const marks = cells(lines[at + 1]);
  if (marks.length > COLUMNS || !marks.every((mark) => /^:?-+:?$/.test(mark))) return undefined;
  const head = cells(lines[at]);
  if (head.length !== marks.length) return undefined;
  const align = marks.map((mark) =>
    mark.endsWith(":") ? (mark.startsWith(":") ? "center" : "right") : "",
  );
  return { head, align };
}

/** The cells of a row; a bar within code, or behind a backslash, is none. */
function cells(line) {
  const found = [""];
  for (const [part] of line.trim().matchAll(/\\\||`[^`]*`|\||[^|\\`]+|[\\`]/g)) {
    if (part === "|") found.push("");
    else found[found.length - 1] += part === "\\|" ? "|" : part.replaceAll("\\|", "|");
  }
  if (found.length > 1 && !found[0].trim()) found.shift();
  if (found.length > 1 && !found.at(-1).trim()) found.pop();
  return found.map((cell) => cell.trim());
}

function leading(line) {
  return line.length - line.trimStart().length;
}

function untab(line) {
  return line.replace(/^[ \t]+/, (space) => space.replaceAll("\t", "    "));
}

/** The node of a block; `block.update` makes it anew where it stands, if it can. */
function draw(block) {
  const { type, text, blocks, items } = block;
  if (type === "pre") return drawCode(block);
  if (type === "table") return drawTable(block);
  if (items) {
    const list = element(type, {}, items.map((item) => element("li", {}, item.map(draw))));
    if (block.first) list.start = block.first;
    return list;
  }
  return element(type, {}, (blocks ?? []).map(draw), inline(text ?? ""));
}

function drawCode(block) {
  const text = document.createTextNode(printable(block.text));
  const name = document.createTextNode(printable(block.language));
  const copying = button("Copy", () => copy(text.data, copying), "plain copy");
  copying.ariaLabel = "Copy the code";
  const bar = element("div", { className: "code-bar" }, element("span", {}, name), copying);
  const code = element("pre", { tabIndex: 0 }, element("code", {}, text));
  // The node stays: what is selected in it, and the button's focus, do too.
  block.update = (next) => {
    const shown = printable(next.text);
    if (shown.startsWith(text.data)) text.appendData(shown.slice(text.data.length));
    else text.data = shown;
    name.data = printable(next.language);
    return true;
  };
  return element("div", { className: "code" }, bar, code);
}

function drawTable(block) {
  const row = (tag, texts) => {
    const shown = texts.slice(0, block.align.length);
    const cell = (text, index) => element(tag, { className: block.align[index] }, inline(text));
    const made = element("tr", {}, shown.map(cell));
    // One cell replaces all that are missing.
    const missing = block.align.length - shown.length;
    if (missing) made.append(element(tag, { colSpan: missing }));
    return made;
  };
  const head = element("thead", {}, row("th", block.head));
  const body = element("tbody", {}, block.rows.map((texts) => row("td", texts)));
  return element("div", { className: "table" }, element("table", {}, head, body));
}

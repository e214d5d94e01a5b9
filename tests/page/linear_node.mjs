// The check of linear.js by node, with as much of a document as the page's Markdown takes.
//
//   node tests/page/linear_node.mjs [PAGE]

import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import path from "node:path";

class Node {
  childNodes = [];

  append(...nodes) {
    for (const node of nodes) this.childNodes.push(node instanceof Node ? node : new Text(node));
  }

  replaceWith() {}

  remove() {}

  querySelectorAll() {
    return [];
  }

  get textContent() {
    return this.childNodes.map((node) => node.textContent).join("");
  }
}

class Text extends Node {
  constructor(data) {
    super();
    this.data = data;
  }

  get textContent() {
    return this.data;
  }
}

globalThis.Node = Node;
globalThis.document = {
  createElement: () => new Node(),
  createTextNode: (data) => new Text(data),
};

const here = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);
const page = process.argv[2] ?? path.join(here, "../../crates/server/page");
// The page's files are modules without a package that would say so.
const load = async (file) => {
  const text = await readFile(path.join(page, file), "utf8");
  const linked = await Promise.all(
    [...text.matchAll(/^import .* from "\.\/(.*)";$/gm)].map(async ([line, other]) => [
      line,
      line.replace(`./${other}`, await load(other)),
    ]),
  );
  const code = linked.reduce((text, [line, replaced]) => text.replace(line, () => replaced), text);
  return `data:text/javascript,${encodeURIComponent(code)}`;
};
const { Markdown } = await import(await load("markdown.js"));
const source = await readFile(path.join(here, "linear.js"), "utf8");
const { attacks, superlinear } = await import(`data:text/javascript,${encodeURIComponent(source)}`);
const hostile = JSON.parse(await readFile(path.join(here, "hostile.json"), "utf8"));
console.log(JSON.stringify(superlinear(Markdown, attacks(hostile), 10000)));

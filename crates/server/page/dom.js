// Small things that every part needs.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An element with children, or lists of them; texts become text nodes, so they are never HTML. */
export function element(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  for (const child of children.flat()) node.append(child);
  return node;
}

export function button(label, onclick, className = "") {
  return element("button", { type: "button", className, onclick }, label);
}

/** A button that shows an icon of index.html. */
export function iconButton(label, icon, onclick) {
  const [svg, use] = ["svg", "use"].map((tag) => document.createElementNS(SVG, tag));
  use.setAttribute("href", `#i-${icon}`);
  svg.append(use);
  const node = button(svg, onclick, "plain icon");
  node.title = node.ariaLabel = label;
  return node;
}

/** Text without control characters but newline and tab, nor those that turn the direction of writing. */
export function printable(text) {
  return text.replace(/[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g, (c) =>
    c === "\r" ? "" : "\ufffd",
  );
}

/** Puts a text into the clipboard, and says so on the button for a moment. */
export async function copy(text, from) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers have no `clipboard` on a page that came unencrypted from another machine.
    const area = element("textarea", { value: text, className: "unseen" });
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
    from.focus();
  }
  from.dataset.told = done ? "Copied" : "Not copied";
  setTimeout(() => delete from.dataset.told, 1500);
}

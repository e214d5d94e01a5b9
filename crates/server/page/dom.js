// Small things that every part needs.

/** An element with properties and children; texts become text nodes, so they are never HTML. */
export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("aria-") || name === "role") node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children);
  return node;
}

/** A button that shows an icon of index.html, or its label. */
export function button(label, icon, onclick, className = "plain icon") {
  const node = element("button", { type: "button", className, onclick });
  if (!icon) node.append(label);
  else {
    node.append(symbol(icon));
    node.title = label;
    node.setAttribute("aria-label", label);
  }
  return node;
}

/** An icon of index.html. */
export function symbol(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#i-${name}`);
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
}

/**
 * Text without characters that could make it look like another one:
 * control characters but newline and tab, and those that turn the direction of writing.
 */
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

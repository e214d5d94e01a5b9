// Whether what it takes to show a text grows no faster than the text: run by a browser and by node.
//
// Each attack is a text of about as many characters as it is asked for.

/** All attacks of hostile.json: a name, and the text of a size. */
export function attacks({ attacks, nested, ends, wide }) {
  const fill = (piece, size) => piece.repeat(Math.ceil(size / piece.length));
  const made = [];
  for (const [begin, piece] of attacks) {
    for (const end of ends) {
      const name = JSON.stringify([begin, piece, end]);
      made.push([name, (size) => begin + fill(piece, size) + end]);
    }
  }
  for (const [before, inside, after] of nested) {
    const text = (size) => {
      const count = Math.ceil(size / (before.length + after.length));
      return before.repeat(count) + inside + after.repeat(count);
    };
    made.push([JSON.stringify([before, inside, after]), text]);
  }
  for (const [head, line, marks, end, rows] of wide) {
    const text = (size) => fill(head, size / 3) + line + fill(marks, size / 3) + end + fill(rows, size / 3);
    made.push([JSON.stringify([head, marks, rows]), text]);
  }
  const ticks = (size) => {
    const lengths = Array.from({ length: Math.sqrt(2 * size) }, (_, index) => index + 1);
    return lengths.map((length) => "`".repeat(length)).join(" ");
  };
  made.push(["longer and longer runs of backticks", ticks]);
  return made;
}

/** Which attacks take more than in proportion, with what they took; shown where `place` is one. */
export function superlinear(Markdown, all, size, place) {
  const once = (text) => {
    const root = document.createElement("div");
    place?.append(root);
    const began = performance.now();
    new Markdown(root).show(text);
    // A browser lays it out to tell.
    if (place) root.offsetHeight;
    const took = performance.now() - began;
    root.remove();
    return took;
  };
  const found = [];
  for (const [name, text] of all) {
    const [one, two] = [text(size), text(2 * size)];
    let [short, long] = [Infinity, Infinity];
    const fits = () => long < 2.5 * short + 100 && long < 1500;
    // Other programs may take time from one of them.
    for (let again = 0; again < 4 && !fits(); again += 1) {
      short = Math.min(short, once(one));
      long = Math.min(long, once(two));
    }
    if (!fits()) found.push([name, short, long]);
  }
  return found;
}

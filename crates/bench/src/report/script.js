'use strict';
// Shows the attempts that the part after `#list?` of the address chooses. Texts are set as texts, never as HTML.
const data = JSON.parse(document.getElementById('data').textContent);
const table = document.getElementById('attempts');
const note = document.getElementById('note');
const more = document.getElementById('more');
const list = document.getElementById('list');
const columns = ['task', 'model', 'condition', 'trial', 'attempt', 'verdict', 'tool calls', 'seconds', 'tokens in (cached)', 'tokens out', 'reason', 'trace'];
const page = 200;
let found = [], shown = 0;

const add = (parent, name, text) => {
  const element = parent.appendChild(document.createElement(name));
  if (text !== undefined) element.textContent = text;
  return element;
};

const head = add(table.tHead, 'tr');
for (const name of columns) add(head, 'th', name).scope = 'col';

function holds(row, wanted) {
  const task = data.tasks[row[3]];
  const is = {
    model: row[0], family: (data.models[row[0]] || ['', ''])[1], condition: row[1],
    category: task[1], difficulty: task[2], verdict: row[5],
  };
  for (const [name, value] of wanted) {
    if (name === 'within') { if (row[4] > Number(value)) return false; }
    else if (String(is[name]) !== value) return false;
  }
  return true;
}

function next() {
  for (const row of found.slice(shown, shown + page)) {
    const line = add(table.tBodies[0], 'tr');
    add(line, 'th', data.tasks[row[3]][0]).scope = 'row';
    add(line, 'td', (data.models[row[0]] || [''])[0]);
    add(line, 'td', data.conditions[row[1]]);
    for (const at of [2, 4]) add(line, 'td', row[at]).className = 'number';
    add(line, 'td', row[6]).className = row[6];
    for (const at of [7, 8]) add(line, 'td', row[at]).className = 'number';
    add(line, 'td', `${row[9]} (${row[10]})`).className = 'number';
    add(line, 'td', row[11]).className = 'number';
    add(line, 'td', row[12]);
    const last = add(line, 'td');
    if (row[13]) {
      const link = add(last, 'a', 'trace');
      link.href = row[13];
      link.setAttribute('aria-label', `trace of ${data.tasks[row[3]][0]}, attempt ${row[4]}`);
    }
  }
  shown = Math.min(shown + page, found.length);
  more.hidden = shown === found.length;
  more.textContent = `More (${found.length - shown})`;
}

function show() {
  const address = location.hash;
  if (!address.startsWith('#list?') && address !== '#list') return;
  const wanted = [...new URLSearchParams(address.slice(6))];
  found = data.rows.filter((row) => holds(row, wanted));
  shown = 0;
  table.tBodies[0].replaceChildren();
  table.hidden = false;
  const words = wanted.map(([name, value]) => {
    if (name === 'model') return (data.models[value] || [''])[0];
    if (name === 'condition') return data.conditions.length > 1 ? data.conditions[value] : '';
    if (name === 'within') return value === '1' ? 'first attempts' : `attempts 1 to ${value}`;
    return `${name} ${value || 'not known'}`;
  }).filter((word) => word);
  const cases = new Set(found.map((row) => row.slice(0, 4).join())).size;
  note.textContent = `${found.length} attempts in ${cases} cases: ${words.join(', ') || 'all'}`;
  next();
  list.focus({ preventScroll: true });
  list.scrollIntoView();
}

more.addEventListener('click', next);
addEventListener('hashchange', show);
show();

// What is open, what is being answered, and what keys do.

import * as api from "./api.js";
import { absorb, costs, outgoing, said } from "./answer.js";
import { Attachments } from "./attach.js";
import { button, byId, element, iconButton, printable } from "./dom.js";
import { hideQuestion, inFull, showQuestion } from "./question.js";
import { Side } from "./side.js";
import { Store, keepSettings, remember, remembered, settings } from "./store.js";
import { AnswerView, fit, isSend, userView } from "./view.js";

const OPEN = "alara.open";

const [log, list, prompt, model, send] = ["log", "messages", "prompt", "model", "send"].map(byId);

const store = new Store((text) => notice(text));
const chosen = settings();
let chat = blank();
/** What is being answered: {chat, answer, view, controller, began, done}; in one chat at a time. */
let running = null;
/** What is being edited: the index of a message, and what else was in the field and attached. */
let editing = null;
/** The NPC to begin with, if the server names one. */
let lead;
/** By chat, what was answered for all of it: what is the same is not asked again. */
const agreed = new WeakMap();
const attachments = new Attachments((text) => notice(text));

const side = new Side(store, {
  current: () => chat.id,
  open: (other) => {
    open(other);
    side.toggle(false);
    prompt.focus();
  },
  removed: (gone) => {
    if (running?.chat === gone) stop();
    if (chat === gone) open(blank());
  },
  notice,
});

function blank() {
  // Not `randomUUID`, which browsers have on encrypted pages only.
  const id = Array.from(crypto.getRandomValues(new Uint32Array(3)), (word) => word.toString(36));
  return { id: id.join(""), title: "New chat", updated: Date.now(), messages: [] };
}

function open(other) {
  leaveEdit();
  chat = other;
  remember(OPEN, chat.id);
  choose();
  list.replaceChildren();
  if (running) running.view = null;
  chat.messages.forEach((_, index) => show(index));
  hint();
  log.scrollTop = log.scrollHeight;
  side.update();
  updateState();
}

function show(index) {
  const message = chat.messages[index];
  if (message.role === "user") {
    list.append(userView(message, () => edit(index)));
    return;
  }
  const view = new AnswerView(message, () => regenerate(index));
  if (running?.answer === message) running.view = view;
  view.update(running?.answer === message);
  list.append(view.element);
}

function cutAt(index) {
  chat.messages.length = index;
  [...list.children].slice(index).forEach((node) => node.remove());
}

function hint() {
  document.title = chat.messages.length ? `${printable(chat.title)} – alara` : "alara";
  if (chat.messages.length) return;
  const text = "Ask a model, or choose an NPC above: it works with its tools.";
  list.append(element("p", { className: "hint" }, text));
}

function updateState() {
  send.ariaLabel = running ? "Stop" : "Send";
  send.querySelector("use").setAttribute("href", running ? "#i-stop" : "#i-send");
  let status = costs(lastAnswer());
  if (running) {
    const seconds = Math.floor((performance.now() - running.began) / 1000);
    const place = running.chat === chat ? "" : ` in “${running.chat.title}”`;
    status = `${running.answer.model} answers${place} · ${seconds} s · Escape stops`;
  }
  byId("status").textContent = printable(status);
}

function lastAnswer() {
  return chat.messages.findLast((message) => message.role === "assistant");
}

async function submit() {
  const text = prompt.value.trim();
  const { files } = attachments;
  if (!(text || files.length) || (running && !editing)) return;
  if (!model.value) await loadModels();
  if (!model.value) return;
  if (editing) cutAt(editing.index);
  else write("", []);
  leaveEdit();
  if (!chat.messages.length) {
    chat.title = (text || files[0].name).split("\n")[0].slice(0, 60);
    list.replaceChildren();
  }
  chat.messages.push({ role: "user", content: text, ...(files.length ? { files } : {}) });
  show(chat.messages.length - 1);
  await answer();
}

/** Has the last message answered. */
async function answer() {
  await stop();
  notice("");
  const asked = chat;
  const body = { model: model.value, messages: outgoing(asked.messages, chosen.system) };
  for (const name of ["temperature", "max_tokens"]) {
    if (chosen[name]) body[name] = Number(chosen[name]);
  }
  const run = {
    chat: asked,
    answer: { role: "assistant", model: model.value, parts: [] },
    controller: new AbortController(),
    began: performance.now(),
  };
  asked.messages.push(run.answer);
  keep(asked);
  running = run;
  show(asked.messages.length - 1);
  hint();
  log.scrollTop = log.scrollHeight;
  run.done = work(run, body);
  const denied = await run.done;
  if (denied && (await askToken(denied)) && chat === asked && !running) {
    await regenerate(asked.messages.indexOf(run.answer));
  }
}

/** Shows the answer as it comes, and keeps it; why it was denied, if it was for lack of a token. */
async function work(run, body) {
  announce(`${run.answer.model} answers`);
  const clock = setInterval(updateState, 1000);
  updateState();
  const denied = await receive(run, body);
  clearInterval(clock);
  hideQuestion();
  running = null;
  run.view?.update(false);
  updateState();
  // Unless it was deleted.
  if (store.get(run.chat.id)) keep(run.chat);
  announce(run.answer.error ? `Error: ${run.answer.error}` : said(run.answer).slice(0, 1000));
  return denied;
}

async function receive(run, body) {
  const { answer } = run;
  try {
    for await (const chunk of api.chat(body, run.controller.signal)) {
      absorb(answer, chunk);
      if (chunk.alara?.question) question(run, chunk.alara.question);
      schedule();
    }
  } catch (error) {
    if (run.controller.signal.aborted) answer.finish = "stopped";
    else {
      answer.error = error.message;
      if (error.retryAfter) answer.error += ` (try again in ${error.retryAfter} s)`;
      if (error.status === 401) return error.message;
    }
  } finally {
    answer.seconds = (performance.now() - run.began) / 1000;
  }
  return null;
}

/** Asks what the NPC asks, unless it was answered for the whole chat before. */
function question(run, asked) {
  const known = agreed.get(run.chat) ?? new Set();
  const give = async (answer) => {
    hideQuestion();
    try {
      await api.reply(asked.id, answer);
      if (answer === "session" && asked.holds) agreed.set(run.chat, known.add(asked.holds));
    } catch (error) {
      notice(`The answer did not arrive: ${error.message}`);
      // It is over where nobody waits for it any more.
      if (running === run && error.status !== 404) showQuestion(asked, give);
    }
  };
  if (known.has(asked.holds)) give("session");
  else {
    showQuestion(asked, give);
    announce(`${inFull(asked.title)} ${asked.asks}`);
  }
}

/** Ends what is being answered; what has come stays. */
async function stop() {
  running?.controller.abort();
  await running?.done;
}

/** Answers anew what the answer at `index` was for. */
async function regenerate(index) {
  const before = chat;
  leaveEdit();
  await stop();
  if (chat !== before || index < 0) return;
  cutAt(index);
  await answer();
}

/** Puts the user's message at `index` into the field; when it is sent, all behind it is dropped. */
function edit(index) {
  leaveEdit();
  editing = { index, draft: prompt.value, files: attachments.files };
  write(chat.messages[index].content, chat.messages[index].files ?? []);
  list.children[index].classList.add("editing");
  notice("When the changed message is sent, what follows it is dropped.", "Cancel", leaveEdit);
  prompt.focus();
}

/** Leaves a message as it was; whether one was being edited. */
function leaveEdit() {
  if (!editing) return false;
  list.children[editing.index]?.classList.remove("editing");
  write(editing.draft, editing.files);
  editing = null;
  notice("");
  return true;
}

function write(text, files) {
  prompt.value = text;
  attachments.files = files;
  fit(prompt);
}

function keep(kept) {
  kept.updated = Date.now();
  store.save(kept);
  side.update();
}

let painting = false;
let pause = 0;

/** Shows what has come with the next frame; a long text more rarely, since it takes time. */
function schedule() {
  if (painting || !running?.view) return;
  painting = true;
  setTimeout(() => requestAnimationFrame(paint), pause);
}

function paint() {
  painting = false;
  if (!running?.view) return;
  const began = performance.now();
  running.view.update(true);
  updateState();
  pause = Math.min(4 * (performance.now() - began), 1000);
}

/** Whether the end is in sight; then it stays there, whatever grows. */
let follows = true;
let size = "";
const measure = () => `${log.scrollHeight} ${log.clientHeight}`;
log.onscroll = () => {
  // What a change of size did is not what a person did.
  if (measure() === size) follows = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
};
const sizes = new ResizeObserver(() => {
  if (follows) log.scrollTop = log.scrollHeight;
  size = measure();
});
sizes.observe(log);
sizes.observe(list);

/** Tells a screen reader. */
function announce(text) {
  byId("live").textContent = printable(text);
}

/** Shows a line above the message field, with a button for what can be done. */
function notice(text, label, action) {
  const box = byId("notice");
  box.hidden = !text;
  box.replaceChildren(element("span", {}, printable(text)));
  const act = () => {
    notice("");
    action();
  };
  if (label) box.append(button(label, act));
  box.append(iconButton("Close", "close", () => notice("")));
}

async function loadModels() {
  try {
    const offered = await api.models();
    lead = offered.lead;
    model.replaceChildren(...offered.names.map((value) => element("option", { value }, printable(value))));
    choose();
  } catch (error) {
    if (error.status === 401 && (await askToken(error.message))) return loadModels();
    notice(`The models can't be listed: ${error.message}`, "Retry", loadModels);
  }
}

/** Chooses the model that answered last, else the one that was chosen last, else the lead. */
function choose() {
  const names = Array.from(model.options, (option) => option.value);
  const name = [lastAnswer()?.model, chosen.model, lead].find((name) => names.includes(name));
  if (name) model.value = name;
}

/** Whether a token was given when asked for. */
async function askToken(why) {
  byId("token-why").textContent = printable(why);
  byId("token").value = "";
  const given = (await dialog("token-dialog")) && byId("token").value.trim();
  if (given) api.setToken(given);
  return !!given;
}

/** Shows a dialog; whether it was left by its main button. */
function dialog(id) {
  const box = byId(id);
  if (box.open) return Promise.resolve(false);
  box.returnValue = "";
  box.querySelector("[type=button]").onclick = () => box.close();
  box.showModal();
  return new Promise((done) => {
    // The event comes later: the dialog may be open once more by then.
    box.onclose = () => box.open || done(box.returnValue === "save");
  });
}

async function changeSettings() {
  const fields = ["system", "temperature", "max_tokens"].map(byId);
  for (const field of fields) field.value = chosen[field.id];
  if (!(await dialog("settings-dialog"))) return;
  for (const field of fields) chosen[field.id] = field.value;
  keepSettings(chosen);
}

byId("composer").onsubmit = (event) => {
  event.preventDefault();
  if (running) stop();
  else submit();
};
prompt.oninput = () => fit(prompt);
prompt.onkeydown = (event) => {
  if (isSend(event)) {
    event.preventDefault();
    submit();
  } else if (event.key === "ArrowUp" && !prompt.value && !running) {
    const last = chat.messages.findLastIndex((message) => message.role === "user");
    if (last < 0) return;
    event.preventDefault();
    edit(last);
  }
};
document.onkeydown = (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if (!side.toggle(false) && !leaveEdit()) stop();
};
model.onchange = () => {
  chosen.model = model.value;
  keepSettings(chosen);
};
byId("new").onclick = () => {
  open(blank());
  side.toggle(false);
  prompt.focus();
};
byId("settings").onclick = changeSettings;
window.onpagehide = () => {
  if (!running) return;
  running.answer.finish = "stopped";
  keep(running.chat);
};

open(store.get(remembered(OPEN)) ?? chat);
if (!matchMedia("(pointer: coarse)").matches) prompt.focus();
await loadModels();

// An answer as it is kept and shown: what was reasoned, called and said, in this order.
//
// {role: "assistant", model, parts, finish?, error?, usage?, seconds?, rate?, trace?}
// parts: {kind: "reasoning" | "text", text}, and
// {kind: "call", id?, name, arguments, result?: {ok, exit?, seconds?, output, complaint?, left_out?}}.

/** Takes up a chunk of a streamed answer. */
export function absorb(answer, chunk) {
  if (chunk.usage) {
    const { prompt_tokens: prompt, completion_tokens: generated } = chunk.usage;
    const cached = chunk.usage.prompt_tokens_details?.cached_tokens ?? 0;
    answer.usage = { prompt, generated, cached };
  }
  if (chunk.timings?.predicted_per_second) answer.rate = chunk.timings.predicted_per_second;
  const [choice] = chunk.choices ?? [];
  const delta = choice?.delta ?? {};
  append(answer, "reasoning", delta.reasoning_content ?? delta.reasoning);
  append(answer, "text", delta.content);
  if (choice?.finish_reason) answer.finish = choice.finish_reason;
  if (chunk.alara) agentEvent(answer, chunk.alara);
}

function append(answer, kind, text) {
  if (!text) return;
  const last = answer.parts.at(-1);
  if (last?.kind === kind) last.text += text;
  else {
    // After a call, it begins with an empty line.
    const begin = text.replace(/^\n+/, "");
    if (begin) answer.parts.push({ kind, text: begin });
  }
}

/** What the server tells of an NPC's own calls: while it works, or together at the end. */
function agentEvent(answer, { call, result, calls, trace, finish }) {
  if (call) answer.parts.push({ ...call, kind: "call", name: `${call.name}` });
  if (result && typeof result === "object") {
    const waiting = answer.parts.filter((part) => part.kind === "call" && !part.result);
    const made = waiting.find((part) => part.id === result.id) ?? waiting[0];
    if (made) made.result = result;
  }
  if (calls && !answer.parts.some((part) => part.kind === "call")) {
    const made = calls.map(({ name, arguments: args, ...rest }) => {
      return { kind: "call", name: `${name}`, arguments: args, result: rest };
    });
    // They were made before the answer, the last part, was given.
    const said = answer.parts.at(-1)?.kind === "text" ? [answer.parts.pop()] : [];
    answer.parts.push(...made, ...said);
  }
  if (trace) answer.trace = trace;
  if (finish === "repetition") answer.finish = finish;
}

/** What was said, without reasoning and calls. */
export function said(answer) {
  const texts = answer.parts.filter((part) => part.kind === "text");
  return texts.map((part) => part.text).join("\n\n");
}

/** The messages to send for the chat's messages; what has no answer goes with what follows. */
export function outgoing(messages, system) {
  const sent = system.trim() ? [{ role: "system", content: system }] : [];
  for (const message of messages) {
    const content = message.role === "user" ? whole(message) : said(message);
    const last = sent.at(-1);
    if (!content.trim()) continue;
    if (last?.role === message.role) last.content += `\n\n${content}`;
    else sent.push({ role: message.role, content });
  }
  return sent;
}

/** A message of the user with its files behind it, each in a fence that does not occur in it. */
function whole({ content, files = [] }) {
  const blocks = files.map(({ name, text }) => {
    const runs = text.match(/`+/g) ?? [];
    const fence = "`".repeat(runs.reduce((most, run) => Math.max(most, run.length + 1), 3));
    let end = text.length;
    while ("\n\r".includes(text[end - 1] ?? "x")) end -= 1;
    return `File ${name}:\n${fence}\n${text.slice(0, end)}\n${fence}`;
  });
  return [content, ...blocks].filter(Boolean).join("\n\n");
}

/** Why the answer is not whole, if it isn't. */
export function cut({ finish }) {
  const reasons = {
    length: "cut off: no more tokens are allowed",
    repetition: "cut off: it repeats itself",
    stopped: "stopped",
  };
  return reasons[finish] ?? "";
}

export function costs(answer) {
  if (!answer) return "";
  const { model, usage, seconds, rate, trace } = answer;
  const facts = [model];
  if (usage) {
    const share = usage.prompt ? Math.round((100 * usage.cached) / usage.prompt) : 0;
    facts.push(`${count(usage.prompt, "prompt token")} (${usage.cached} cached, ${share} %)`);
    facts.push(`${usage.generated} generated${rate ? ` at ${rate.toFixed(1)} tokens/s` : ""}`);
  }
  if (seconds) facts.push(`${seconds.toFixed(1)} s`);
  if (trace) facts.push(`trace ${trace}`);
  return facts.join(" · ");
}

export function count(number, one) {
  return `${number} ${one}${number === 1 ? "" : "s"}`;
}

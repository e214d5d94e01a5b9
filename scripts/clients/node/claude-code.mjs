// Claude Code, which speaks Messages only.
// needs: @anthropic-ai/claude-code@2.1.197
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { check, command, KEY, MODEL, REAL, run, SERVER } from "./cases.mjs"

const work = `${process.env.HOME}/work`
mkdirSync(work)
// The package has a launcher that an install script replaces by the program for this machine; npm may not run such scripts.
const installed = new URL("node_modules/.bin/claude", import.meta.url).pathname
const native = new URL(`node_modules/@anthropic-ai/claude-code-${process.platform}-${process.arch}/claude`, import.meta.url).pathname
const claude = existsSync(native) ? native : installed

// Its own prompt has 18,000 tokens: more than the context of the model that ships, and minutes of a CPU.
async function session(tools, ...args) {
  const output = await command(claude, [
    "--print", "--output-format", "stream-json", "--verbose", "--system-prompt", "Be short.", "--tools", tools, "--allowedTools", tools,
    "--max-turns", "4", ...args,
  ], {
    // An answer that the limit of tokens cuts off ends it with an error.
    cwd: work, seconds: 280, mayFail: true, env: {
      ...process.env, PWD: work, ANTHROPIC_BASE_URL: SERVER, ANTHROPIC_AUTH_TOKEN: KEY, ANTHROPIC_MODEL: MODEL,
      ANTHROPIC_DEFAULT_HAIKU_MODEL: MODEL, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", CLAUDE_CODE_MAX_RETRIES: "0",
      CLAUDE_CODE_MAX_OUTPUT_TOKENS: "400",
    },
  })
  const events = output.split("\n").filter((line) => line.startsWith("{")).map((line) => JSON.parse(line))
  const blocks = (role) => events.filter((event) => event.type === role && Array.isArray(event.message.content))
    .flatMap((event) => event.message.content)
  return { end: events.find((event) => event.type === "result"), said: blocks("assistant"), results: blocks("user") }
}

function ended({ end }) {
  check(end && !end.is_error, `no result: ${JSON.stringify(end)}`)
  check(end.usage.input_tokens + end.usage.cache_read_input_tokens > 0 && end.usage.output_tokens > 0, `no usage: ${JSON.stringify(end.usage)}`)
}

await run({
  async turn() {
    ended(await session("", "Say hello."))
  },

  async resumes() {
    ended(await session("", "--continue", "Say it again."))
  },

  async edits() {
    const notes = `${work}/notes.txt`
    writeFileSync(notes, "This is a draft.\nIt is about bees.\n")
    const { end, said, results } = await session("Read,Edit", "Read notes.txt, then replace the word draft with final in it.")
    const calls = said.filter((block) => block.type === "tool_use")
    // What it edits is up to the model; that it calls, and that its calls hold the client's own schema, isn't.
    check(calls.some((call) => call.name === "Read"), `no call of Read: ${JSON.stringify(said).slice(0, 300)}`)
    const invalid = results.find((result) => /InputValidationError/.test(JSON.stringify(result)))
    check(!invalid, JSON.stringify(invalid))
    console.log(`${end?.subtype}: ${readFileSync(notes)}`)
  },
}, {}, ["edits"])

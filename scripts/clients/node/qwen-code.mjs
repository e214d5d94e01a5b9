// Qwen Code, through OpenAI's chat. Later versions take Node 22.
// needs: @qwen-code/qwen-code@0.15.10
import { mkdirSync, writeFileSync } from "node:fs"
import { check, command, KEY, MODEL, run, V1 } from "./cases.mjs"

const work = `${process.env.HOME}/work`
mkdirSync(work)
mkdirSync(`${process.env.HOME}/.qwen`)
writeFileSync(`${process.env.HOME}/.qwen/settings.json`, JSON.stringify({
  telemetry: { enabled: false }, privacy: { usageStatisticsEnabled: false }, general: { disableAutoUpdate: true },
  // Its own prompt and tools have more tokens than the context of the model that ships.
  memory: { enableManagedAutoMemory: false, enableManagedAutoDream: false, enableAutoSkill: false },
  tools: {
    core: ["read_file"], exclude: ["agent", "skill", "task_stop", "send_message", "tool_search", "ask_user_question", "exit_plan_mode"],
  },
  model: { maxSessionTurns: 4, generationConfig: { samplingParams: { max_tokens: 200 } } },
}))

// It sends what is for this machine to a proxy, too, whatever NO_PROXY says.
const env = Object.fromEntries(Object.entries({ ...process.env, PWD: work }).filter(([name]) => !/_PROXY$/i.test(name)))

async function qwen(...args) {
  const output = await command(new URL("node_modules/.bin/qwen", import.meta.url).pathname, [
    "--auth-type", "openai", "--openai-base-url", V1, "--openai-api-key", KEY, "--model", MODEL, "--system-prompt", "You read files by calling tools. Be short.",
    "--approval-mode", "yolo", "--output-format", "json", ...args,
  ], { cwd: work, seconds: 280, env })
  const from = output.indexOf("[{")
  check(from >= 0, `no JSON: ${output.slice(-300)}`)
  return JSON.parse(output.slice(from, output.lastIndexOf("]") + 1))
}

function ended(events) {
  const end = events.find((event) => event.type === "result")
  // It takes an answer without words for a failure: that is up to the model.
  if (/ended with empty response text/.test(end?.result)) return
  check(end && !end.is_error && !/API Error/.test(end.result), `no result: ${JSON.stringify(end)}`)
  check(end.usage.input_tokens > 0 && end.usage.output_tokens > 0, `no usage: ${JSON.stringify(end.usage)}`)
}

await run({
  async turn() {
    ended(await qwen("--exclude-tools", "read_file", "--prompt", "Say hello."))
  },

  async with_tools() {
    // Small models may answer without a call; a call has a result.
    writeFileSync(`${work}/notes.txt`, "The bees' house is blue.\n")
    const events = await qwen("--prompt", `Read ${work}/notes.txt.`)
    ended(events)
    const blocks = events.filter((event) => event.message).flatMap((event) => event.message.content)
    const number = (type) => blocks.filter((block) => block.type === type).length
    check(number("tool_result") === number("tool_use"), `calls without results: ${JSON.stringify(blocks)}`)
  },
})

// Continue's command line, with the settings that its extensions read too.
// needs: @continuedev/cli@1.5.47
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { check, command, KEY, MODEL, run, V1 } from "./cases.mjs"

const work = `${process.env.HOME}/work`
mkdirSync(work)
const config = `${process.env.HOME}/config.yaml`
writeFileSync(config, `
name: Local
version: 0.0.1
schema: v1
models:
  - name: alara
    provider: openai
    apiBase: ${V1}
    apiKey: ${KEY}
    model: ${MODEL}
    roles: [chat, edit, apply]
    capabilities: [tool_use]
    defaultCompletionOptions:
      contextLength: 16000
      maxTokens: 200
`)

async function cn(...args) {
  return command(new URL("node_modules/.bin/cn", import.meta.url).pathname, ["--print", "--verbose", "--config", config, ...args], {
    cwd: work, seconds: 280, mayFail: true, env: { ...process.env, PWD: work, CONTINUE_TELEMETRY_ENABLED: "0" },
  })
}

// How many pieces of answers its log has until now; the last ones may not have been written.
function pieces() {
  return readFileSync(`${process.env.HOME}/.continue/logs/cn.log`, "utf8").split("Received chunk").length - 1
}

await run({
  async turn() {
    check((await cn("--exclude", "*", "Say hello.")).trim() && pieces(), "no answer")
  },

  async with_tools() {
    // Whether it calls, and whether the call succeeds, is up to the model.
    const before = pieces()
    await cn("--readonly", "Say hello.")
    check(pieces() > before, "no answer")
  },

  async reads() {
    writeFileSync(`${work}/notes.txt`, "The bees' house is blue.\n")
    await cn("--readonly", `Call the tool Read for ${work}/notes.txt. What colour has the bees' house?`)
    const sessions = `${process.env.HOME}/.continue/sessions`
    const files = readdirSync(sessions).filter((name) => name !== "sessions.json").map((name) => readFileSync(`${sessions}/${name}`, "utf8"))
    const calls = files.flatMap((file) => JSON.parse(file).history).flatMap((item) => item.toolCallStates ?? [])
    const read = calls.find((call) => call.toolCall.function.name === "Read" && call.status === "done")
    check(read, `no result of Read: ${JSON.stringify(calls).slice(0, 300)}`)
  },
}, {}, ["reads"])

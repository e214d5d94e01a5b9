// opencode, through the AI SDK's provider for compatible servers, which it carries.
// needs: opencode-ai@1.18.33
import { mkdirSync, writeFileSync } from "node:fs"
import { check, command, KEY, MODEL, run, V1 } from "./cases.mjs"

const work = `${process.env.HOME}/work`
mkdirSync(work)
// Its own prompts and tools have more tokens than the context of the model that ships.
const agent = { prompt: "Be short.", tools: { "*": false, read: true }, steps: 2 }
writeFileSync(`${work}/opencode.json`, JSON.stringify({
  autoupdate: false, share: "disabled", permission: "deny", agent: { build: agent, title: { disable: true } },
  provider: {
    alara: {
      npm: "@ai-sdk/openai-compatible", name: "alara", options: { baseURL: V1, apiKey: KEY },
      models: { [MODEL]: { name: "model", limit: { context: 4096, output: 200 } } },
    },
  },
}))

await run({
  async turn() {
    const opencode = new URL("node_modules/.bin/opencode", import.meta.url).pathname
    const output = await command(opencode, ["run", "-m", `alara/${MODEL}`, "--format", "json", "--print-logs", "Say hello."], {
      cwd: work, env: { ...process.env, PWD: work, OPENCODE_DISABLE_MODELS_FETCH: "1" },
    })
    const events = output.split("\n").filter((line) => line.startsWith("{")).map((line) => JSON.parse(line))
    const failure = events.find((event) => event.type === "error")
    check(!failure, JSON.stringify(failure?.error))
    const end = events.findLast((event) => event.type === "step_finish")
    check(end?.part.tokens.input > 0 && end.part.tokens.output > 0, `no step_finish: ${output.slice(-300)}`)
  },
})

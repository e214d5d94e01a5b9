// Codex CLI, which speaks Responses only.
// needs: @openai/codex@0.171.0
import { mkdirSync, writeFileSync } from "node:fs"
import { check, command, KEY, MODEL, run, V1 } from "./cases.mjs"

const home = `${process.env.HOME}/codex`
mkdirSync(home)
mkdirSync(`${process.env.HOME}/work`)
// Its own instructions have more tokens than the context of the model that ships.
writeFileSync(`${home}/instructions.md`, "Be short.")
writeFileSync(`${home}/config.toml`, `
model = "${MODEL}"
model_provider = "alara"
model_context_window = 16000
model_instructions_file = "${home}/instructions.md"
web_search = "disabled"
check_for_update_on_startup = false

[model_providers.alara]
name = "alara"
base_url = "${V1}"
wire_api = "responses"
env_key = "ALARA_KEY"
request_max_retries = 0
stream_max_retries = 0

[analytics]
enabled = false

[features]
multi_agent = false
goals = false
plugins = false
skill_search = false
apps = false

[skills.bundled]
enabled = false
`)

async function codex(...args) {
  let output
  try {
    output = await command(new URL("node_modules/.bin/codex", import.meta.url).pathname, [
      "exec", "--skip-git-repo-check", "-s", "read-only", "-C", `${process.env.HOME}/work`, "--json", ...args,
    ], { env: { ...process.env, CODEX_HOME: home, ALARA_KEY: KEY } })
  } catch (error) {
    // It sets no limit, and takes an answer that fills the context for a failure, and so the next question: that is up to the model.
    if (/Incomplete response returned|ran out of room in the model's context/.test(error.message)) return
    throw error
  }
  const events = output.split("\n").filter((line) => line.startsWith("{")).map((line) => JSON.parse(line))
  const end = events.find((event) => event.type === "turn.completed")
  check(end?.usage.input_tokens > 0 && end.usage.output_tokens > 0, `no turn.completed: ${output.slice(-300)}`)
}

await run({
  async turn() {
    await codex("Say hello.")
  },

  async resumes() {
    await codex("resume", "--last", "Say it again.")
  },
})

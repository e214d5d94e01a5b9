// What the Node clients share: cases, the server's address, and the tool's schema that cases use.
import { spawn } from "node:child_process"
import { appendFileSync, writeFileSync } from "node:fs"

export const SERVER = process.env.SERVER
export const V1 = SERVER + "/v1"
export const MODEL = process.env.MODEL
// Whether the model can be expected to choose a tool.
export const REAL = Boolean(process.env.REAL)
export const KEY = "none"

// Bounded, so that even a model that speaks nonsense ends soon.
export const PLACE = {
  type: "object",
  properties: { city: { type: "string", enum: ["Paris", "Rome"] }, days: { type: "integer", enum: [1, 2, 3] } },
  required: ["city", "days"],
  additionalProperties: false,
}
export const QUESTION = "What is the weather in Paris for two days?"

export function check(holds, what) {
  if (!holds) throw new Error(what)
}

// Checks that `place` (an object or JSON) is valid for PLACE.
export function valid(place) {
  if (typeof place === "string") place = JSON.parse(place)
  const { city, days, ...more } = place ?? {}
  const bounded = ["Paris", "Rome"].includes(city) && [1, 2, 3].includes(days) && !Object.keys(more).length
  check(bounded, `not valid: ${JSON.stringify(place)}`)
}

// Runs a command-line client. Returns what it printed; a failure has its last lines, unless it `mayFail`.
export function command(program, args, { seconds = 120, mayFail = false, ...options } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], timeout: seconds * 1000, ...options })
    let text = ""
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (text += data))
    child.on("error", reject)
    child.on("close", (code) => {
      console.log(text)
      code === 0 || mayFail ? resolve(text) : reject(new Error(`exit code ${code}: ${text.trim().slice(-180)}`))
    })
  })
}

// Runs all cases, a function each, and tells the driver of each as soon as it is known.
// `faults` has for a case [text of the error, why]: a failure with that text is the client's.
// `real` names the cases that take a real model.
export async function run(cases, faults = {}, real = []) {
  writeFileSync(process.env.RESULTS, JSON.stringify({ cases: Object.keys(cases) }) + "\n")
  for (const [name, test] of Object.entries(cases)) {
    console.log(`== ${name}`)
    let state = "ok", why = ""
    try {
      if (real.includes(name) && !REAL) [state, why] = ["skipped", "takes a real model"]
      else await test()
    } catch (error) {
      console.error(error)
      state = "FAILED"
      why = `${error.name}: ${error.message}`.replace(/\s+/g, " ").slice(0, 400)
      const fault = faults[name]
      if (fault && why.includes(fault[0])) [state, why] = ["fault", fault[1]]
    }
    appendFileSync(process.env.RESULTS, JSON.stringify({ case: name, state, why }) + "\n")
  }
  process.exit(0)
}

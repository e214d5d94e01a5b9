// The Vercel AI SDK: its OpenAI provider, which speaks Responses by default, and the one for compatible servers.
// needs: ai@7.0.173 @ai-sdk/openai@4.0.118 @ai-sdk/openai-compatible@3.0.92 zod@4.6.7
import { createOpenAI } from "@ai-sdk/openai"
import { createOpenAICompatible } from "@ai-sdk/openai-compatible"
import { embed, generateText, jsonSchema, Output, streamText, tool } from "ai"
import { check, KEY, MODEL, PLACE, QUESTION, run, V1, valid } from "./cases.mjs"

const openai = createOpenAI({ baseURL: V1, apiKey: KEY })
const compatible = createOpenAICompatible({
  name: "alara", baseURL: V1, apiKey: KEY, includeUsage: true, supportsStructuredOutputs: true,
})
const tools = { get_weather: tool({ description: "Gives the weather of a city.", inputSchema: jsonSchema(PLACE) }) }
const common = { prompt: QUESTION, maxRetries: 0 }
const ends = ["stop", "length"]

function cases(prefix, model, embedding) {
  const all = {
    async text() {
      const answer = await generateText({ ...common, model, maxOutputTokens: 16 })
      check(ends.includes(answer.finishReason), `finishReason ${answer.finishReason}`)
      check(answer.usage.inputTokens > 0 && answer.usage.outputTokens > 0, `usage ${JSON.stringify(answer.usage)}`)
    },

    async stream() {
      let failure
      const answer = streamText({ ...common, model, maxOutputTokens: 16, onError: ({ error }) => (failure = error) })
      let text = ""
      for await (const delta of answer.textStream) text += delta
      if (failure) throw failure
      check(text === (await answer.text) && ends.includes(await answer.finishReason), "text or finishReason")
      check((await answer.usage).outputTokens > 0, "usage")
    },

    async tools() {
      const toolChoice = { type: "tool", toolName: "get_weather" }
      const answer = await generateText({ ...common, model, tools, toolChoice, maxOutputTokens: 200 })
      check(answer.toolCalls.length === 1 && answer.finishReason === "tool-calls", `${answer.toolCalls.length} calls`)
      valid(answer.toolCalls[0].input)
    },

    async tools_stream() {
      let failure
      const answer = streamText({
        ...common, model, tools, toolChoice: "required", maxOutputTokens: 200, onError: ({ error }) => (failure = error),
      })
      await answer.consumeStream()
      if (failure) throw failure
      const calls = await answer.toolCalls
      check(calls.length >= 1, "no call")
      valid(calls[0].input)
    },

    // The call, its result, and a second step.
    async tools_steps() {
      const acting = { get_weather: tool({ ...tools.get_weather, execute: async () => "sunny" }) }
      let steps = 0
      const answer = await generateText({
        ...common, model, tools: acting, maxOutputTokens: 100, stopWhen: ({ steps: { length } }) => length >= 2,
        prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" }), onStepFinish: () => void steps++,
      })
      check(steps === 2 && answer.steps[1].toolCalls.length === 0, `${steps} steps`)
    },

    async object() {
      const answer = await generateText({ ...common, model, output: Output.object({ schema: jsonSchema(PLACE) }), maxOutputTokens: 200 })
      valid(answer.output)
    },
  }
  if (embedding)
    all.embed = async () => check((await embed({ model: embedding, value: "The house", maxRetries: 0 })).embedding.length > 1, "no numbers")
  return Object.fromEntries(Object.entries(all).map(([name, test]) => [`${prefix}_${name}`, test]))
}

await run({
  ...cases("responses", openai(MODEL), openai.embedding(MODEL)),
  ...cases("chat", openai.chat(MODEL)),
  ...cases("compatible", compatible(MODEL), compatible.embeddingModel(MODEL)),
})

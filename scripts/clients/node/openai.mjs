// needs: openai@7.59.0
import OpenAI from "openai"
import { check, KEY, MODEL, PLACE, QUESTION, run, V1, valid } from "./cases.mjs"

const client = new OpenAI({ baseURL: V1, apiKey: KEY, maxRetries: 0, timeout: 120_000 })
const messages = [{ role: "user", content: QUESTION }]
const weather = { name: "get_weather", description: "Gives the weather of a city.", parameters: PLACE, strict: true }
const tools = [{ type: "function", function: weather }]

await run({
  async models() {
    const found = []
    for await (const one of client.models.list()) found.push(one.id)
    check(found.includes(MODEL), `not among ${found}`)
    check((await client.models.retrieve(MODEL)).id === MODEL, "models.retrieve")
  },

  async chat() {
    const answer = await client.chat.completions.create({ model: MODEL, messages, max_tokens: 16 })
    check(["stop", "length"].includes(answer.choices[0].finish_reason), "finish_reason")
    check(answer.usage.prompt_tokens > 0 && answer.usage.completion_tokens > 0, "usage")
  },

  async chat_stream() {
    const stream = client.chat.completions.stream({ model: MODEL, messages, max_tokens: 16, stream_options: { include_usage: true } })
    let text = ""
    stream.on("content", (delta) => (text += delta))
    const answer = await stream.finalChatCompletion()
    check(text === (answer.choices[0].message.content ?? ""), "the deltas aren't the text")
    check(answer.usage.completion_tokens > 0, "usage")
  },

  async chat_tools() {
    const called = []
    const runner = client.chat.completions.runTools(
      {
        model: MODEL, messages, max_tokens: 200, tool_choice: { type: "function", function: { name: "get_weather" } },
        tools: [{ type: "function", function: { ...weather, parse: JSON.parse, function: (place) => (called.push(place), "sunny") } }],
      },
      { maxChatCompletions: 1 },
    )
    await runner.done()
    check(called.length === 1, `${called.length} calls`)
    valid(called[0])
  },

  async chat_tools_stream() {
    const stream = client.chat.completions.stream({ model: MODEL, messages, max_tokens: 200, tools, tool_choice: "required" })
    const answer = await stream.finalChatCompletion()
    valid(answer.choices[0].message.tool_calls[0].function.arguments)
  },

  async chat_json_schema() {
    const response_format = { type: "json_schema", json_schema: { name: "place", schema: PLACE, strict: true } }
    const answer = await client.chat.completions.parse({ model: MODEL, messages, max_tokens: 200, response_format })
    valid(answer.choices[0].message.content)
  },

  async responses() {
    const answer = await client.responses.create({ model: MODEL, input: QUESTION, max_output_tokens: 16 })
    check(["completed", "incomplete"].includes(answer.status), `status ${answer.status}`)
    check(typeof answer.output_text === "string" && answer.usage.output_tokens > 0, "text or usage")
  },

  async responses_stream() {
    const stream = client.responses.stream({ model: MODEL, input: QUESTION, max_output_tokens: 16 })
    let text = ""
    stream.on("response.output_text.delta", (event) => (text += event.delta))
    const answer = await stream.finalResponse()
    check(text === answer.output_text, "the deltas aren't the text")
  },

  async responses_tools_stream() {
    const stream = client.responses.stream({
      model: MODEL, input: QUESTION, max_output_tokens: 200, tools: [{ type: "function", ...weather }], tool_choice: "required",
    })
    const answer = await stream.finalResponse()
    valid(answer.output.find((item) => item.type === "function_call").arguments)
  },

  async completions() {
    const answer = await client.completions.create({ model: MODEL, prompt: "The house", max_tokens: 8 })
    check(["stop", "length"].includes(answer.choices[0].finish_reason), "finish_reason")
  },

  async embeddings() {
    const answer = await client.embeddings.create({ model: MODEL, input: ["The house", "A tree"] })
    check(answer.data.length === 2 && answer.data[0].embedding.length > 1, "embeddings")
  },
})

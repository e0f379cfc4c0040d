// The official npm client against a live server; run by test_openai_node.py, which says where.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI, {
  APIUserAbortError,
  AuthenticationError,
  BadRequestError,
  InternalServerError,
  NotFoundError,
} from "openai";

const { RADIANCE_URL: url, RADIANCE_KEY: apiKey, RADIANCE_MODEL: model } = process.env;
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
const messages = [{ role: "user", content: "hi" }];
const city = {
  type: "object",
  properties: { city: { type: "string", enum: ["Paris", "Rome", "Oslo"] } },
  required: ["city"],
  additionalProperties: false,
};
const weather = [{ role: "user", content: "What is the weather in Paris?" }];

test("chat: a stream has the text and the counts of a whole answer", async () => {
  const asked = { model, messages, temperature: 0, max_tokens: 60 };
  const whole = await client.chat.completions.create(asked);
  const stream = client.chat.completions.stream({
    ...asked,
    stream_options: { include_usage: true },
  });
  let text = "";
  stream.on("content", (delta) => (text += delta));
  const built = await stream.finalChatCompletion();
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(built.choices[0].message.content, text);
  assert.equal(built.choices[0].finish_reason, whole.choices[0].finish_reason);
  assert.equal(built.usage.total_tokens, whole.usage.total_tokens);
});

test("chat: a tool that must be called is called with arguments by its schema", async () => {
  const tools = [{ type: "function", function: { name: "get_weather", parameters: city } }];
  const asked = {
    model,
    messages: weather,
    tools,
    temperature: 0,
    max_tokens: 100,
    parallel_tool_calls: false,
  };
  const got = await client.chat.completions
    .stream({ ...asked, tool_choice: "required" })
    .finalChatCompletion();
  const [call] = got.choices[0].message.tool_calls;
  assert.equal(got.choices[0].finish_reason, "tool_calls");
  assert.equal(call.function.name, "get_weather");
  assert.ok(city.properties.city.enum.includes(JSON.parse(call.function.arguments).city));
});

test("chat: a schema is enforced and parsed", async () => {
  const schema = {
    type: "object",
    properties: { yes: { type: "boolean" } },
    required: ["yes"],
    additionalProperties: false,
  };
  const got = await client.chat.completions.parse({
    model,
    messages,
    temperature: 0,
    max_tokens: 50,
    response_format: { type: "json_schema", json_schema: { name: "a", schema, strict: true } },
  });
  assert.equal(typeof JSON.parse(got.choices[0].message.content).yes, "boolean");
});

test("responses: a stream ends with the response", async () => {
  const asked = { model, input: "hi", temperature: 0, max_output_tokens: 60 };
  const whole = await client.responses.create(asked);
  assert.equal(whole.status, "completed");
  const stream = client.responses.stream(asked);
  let text = "";
  stream.on("response.output_text.delta", (event) => (text += event.delta));
  const built = await stream.finalResponse();
  assert.equal(text, whole.output_text);
  assert.equal(built.output_text, whole.output_text);
});

test("responses: a call is an item", async () => {
  const tools = [{ type: "function", name: "get_weather", parameters: city, strict: true }];
  const got = await client.responses
    .stream({
      model,
      input: weather,
      tools,
      tool_choice: "required",
      parallel_tool_calls: false,
      max_output_tokens: 100,
    })
    .finalResponse();
  const [call] = got.output;
  assert.equal(call.type, "function_call");
  assert.ok(city.properties.city.enum.includes(JSON.parse(call.arguments).city));
});

test("models and completions answer", async () => {
  const page = await client.models.list();
  assert.equal(page.data[0].id, model);
  const got = await client.completions.create({ model, prompt: "one, two,", max_tokens: 3 });
  assert.equal(got.usage.completion_tokens, 3);
});

test("errors have the class of their status, and the four keys", async () => {
  const asked = { model, messages, max_tokens: 1 };
  const chat = (extra, options) => client.chat.completions.create({ ...asked, ...extra }, options);
  await assert.rejects(chat({ temperature: 3 }), (err) => {
    assert.ok(err instanceof BadRequestError);
    assert.equal(err.param, "temperature");
    return true;
  });
  await assert.rejects(chat({ model: "none" }), (err) => {
    assert.ok(err instanceof NotFoundError);
    assert.equal(err.code, "model_not_found");
    return true;
  });
  await assert.rejects(
    client.withOptions({ apiKey: "wrong" }).chat.completions.create(asked),
    AuthenticationError,
  );
  await assert.rejects(client.embeddings.create({ model, input: "x" }), (err) => {
    assert.ok(err instanceof InternalServerError);
    assert.equal(err.status, 501);
    assert.equal(err.code, "embeddings_not_supported");
    return true;
  });
});

test("null fields are absent, and an aborted stream ends", async () => {
  const nulls = { stop: null, tools: null, n: null, seed: null, response_format: null };
  await client.chat.completions.create({ model, messages, max_tokens: 2, ...nulls });
  const stream = await client.chat.completions.create({
    model,
    messages,
    max_tokens: 6000,
    stream: true,
    ignore_eos: true,
  });
  let seen = 0;
  try {
    for await (const _ of stream) {
      seen += 1;
      if (seen === 3) stream.controller.abort();
    }
  } catch (err) {
    assert.ok(err instanceof APIUserAbortError);
  }
  assert.ok(seen >= 3 && seen < 6000);
});

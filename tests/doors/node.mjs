// The official client for Node: models, one answer, a stream, a second turn, a closed stream and errors.
import OpenAI from "openai";
import { check, expect, finish, settings } from "./checks.mjs";

const client = new OpenAI({ baseURL: settings.baseURL, apiKey: settings.token, maxRetries: 0, timeout: 60_000 });
const model = settings.model;
const messages = [{ role: "user", content: "Good evening. Who are you?" }];

await check("node: the list of models has the model", async () => {
  const ids = [];
  for await (const entry of client.models.list()) ids.push(entry.id);
  expect(ids.includes(model), `${model} is not among ${ids.join(", ")}`);
});

await check("node: a model is found by its id", async () => {
  const entry = await client.models.retrieve(model);
  expect(entry.id === model && entry.object === "model", JSON.stringify(entry));
});

await check("node: an answer in one piece", async () => {
  const answer = await client.chat.completions.create({ model, messages });
  const choice = answer.choices[0];
  expect(choice.message.role === "assistant" && choice.message.content.trim() !== "", JSON.stringify(answer));
  expect(choice.finish_reason === "stop" || choice.finish_reason === "length", choice.finish_reason);
  expect(answer.usage.total_tokens === answer.usage.prompt_tokens + answer.usage.completion_tokens, "usage does not add up");
  messages.push(choice.message, { role: "user", content: "And what is your trade?" });
});

await check("node: a streamed second turn", async () => {
  const stream = await client.chat.completions.create({
    model,
    messages,
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = "";
  const reasons = [];
  let usage = null;
  for await (const chunk of stream) {
    expect(chunk.object === "chat.completion.chunk", chunk.object);
    for (const choice of chunk.choices) {
      text += choice.delta.content ?? "";
      if (choice.finish_reason) reasons.push(choice.finish_reason);
    }
    usage = chunk.usage ?? usage;
  }
  expect(text.trim() !== "", "no text");
  expect(reasons.length === 1, `finish reasons: ${reasons.join(", ")}`);
  expect(usage !== null && usage.completion_tokens > 0, "no usage at the end");
});

await check("node: the helper that collects a stream", async () => {
  const runner = client.chat.completions.stream({ model, messages });
  const text = await runner.finalContent();
  expect(text.trim() !== "", "no text");
});

await check("node: a closed stream leaves the server able to answer", async () => {
  const stream = await client.chat.completions.create({
    model,
    messages: [...messages, { role: "assistant", content: "I sell herbs." }, { role: "user", content: "Tell me of the winter." }],
    stream: true,
  });
  for await (const chunk of stream) {
    if (chunk.choices[0]?.delta.content) break;
  }
  stream.controller.abort();
  const answer = await client.chat.completions.create({ model, messages: [{ role: "user", content: "Are you still there?" }] });
  expect(answer.choices[0].message.content.trim() !== "", "no text");
});

await check("node: an unknown model is an error 404 with a message", async () => {
  try {
    await client.chat.completions.create({ model: "no-such-npc", messages });
  } catch (error) {
    expect(error instanceof OpenAI.NotFoundError, `${error.status} ${error.message}`);
    expect(typeof error.error?.message === "string" && "code" in error.error && "param" in error.error, JSON.stringify(error.error));
    return;
  }
  throw new Error("the request was accepted");
});

await check("node: a wrong token is an error 401", async () => {
  const stranger = new OpenAI({ baseURL: settings.baseURL, apiKey: "not-a-token", maxRetries: 0 });
  try {
    await stranger.models.list();
  } catch (error) {
    expect(error instanceof OpenAI.AuthenticationError, `${error.status} ${error.message}`);
    return;
  }
  throw new Error("the request was accepted");
});

finish();

// The AI SDK with its provider for OpenAI-compatible servers: one text, one streamed talk, usage, an error.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
import { check, expect, finish, settings } from "./checks.mjs";

const provider = createOpenAICompatible({
  name: "colloquy",
  baseURL: settings.baseURL,
  apiKey: settings.token,
  includeUsage: true,
});
const model = provider(settings.model);
const messages = [{ role: "user", content: "Good evening. Who are you?" }];

await check("ai-sdk: one text", async () => {
  const answer = await generateText({ model, messages, maxRetries: 0 });
  expect(answer.text.trim() !== "", "no text");
  expect(answer.finishReason === "stop" || answer.finishReason === "length", answer.finishReason);
  messages.push({ role: "assistant", content: answer.text }, { role: "user", content: "And what is your trade?" });
});

await check("ai-sdk: a streamed second turn", async () => {
  let failure = null;
  const stream = streamText({ model, messages, maxRetries: 0, onError: ({ error }) => (failure = error) });
  let text = "";
  for await (const delta of stream.textStream) text += delta;
  if (failure) throw failure;
  expect(text.trim() !== "", "no text");
  const usage = await stream.usage;
  expect(usage.outputTokens > 0, `usage ${JSON.stringify(usage)}`);
});

await check("ai-sdk: an unknown model is refused with the server's message", async () => {
  try {
    await generateText({ model: provider("no-such-npc"), messages, maxRetries: 0 });
  } catch (error) {
    expect(error.statusCode === 404, `${error.statusCode} ${error.message}`);
    expect(error.data?.error?.message === error.message, "the body is no error object");
    return;
  }
  throw new Error("the request was accepted");
});

finish();

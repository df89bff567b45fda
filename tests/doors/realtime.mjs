// The official client for Node on the Realtime API: a talk, a cancelled and a truncated reply, and an error.
import net from "node:net";
import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";
import { check, expect, finish, settings } from "./checks.mjs";

const client = new OpenAI({ baseURL: settings.baseURL, apiKey: settings.token, maxRetries: 0 });
// The client speaks TLS only, and the server under test speaks plain TCP.
const options = { createConnection: ({ host, port }) => net.connect(port, host) };
const rt = new OpenAIRealtimeWS({ model: settings.model, options }, client);

// Events that nobody has waited for yet, and the one who waits.
const events = [];
let waiting = null;
rt.on("event", (event) => {
  events.push(event);
  waiting?.();
});
rt.on("error", () => {});

async function next(kind) {
  const late = AbortSignal.timeout(30_000);
  for (;;) {
    const at = events.findIndex((event) => event.type === kind || event.type === "error");
    if (at >= 0) {
      const [event] = events.splice(0, at + 1).slice(-1);
      if (event.type !== kind) throw new Error(JSON.stringify(event.error));
      return event;
    }
    await new Promise((resolve, reject) => {
      waiting = resolve;
      late.addEventListener("abort", () => reject(new Error(`no ${kind}`)), { once: true });
    });
  }
}

const nextError = () => next("error").then((event) => event.error);

function say(text) {
  const content = [{ type: "input_text", text }];
  rt.send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
  rt.send({ type: "response.create" });
}

let item = null;

await check("node realtime: the session", async () => {
  const { session } = await next("session.created");
  expect(session.model === settings.model && session.type === "realtime", JSON.stringify(session));
  rt.send({
    type: "session.update",
    session: { type: "realtime", output_modalities: ["text"], instructions: "It is a rainy evening." },
  });
  const updated = await next("session.updated");
  expect(updated.session.instructions === "It is a rainy evening.", JSON.stringify(updated));
});

await check("node realtime: a streamed reply", async () => {
  say("Good evening. Who are you?");
  let text = "";
  const collect = (event) => (text += event.delta);
  rt.on("response.output_text.delta", collect);
  const { response } = await next("response.done");
  rt.off("response.output_text.delta", collect);
  item = response.output[0];
  expect(response.status === "completed" && item.content[0].text === text && text !== "", JSON.stringify(response));
});

await check("node realtime: a truncated reply", async () => {
  const whole = item.content[0].text;
  rt.send({ type: "conversation.item.truncate", item_id: item.id, content_index: 0, audio_end_ms: 400 });
  const truncated = await next("conversation.item.truncated");
  expect(truncated.item_id === item.id && truncated.audio_end_ms === 400, JSON.stringify(truncated));
  rt.send({ type: "conversation.item.retrieve", item_id: item.id });
  const { item: cut } = await next("conversation.item.retrieved");
  const text = cut.content[0].text;
  expect(text.length < whole.length && whole.startsWith(text) && text !== "", text);
});

await check("node realtime: a cancelled reply", async () => {
  say("Tell me of the winter.");
  await next("response.created");
  rt.send({ type: "response.cancel" });
  const { response } = await next("response.done");
  if (response.status === "completed") {
    // The reply had ended before.
    expect((await nextError()).code === "response_cancel_not_active", "another error");
  } else {
    expect(response.status === "cancelled", JSON.stringify(response));
  }
});

await check("node realtime: audio is refused, and the talk goes on", async () => {
  rt.send({ type: "input_audio_buffer.append", audio: "AAAA" });
  expect((await nextError()).code === "not_supported", "another error");
  say("Are you still there?");
  const { response } = await next("response.done");
  expect(response.status === "completed", JSON.stringify(response));
});

rt.close();
finish();

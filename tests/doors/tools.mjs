// Tools over several steps, with the official Node client and the AI SDK: the client runs the calls, the server stores
// one turn for each line. The model's endpoint calls each tool once after a line, with "Let me look." before the calls.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, jsonSchema, streamText, tool } from "ai";
import OpenAI from "openai";
import { check, expect, finish, settings } from "./checks.mjs";

const WORDS = "Let me look.";
const parameters = {
  type: "object",
  properties: { place: { type: "string" } },
  required: ["place"],
  additionalProperties: false,
};
const client = new OpenAI({ baseURL: settings.baseURL, apiKey: settings.token, maxRetries: 0, timeout: 60_000 });
const provider = createOpenAICompatible({
  name: "colloquy",
  baseURL: settings.baseURL,
  apiKey: settings.token,
  includeUsage: true,
});

// The turns of the newest session of a player, as "line | reply".
async function turnsOf(player) {
  const read = async (path) => {
    const response = await fetch(`${settings.baseURL}${path}`, { headers: { authorization: `Bearer ${settings.token}` } });
    expect(response.ok, `${path}: ${response.status}`);
    return response.json();
  };
  const sessions = (await read(`/sessions?player_id=${player}`)).items;
  expect(sessions.length === 1, `${sessions.length} sessions of ${player}`);
  const turns = (await read(`/sessions/${sessions[0].id}/turns`)).items;
  return turns.map((turn) => `${turn.player_text} | ${turn.reply_text}`);
}

function expectTurns(found, expected) {
  expect(JSON.stringify(found) === JSON.stringify(expected), `turns ${JSON.stringify(found)}`);
}

// A tool that counts its calls.
function counted() {
  const calls = [];
  const look = (input) => {
    calls.push(input);
    return "It is raining.";
  };
  return { calls, look };
}

for (const stream of [false, true]) {
  const name = stream ? "streamed" : "whole";

  await check(`node: the client runs two tools (${name})`, async () => {
    const player = `node-${name}`;
    const { calls, look } = counted();
    const functions = ["look_up", "look_down"].map((tool) => ({
      type: "function",
      function: { name: tool, description: "Looks at the sky.", parameters, parse: JSON.parse, function: look },
    }));
    const messages = [{ role: "user", content: "Is it raining?" }];
    const first = client.chat.completions.runTools({ model: settings.model, user: player, messages, tools: functions, stream });
    const text = await first.finalContent();
    expect(calls.length === 2 && calls.every((call) => call.place === "text"), JSON.stringify(calls));
    expect(text && !text.includes(WORDS), text);
    const reply = `${WORDS}\n\n${text}`;
    expectTurns(await turnsOf(player), [`Is it raining? | ${reply}`]);
    const usage = await first.totalUsage();
    expect(stream || usage.total_tokens > 0, JSON.stringify(usage));

    const next = [...first.messages, { role: "user", content: "And now?" }];
    const second = client.chat.completions.runTools({ model: settings.model, user: player, messages: next, tools: functions, stream });
    await second.finalContent();
    expect(calls.length === 4, `${calls.length} calls`);
    expectTurns(await turnsOf(player), [`Is it raining? | ${reply}`, `And now? | ${reply}`]);
  });

  await check(`ai-sdk: the SDK runs a tool (${name})`, async () => {
    const player = `ai-sdk-${name}`;
    const { calls, look } = counted();
    const tools = { look: tool({ description: "Looks at the sky.", inputSchema: jsonSchema(parameters), execute: look }) };
    const messages = [{ role: "user", content: "Is it raining?" }];
    const ask = async () => {
      const before = calls.length;
      const options = {
        model: provider(settings.model),
        messages,
        tools,
        maxRetries: 0,
        stopWhen: isStepCount(3),
        providerOptions: { colloquy: { user: player } },
      };
      let failure = null;
      const answer = stream ? streamText({ ...options, onError: ({ error }) => (failure = error) }) : await generateText(options);
      const steps = await answer.steps;
      if (failure) throw failure;
      expect(steps.length === 2, `${steps.length} steps`);
      expect(steps[0].finishReason === "tool-calls" && steps[0].text === WORDS, JSON.stringify(steps[0].content));
      expect(calls.length === before + 2 && calls.at(-1).place === "text", JSON.stringify(calls));
      expect(steps[0].usage.totalTokens > 0, JSON.stringify(steps[0].usage));
      expect(steps[1].finishReason === "stop", steps[1].finishReason);
      messages.push(...(await answer.responseMessages));
      return steps[1].text;
    };
    const reply = `${WORDS}\n\n${await ask()}`;
    expectTurns(await turnsOf(player), [`Is it raining? | ${reply}`]);
    messages.push({ role: "user", content: "And now?" });
    await ask();
    expectTurns(await turnsOf(player), [`Is it raining? | ${reply}`, `And now? | ${reply}`]);
  });
}

finish();

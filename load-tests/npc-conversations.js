// NPCs talk with each other, and players interrupt at random.
//
//   BASE=http://127.0.0.1:8080 SECRET=… CONVERSATIONS=200 DURATION=60 k6 run npc-conversations.js
//
// Measures from :interrupt to its acknowledgement, when the pause and the rewind are durable. A third cuts the running
// line, a third rewinds a few lines, and a third rewinds to a random line. One conversation in ten collects 50 lines
// and then rewinds them at once.
import http from "k6/http";
import { sleep } from "k6";
import { Counter, Trend, Rate } from "k6/metrics";
import exec from "k6/execution";
import { headers } from "./token.js";

const base = __ENV.BASE;
const conversations = Number(__ENV.CONVERSATIONS || 200);
const seconds = Number(__ENV.DURATION || 60);
// Seconds between two interrupts of a conversation, varied from half to one and a half.
const every = Number(__ENV.EVERY || 6);

const world = "vale";

const acknowledged = new Trend("interrupt_ack_ms", true);
const ofRunning = new Trend("interrupt_ack_running_ms", true);
const ofSaid = new Trend("interrupt_ack_rewound_ms", true);
const ofMany = new Trend("interrupt_ack_deep_ms", true);
const depth = new Trend("lines_taken_back");
const taught = new Trend("facts_taken_back");
const deep = 50;
// A line takes about 2.8 seconds.
const longEnough = seconds >= 2.8 * deep + 20;
const interrupts = new Counter("interrupts");
const failed = new Rate("calls_failed");
// Conversations with interrupts until their end time.
const done = new Counter("conversations_done");

export const options = {
  scenarios: {
    talk: { executor: "per-vu-iterations", vus: conversations, iterations: 1, maxDuration: `${seconds + 60}s` },
  },
  thresholds: {
    interrupt_ack_ms: ["p(99)<=50"],
    calls_failed: ["rate==0"],
    // A run without any interrupts is a failure.
    interrupts: ["count>0"],
    ...(longEnough && conversations >= 10 ? { interrupt_ack_deep_ms: ["p(90)<=50"], lines_taken_back: [`max>=${deep}`] } : {}),
    conversations_done: [`count>=${conversations}`],
  },
  summaryTrendStats: ["avg", "med", "p(90)", "p(95)", "p(99)", "max"],
};

export default function () {
  const backend = headers("backend"), player = headers("player", `load-${exec.vu.idInTest}`);
  const call = (path, body, who, expected) => {
    const answer = http.post(`${base}/v1/npc-conversations${path}`, JSON.stringify(body), who);
    failed.add(!expected.includes(answer.status));
    if (!expected.includes(answer.status)) console.error(`${path} ${answer.status} ${answer.body}`);
    return answer;
  };
  // Every conversation has its own NPCs.
  const names = [`Anna ${exec.vu.idInTest}`, `Ben ${exec.vu.idInTest}`];
  const npcs = names.map((name) => name.toLowerCase().replace(" ", "-"));
  const begin = () => {
    const made = call("", { world_id: world, npc_ids: npcs, topic: "the harvest", max_turns: 100, watchers: [`load-${exec.vu.idInTest}`] }, backend, [201]);
    return made.json("id");
  };

  const admin = headers("admin");
  npcs.forEach((npc, at) => {
    const put = http.put(`${base}/v1/worlds/${world}/npcs/${npc}`, JSON.stringify({ name: names[at], persona: { description: "A farmer." } }), admin);
    if (put.status >= 300) throw new Error(`${put.status} ${put.body}`);
  });
  const end = Date.now() + seconds * 1000;
  // Spreads the starts and interrupts of the conversations.
  sleep(Math.random() * 3);
  let id = begin(), patient = longEnough && exec.vu.idInTest % 10 === 0;
  while (Date.now() < end) {
    sleep(every * (0.5 + Math.random()));
    // After this time, fewer conversations run.
    if (Date.now() >= end) break;
    const view = http.get(`${base}/v1/npc-conversations/${id}`, backend);
    failed.add(view.status !== 200);
    if (view.status !== 200) { console.error(`${view.status} ${view.body}`); continue; }
    if (view.json("status") === "closed") { id = begin(); continue; }
    const head = view.json("head_turn"), kind = Math.random() * 3;
    let turn;
    if (patient && head <= deep) continue;
    if (patient) turn = head - deep;
    else if (head > 1 && kind < 1) turn = Math.max(1, head - 1 - Math.floor(Math.random() * 5));
    else if (head > 1 && kind < 2) turn = 1 + Math.floor(Math.random() * head);
    // The conversation may have ended meanwhile.
    const cut = call(`/${id}:interrupt`, turn ? { turn } : {}, player, [200, 409]);
    if (cut.status === 409) { id = begin(); continue; }
    const took = cut.timings.duration;
    // An interrupt between two lines may find no line to cut.
    if (cut.json("interrupted")) {
      acknowledged.add(took);
      interrupts.add(1);
      const gone = cut.json("rewound.removed_turns");
      if (gone && gone.length > 0) {
        (patient ? ofMany : ofSaid).add(took);
        depth.add(gone.length);
        taught.add(cut.json("rewound.rolled_back.facts"));
        patient = false;
      } else {
        ofRunning.add(took);
      }
    }
    sleep(0.2);
    call(`/${id}:resume`, {}, backend, [200, 409]);
  }
  http.del(`${base}/v1/npc-conversations/${id}`, null, backend);
  done.add(1);
}

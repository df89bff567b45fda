// Sessions over WebSocket with a constant total rate, or as fast as replies come.
//
//   BASE=http://127.0.0.1:8080 SECRET=… RATE=200 SESSIONS=100 DURATION=30 k6 run ws-dialogue.js
//
// Measures from player.say to reply.done at the client. With a mock model at 0 ms, the server takes nearly all of the
// time.
import { WebSocket } from "k6/experimental/websockets";
import { Counter, Trend, Rate } from "k6/metrics";
import exec from "k6/execution";
import { token } from "./token.js";

const base = __ENV.BASE;
const sessions = Number(__ENV.SESSIONS || 100);
// Turns per second over all sessions; 0: as fast as replies come.
const rate = Number(__ENV.RATE || 0);
const seconds = Number(__ENV.DURATION || 30);
const npc = __ENV.NPC || "mira";
// Milliseconds after which a reply counts as missing.
const patience = 30000;
// Every line teaches a new fact, so that memories grow: for the soak.
const growing = __ENV.GROWING === "1";
// BARS=runner: the runner judges the rate.
const judged = __ENV.BARS !== "runner";

const reply = new Trend("turn_reply_ms", true);
const firstDelta = new Trend("turn_first_delta_ms", true);
const committed = new Trend("turn_committed_ms", true);
const turns = new Counter("turns");
const failed = new Rate("turns_failed");
// Sessions that spoke until their end time.
const ended = new Counter("sessions_ended");

export const options = {
  scenarios: {
    dialogue: { executor: "per-vu-iterations", vus: sessions, iterations: 1, maxDuration: `${seconds + 60}s`, gracefulStop: "10s" },
  },
  thresholds: {
    turns_failed: ["rate==0"],
    // A run without turns is a failure.
    turns: [rate > 0 && judged ? `count>=${Math.floor(0.95 * rate * seconds)}` : "count>0"],
    sessions_ended: [`count>=${sessions}`],
  },
  summaryTrendStats: ["avg", "med", "p(90)", "p(95)", "p(99)", "max"],
};

const lines = [
  "Good morning, how is the inn today?", "I walked here from the city.", "I like grapes.",
  "Do you have a room for the night?", "What is there to see around here?", "I saw a fox by the bridge.",
];

export default function () {
  const player = `load-${exec.vu.idInTest}`;
  const url = `${base.replace(/^http/, "ws")}/v1/ws`;
  const socket = new WebSocket(url, null, { headers: { Authorization: `Bearer ${token("player", player)}` } });
  const gap = rate > 0 ? (1000 * sessions) / rate : 0;
  let session, sentAt, due, seen, number = 0, stopAt, timer, waiting, done = false;

  const finish = () => { clearTimeout(timer); clearTimeout(waiting); done = true; socket.close(1000); };
  const lost = () => {
    failed.add(true);
    console.error(`no reply to line ${number} of ${player}`);
    finish();
  };
  const say = () => {
    if (Date.now() >= stopAt) { ended.add(1); finish(); return; }
    seen = false;
    clearTimeout(waiting);
    waiting = setTimeout(lost, patience);
    number += 1;
    sentAt = now();
    socket.send(JSON.stringify({
      type: "player.say", session_id: session, key: `${player}-${number}`, text: growing ? `I like the ${number}th song that ${player} sang.` : lines[(number + exec.vu.idInTest) % lines.length],
    }));
  };
  // Session starts are spread over one gap, with different first lines, so that neither turns nor facts come in waves.
  const schedule = () => {
    clearTimeout(waiting);
    if (gap === 0) { say(); return; }
    due += gap;
    timer = setTimeout(say, Math.max(0, due - Date.now()));
  };

  socket.addEventListener("open", () => {
    socket.send(JSON.stringify({ type: "session.create", world_id: "vale", npc_id: npc, player_id: player }));
  });
  socket.addEventListener("message", (message) => {
    const event = JSON.parse(message.data);
    switch (event.type) {
      case "session.created":
        session = event.session_id;
        due = Date.now() + Math.random() * gap;
        stopAt = Date.now() + seconds * 1000;
        timer = setTimeout(say, Math.max(0, due - Date.now()));
        break;
      case "reply.delta":
        if (!seen) { firstDelta.add(now() - sentAt); seen = true; }
        break;
      case "reply.done":
        reply.add(now() - sentAt);
        failed.add(event.status !== "completed");
        if (event.status === "failed") schedule();
        break;
      case "turn.committed":
        committed.add(now() - sentAt);
        turns.add(1);
        schedule();
        break;
      case "error":
        failed.add(true);
        console.error(JSON.stringify(event));
        schedule();
        break;
    }
  });
  // k6 also reports an error for a socket that it closed itself.
  socket.addEventListener("error", (event) => {
    if (done) return;
    failed.add(true);
    console.error(event.error);
  });
  // The server closes none of these sockets.
  socket.addEventListener("close", () => {
    if (done) return;
    failed.add(true);
    console.error(`the socket of ${player} was closed early`);
    clearTimeout(timer);
    clearTimeout(waiting);
    done = true;
  });
}

// k6 has no finer clock than whole milliseconds.
function now() {
  return Date.now();
}

// Players interrupt the NPC's replies and rewind to earlier turns, over WebSocket.
//
//   BASE=http://127.0.0.1:8080 SECRET=… SESSIONS=100 DURATION=60 k6 run barge-in.js
//
// For a cut reply, measures from player.interrupt to turn.committed: the heard part is then durable, and the rest is
// gone. For rewinds, measures to dialogue.rewound. Every other reply is cut within its first half. One line in three is
// followed by a rewind to a random turn. One session in ten collects 50 turns and then rewinds them at once. An
// interrupt too late for the running reply cuts the finished reply.
import { WebSocket } from "k6/experimental/websockets";
import { Counter, Trend, Rate } from "k6/metrics";
import exec from "k6/execution";
import { token } from "./token.js";

const base = __ENV.BASE;
const sessions = Number(__ENV.SESSIONS || 100);
const seconds = Number(__ENV.DURATION || 60);
const npc = __ENV.NPC || "mira";
// Milliseconds before the next line, varied from half to one and a half.
const pause = Number(__ENV.PAUSE_MS || 1000);
// Milliseconds after which an answer counts as missing.
const patience = 30000;
const deep = 50;
// A line takes its pause and about 300 ms.
const longEnough = (seconds * 1000) / (pause + 400) >= deep + 10;

const ofRunning = new Trend("barge_in_ack_ms", true);
const ofSaid = new Trend("rewind_ack_ms", true);
const ofMany = new Trend("rewind_ack_deep_ms", true);
const depth = new Trend("turns_taken_back");
const turns = new Counter("turns");
const cuts = new Counter("replies_cut");
const inTime = new Rate("cut_in_time");
const rewinds = new Counter("rewinds");
const failed = new Rate("asks_failed");
// Sessions that spoke until their end time.
const ended = new Counter("sessions_ended");

export const options = {
  scenarios: {
    dialogue: { executor: "per-vu-iterations", vus: sessions, iterations: 1, maxDuration: `${seconds + 60}s`, gracefulStop: "10s" },
  },
  thresholds: {
    barge_in_ack_ms: ["p(99)<=50"],
    rewind_ack_ms: ["p(99)<=50"],
    asks_failed: ["rate==0"],
    // A run without any cuts is a failure.
    replies_cut: ["count>0"],
    cut_in_time: ["rate>0.9"],
    rewinds: ["count>0"],
    ...(longEnough && sessions >= 10 ? { rewind_ack_deep_ms: ["p(90)<=50"], turns_taken_back: [`max>=${deep}`] } : {}),
    sessions_ended: [`count>=${sessions}`],
  },
  summaryTrendStats: ["avg", "med", "p(90)", "p(95)", "p(99)", "max"],
};

export default function () {
  const player = `load-${exec.vu.idInTest}`;
  const url = `${base.replace(/^http/, "ws")}/v1/ws`;
  const socket = new WebSocket(url, null, { headers: { Authorization: `Bearer ${token("player", player)}` } });
  const ask = (message) => socket.send(JSON.stringify({ session_id: session, ...message }));
  let session, stopAt, timer, waiting, done = false;
  let number = 0, head = 0, patient = longEnough && exec.vu.idInTest % 10 === 0;
  // The current line's deltas so far, the number of deltas before the cut, and the times of the cut and of a rewind.
  let deltas, cutAfter, cutAt, backAt, late = false;

  const finish = () => { clearTimeout(timer); clearTimeout(waiting); done = true; socket.close(1000); };
  const wrong = (why) => { if (done) return; failed.add(true); console.error(`${player}: ${why}`); finish(); };
  const expect = (what) => { clearTimeout(waiting); waiting = setTimeout(() => wrong(`no ${what} of turn ${head + 1}`), patience); };
  const soon = (next) => { clearTimeout(waiting); timer = setTimeout(next, pause * (0.5 + Math.random())); };

  const say = () => {
    if (Date.now() >= stopAt) { ended.add(1); finish(); return; }
    [deltas, cutAt] = [0, undefined];
    cutAfter = Math.random() < 0.5 ? 1 + Math.floor(Math.random() * 4) : Infinity;
    number += 1;
    expect("reply");
    ask({ type: "player.say", key: `${player}-${number}`, text: `I like the ${number}th song that ${player} sang.` });
  };
  const go = () => {
    const much = patient && head > deep;
    if (!much && (patient || head < 2 || Math.random() > 1 / 3)) { say(); return; }
    const turn = much ? head - deep : 1 + Math.floor(Math.random() * (head - 1));
    expect("move");
    backAt = Date.now();
    ask({ type: "player.interrupt", turn });
  };

  socket.addEventListener("open", () => {
    socket.send(JSON.stringify({ type: "session.create", world_id: "vale", npc_id: npc, player_id: player }));
  });
  socket.addEventListener("message", (message) => {
    if (done) return;
    const event = JSON.parse(message.data);
    switch (event.type) {
      case "session.created":
        session = event.session_id;
        stopAt = Date.now() + seconds * 1000;
        soon(say);
        break;
      case "reply.delta":
        deltas += 1;
        if (deltas >= cutAfter && cutAt === undefined) {
          cutAt = Date.now();
          ask({ type: "player.interrupt", turn: event.turn, heard_chars: event.offset + [...event.text].length });
        }
        break;
      case "reply.done":
        if (event.status === "failed") wrong("the reply failed");
        else if (cutAt !== undefined && event.status === "completed") late = true;
        break;
      case "turn.committed":
        head = event.turn;
        turns.add(1);
        failed.add(false);
        if (cutAt !== undefined) inTime.add(!late);
        if (cutAt !== undefined && !late) { ofRunning.add(Date.now() - cutAt); cuts.add(1); }
        if (!late) soon(go);
        break;
      case "dialogue.rewound": {
        head = event.turn;
        failed.add(false);
        if (late) { late = false; soon(go); break; }
        rewinds.add(1);
        const gone = event.removed_turns.length;
        depth.add(gone);
        (gone >= deep ? ofMany : ofSaid).add(Date.now() - backAt);
        if (gone >= deep) patient = false;
        soon(say);
        break;
      }
      case "error":
        wrong(JSON.stringify(event));
        break;
    }
  });
  // k6 also reports an error for a socket that it closed itself. The server closes none of these sockets.
  socket.addEventListener("error", (event) => wrong(event.error));
  socket.addEventListener("close", () => wrong("the socket was closed early"));
}

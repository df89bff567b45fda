// Turns over REST at a constant rate. A turn is one request with the reply as a JSON document.
//
//   BASE=http://127.0.0.1:8080 SECRET=… RATE=50 SESSIONS=50 DURATION=30 k6 run rest-turns.js
//
// TENANT, WORLD and NPC name the partner. FLOOD=500 adds a second tenant (OTHER, with its own world, created here),
// with 500 requests a second every other ten seconds. `calm` is the first tenant without the flood, and `flooded` the
// same tenant beside the flood. The periods alternate, because the speed of most machines changes within half a minute.
import http from "k6/http";
import { sleep } from "k6";
import { Counter, Rate, Trend } from "k6/metrics";
import exec from "k6/execution";
import { headers } from "./token.js";

const base = __ENV.BASE;
const rate = Number(__ENV.RATE || 50);
const sessions = Number(__ENV.SESSIONS || 50);
const seconds = Number(__ENV.DURATION || 30);
const flood = Number(__ENV.FLOOD || 0);
const tenant = __ENV.TENANT || "demo";
const other = __ENV.OTHER || "flooder";

const took = new Trend("rest_turn_ms", true);
const calm = new Trend("calm_turn_ms", true);
const flooded = new Trend("flooded_turn_ms", true);
const turns = new Counter("turns");
const failed = new Rate("turns_failed");
const refused = new Counter("flood_refused");
const served = new Counter("flood_served");
const broken = new Counter("flood_failed");
// Sessions of the flooding tenant, so that its turns run in parallel.
const theirSessions = 20;

// The duration of a flood, and of a pause, in seconds.
const floods = flood > 0 ? Math.max(1, Math.round(seconds / 20)) : 0;
const spell = seconds / 2 / floods;

export const options = {
  scenarios: {
    turns: {
      executor: "constant-arrival-rate", rate, timeUnit: "1s", duration: `${seconds}s`,
      preAllocatedVUs: sessions, maxVUs: 4 * sessions, exec: "turn",
    },
    ...Object.fromEntries(Array.from({ length: floods }, (_, nth) => [`flood_${nth + 1}`, {
      executor: "constant-arrival-rate", rate: flood, timeUnit: "1s", duration: `${spell}s`, startTime: `${(2 * nth + 1) * spell}s`,
      preAllocatedVUs: 40, maxVUs: 200, exec: "pour", gracefulStop: "1s",
    }])),
  },
  thresholds: {
    turns_failed: ["rate==0"],
    // A run without turns is a failure. Requests that k6 did not send count as unanswered.
    turns: [`count>=${Math.floor(0.98 * rate * seconds)}`],
    "dropped_iterations{scenario:turns}": [`count<=${Math.ceil(0.01 * rate * seconds)}`],
    ...(flood > 0 ? { flood_served: ["count>0"], flood_refused: ["count>0"], flood_failed: ["count==0"] } : { rest_turn_ms: ["p(99)<=100"] }),
  },
  summaryTrendStats: ["avg", "med", "p(90)", "p(95)", "p(99)", "max"],
};

function session(of, world, npc, player, who) {
  const body = JSON.stringify({ world_id: world, npc_id: npc, player_id: player });
  let made = http.post(`${base}/v1/sessions`, body, who);
  // The quota also counts these requests.
  for (let i = 0; i < 50 && made.status === 429; i += 1) { sleep(0.2); made = http.post(`${base}/v1/sessions`, body, who); }
  if (made.status !== 201) throw new Error(`no session: ${made.status} ${made.body}`);
  return made.json("session_id") || made.json("id");
}

export function setup() {
  const who = headers("backend", null, tenant);
  const open = [];
  for (let i = 0; i < sessions; i += 1) {
    open.push(session(tenant, __ENV.WORLD || "vale", __ENV.NPC || "mira", `rest-${i}`, who));
  }
  let theirs;
  if (flood > 0) {
    const them = headers("admin", null, other);
    const world = http.put(`${base}/v1/worlds/sea`, JSON.stringify({ name: "The Sea", language: "en" }), them);
    const npc = http.put(`${base}/v1/worlds/sea/npcs/bo`, JSON.stringify({ name: "Bo", persona: { description: "A sailor." } }), them);
    if (world.status >= 300 || npc.status >= 300) throw new Error(`${world.status} ${world.body} ${npc.status} ${npc.body}`);
    const they = headers("backend", null, other);
    theirs = [];
    for (let i = 0; i < theirSessions; i += 1) theirs.push(session(other, "sea", "bo", `noise-${i}`, they));
  }
  return { open, theirs, began: Date.now() };
}

let mine, theirs;

export function turn(data) {
  mine = mine || headers("backend", null, tenant);
  const n = exec.scenario.iterationInTest;
  const body = JSON.stringify({ text: `I like the ${n % 97}th song of the evening.`, key: `t${n}` });
  const answer = http.post(`${base}/v1/sessions/${data.open[n % data.open.length]}/turns`, body, mine);
  const ok = answer.status === 200 || answer.status === 201;
  failed.add(!ok);
  if (!ok) { console.error(`${answer.status} ${answer.body}`); return; }
  turns.add(1);
  const ms = answer.timings.duration;
  took.add(ms);
  if (flood > 0) {
    const at = (Date.now() - data.began) / 1000;
    // Skips the first moments of every period.
    if (at % spell > spell / 5) (Math.floor(at / spell) % 2 === 0 ? calm : flooded).add(ms);
  }
}

export function pour(data) {
  theirs = theirs || headers("backend", null, other);
  const session = data.theirs[exec.scenario.iterationInTest % data.theirs.length];
  const answer = http.post(`${base}/v1/sessions/${session}/turns`, JSON.stringify({ text: "Louder!", on_busy: "reject" }), theirs);
  if (answer.status === 429 || answer.status === 503 || answer.status === 409) refused.add(1);
  else if (answer.status >= 200 && answer.status < 300) served.add(1);
  else { broken.add(1); console.error(`${answer.status} ${answer.body}`); }
}

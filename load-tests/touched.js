// Creates dialogues and says one line in each, with limited concurrency, as fast as answers come. The runner then waits
// until the dialogues have been idle long enough, and counts their remains in the server.
//
//   BASE=http://127.0.0.1:8080 SECRET=… DIALOGUES=20000 k6 run touched.js
//
// TENANT, WORLD and NPC name the partner.
import http from "k6/http";
import { Counter, Rate } from "k6/metrics";
import exec from "k6/execution";
import { headers } from "./token.js";

const base = __ENV.BASE;
const dialogues = Number(__ENV.DIALOGUES || 20000);

const touched = new Counter("dialogues_touched");
const failed = new Rate("calls_failed");

export const options = {
  scenarios: {
    touch: {
      executor: "shared-iterations", vus: Number(__ENV.VUS || 16), iterations: dialogues,
      maxDuration: `${__ENV.DURATION || 600}s`,
    },
  },
  thresholds: { calls_failed: ["rate==0"], dialogues_touched: [`count>=${Math.floor(0.999 * dialogues)}`] },
};

function post(path, body) {
  const answer = http.post(`${base}${path}`, JSON.stringify(body), mine);
  const ok = answer.status >= 200 && answer.status < 300;
  failed.add(!ok);
  if (!ok) console.error(`${answer.status} ${answer.body}`);
  return ok ? answer : null;
}

let mine;

export default function () {
  mine = mine || headers("backend", null, __ENV.TENANT);
  const n = exec.scenario.iterationInTest;
  const session = { world_id: __ENV.WORLD || "vale", npc_id: __ENV.NPC || "mira", player_id: `guest-${n}` };
  const made = post("/v1/sessions", session);
  if (made && post(`/v1/sessions/${made.json("id")}/turns`, { text: "Good evening." })) touched.add(1);
}

// Opens some hundred sockets a second, and keeps all of them idle for a while after the last. The runner reads the
// server's memory meanwhile.
//
//   BASE=http://127.0.0.1:8080 SECRET=… SOCKETS=10000 HOLD=30 k6 run idle-sockets.js
import { WebSocket } from "k6/experimental/websockets";
import { Counter, Rate } from "k6/metrics";
import exec from "k6/execution";
import { token } from "./token.js";

const sockets = Number(__ENV.SOCKETS || 10000);
const perUser = 100;
const hold = Number(__ENV.HOLD || 30);
// All at once would overflow the kernel's queue of new connections. Some would retry seconds later, after the first are
// already closed.
const ramp = sockets / Number(__ENV.PER_SECOND || 500);
const opened = new Counter("sockets_opened");
const failed = new Rate("sockets_failed");

export const options = {
  scenarios: {
    idle: { executor: "per-vu-iterations", vus: Math.ceil(sockets / perUser), iterations: 1, maxDuration: `${Math.ceil(ramp) + hold + 120}s` },
  },
  thresholds: { sockets_failed: ["rate==0"], sockets_opened: [`count>=${sockets}`] },
};

export function setup() {
  return { end: Date.now() + (ramp + hold) * 1000 };
}

export default function (data) {
  const headers = { Authorization: `Bearer ${token("player", `idle-${exec.vu.idInTest}`)}` };
  const users = Math.ceil(sockets / perUser);
  const open = () => {
    const socket = new WebSocket(`${__ENV.BASE.replace(/^http/, "ws")}/v1/ws`, null, { headers });
    let closing = false;
    socket.addEventListener("open", () => {
      opened.add(1);
      failed.add(false);
      setTimeout(() => { closing = true; socket.close(); }, Math.max(0, data.end - Date.now()));
    });
    socket.addEventListener("error", () => { if (!closing) failed.add(true); });
    // A socket closed by the server is not idle.
    socket.addEventListener("close", () => { if (!closing) failed.add(true); });
  };
  // The users open sockets in turn.
  const step = (ramp * 1000) / perUser, first = (step * (exec.vu.idInTest - 1)) / users;
  for (let i = 0; i < perUser; i += 1) setTimeout(open, first + i * step);
}

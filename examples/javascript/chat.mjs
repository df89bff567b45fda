// Talks with Mira of the demo over a WebSocket: a streamed reply, a reply that the player cuts, and a
// connection that drops and resumes. Node 22 or later, or a browser. No package. See ../README.md.

if (typeof WebSocket === "undefined") {
  throw new Error("this needs Node 22 or later (or Node 20 with --experimental-websocket), or a browser");
}

/** A player's connection, and what the player sees of the dialogue. */
class Client {
  reply = ""; // the NPC's words so far
  isDone = false; // whether they are all of the reply
  lastSeq = 0; // of the last durable event: what a resume begins after

  async connect(url, token) {
    const events = (this.events = []);
    // A browser cannot set headers, so the token is a subprotocol.
    const socket = (this.socket = new WebSocket(url, ["colloquy.v1", `bearer.${token}`]));
    const arrive = (event) => {
      events.push(event);
      this.wake?.();
    };
    socket.onmessage = (message) => arrive(JSON.parse(message.data));
    socket.onclose = ({ code }) => arrive({ type: "error", error: { code, message: "the connection is closed" } });
    await new Promise((opened, failed) => {
      socket.onopen = opened;
      socket.onerror = () => failed(new Error(`cannot connect to ${url}: is the server running?`));
    });
  }

  send(message) {
    this.socket.send(JSON.stringify(message));
  }

  /** The next event. A game does this once a frame, for each event that has arrived. */
  async next() {
    while (this.events.length === 0) await new Promise((wake) => (this.wake = wake));
    const event = this.events.shift();
    if (event.type === "error") throw new Error(`${event.error.code}: ${event.error.message}`);
    if (event.status === "failed") throw new Error("the reply failed; its line may be sent again with its key");
    this.lastSeq = event.seq ?? this.lastSeq; // deltas have no number
    if (event.type === "turn.started") [this.reply, this.isDone] = ["", false];
    // After a resume one delta from offset 0 has the whole reply so far.
    if (event.type === "reply.delta") this.reply = (event.offset === 0 ? "" : this.reply) + event.text;
    if (event.type === "reply.done") [this.reply, this.isDone] = [event.text, true];
    return event;
  }

  /** The next event in which `field` is `value`. */
  async until(field, value) {
    for (;;) {
      const event = await this.next();
      if (event[field] === value) return event;
    }
  }
}

/** The whole conversation. `write` shows a text. */
export async function chat(url, token, write) {
  const client = new Client();
  await client.connect(url, token);
  client.send({ type: "session.create", world_id: "vale", npc_id: "mira" });
  const { session_id, resume_token } = await client.until("type", "session.created");
  write(`session ${session_id}\n`);
  const say = (text) => {
    write(`you> ${text}\n`);
    client.send({ type: "player.say", session_id, key: crypto.randomUUID(), text });
  };

  // 1. A reply as it streams. With turn.committed it is safe on the server.
  say("I like grapes.");
  write("mira> ");
  let pieces = 0;
  for (let event = {}; event.type !== "turn.committed"; event = await client.next()) {
    if (event.type !== "reply.delta") continue;
    write(event.text);
    pieces += 1;
  }
  write(` (${pieces} pieces)\n`);

  // 2. The player cuts in. A game with voices counts the characters that were played; here they are those shown.
  say("Tell me about the forest.");
  const { turn } = await client.until("type", "turn.started");
  while (client.reply.length < 8 && !client.isDone) await client.next();
  write(`mira> ${client.reply}...\n`);
  // The server counts Unicode scalar values, as [...text] does. `heard_utf16: client.reply.length` works as well.
  const heard_chars = [...client.reply].length;
  client.send({ type: "player.interrupt", event_id: "cut", session_id, turn, heard_chars });
  const cut = await client.until("re", "cut");
  // A reply that was complete by then is cut afterwards, and the client shortens its copy.
  if (cut.type === "dialogue.rewound") client.reply = [...client.reply].slice(0, cut.heard_chars).join("");
  write(`cut: turn ${turn} is now "${client.reply}" (${cut.type})\n`);

  // 3. The connection drops in mid-reply. The reply goes on, and a resume brings the events that were missed.
  say("What fruit do I like?");
  await client.until("type", "turn.started");
  client.socket.close();
  await client.connect(url, token);
  client.send({ type: "session.resume", session_id, resume_token, last_seq: client.lastSeq });
  const { replayed } = await client.until("type", "session.resumed");
  while (!client.isDone) await client.next();
  write(`resumed: ${replayed} missed events\nmira> ${client.reply}\n`);

  client.send({ type: "session.close", session_id });
  const { reason } = await client.until("type", "session.closed");
  write(`closed: ${reason}\n`);
  client.socket.close();
}

// In a browser: import { chat } from "./chat.mjs", and call it with a function that adds a text to the page.
if (globalThis.process?.argv) {
  const url = process.env.COLLOQUY_URL ?? "ws://127.0.0.1:8080/v1/ws";
  await chat(url, process.env.COLLOQUY_TOKEN ?? "", (text) => process.stdout.write(text));
}

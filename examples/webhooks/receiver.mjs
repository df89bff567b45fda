// Receives webhooks, and verifies them with the library of Standard Webhooks: `npm install` in this folder.
import { createServer } from "node:http";
import { Webhook, WebhookVerificationError } from "standardwebhooks";

const webhook = new Webhook(process.env.COLLOQUY_WEBHOOK_SECRET); // whsec_…
const handled = new Set();

const server = createServer(async (request, response) => {
  let body = "";
  request.setEncoding("utf8");
  for await (const piece of request) body += piece;
  let event;
  try {
    event = webhook.verify(body, request.headers);
  } catch (error) {
    if (!(error instanceof WebhookVerificationError)) throw error;
    console.log(`refused: ${error.message}`);
    return response.writeHead(401).end();
  }
  response.writeHead(204).end();
  const message = request.headers["webhook-id"];
  // A message may come more than once.
  if (handled.has(message)) return;
  handled.add(message);
  console.log(`${event.type} ${JSON.stringify(event.data)}`);
});
server.listen(Number(process.argv[2] ?? 3000), "127.0.0.1", () => console.log(`listens on ${server.address().port}`));

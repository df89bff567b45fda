"""Receives webhooks, and verifies them with the library of Standard Webhooks: `pip install standardwebhooks`."""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

webhook = Webhook(os.environ["COLLOQUY_WEBHOOK_SECRET"])  # whsec_…
handled = set()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            event = webhook.verify(body, dict(self.headers.items()))
        except WebhookVerificationError as error:
            return self.answer(401, f"refused: {error}")
        message = self.headers["webhook-id"]
        # A message may come more than once.
        is_new = message not in handled
        handled.add(message)
        self.answer(204, f"{event['type']} {json.dumps(event['data'])}" if is_new else None)

    def answer(self, status, line):
        self.send_response(status)
        self.end_headers()
        if line:
            print(line, flush=True)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    server = ThreadingHTTPServer(("127.0.0.1", port), Receiver)
    print(f"listens on {server.server_port}", flush=True)
    server.serve_forever()

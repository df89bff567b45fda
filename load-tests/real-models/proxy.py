"""A recording proxy before a model server: proxy.py PORT UPSTREAM_PORT LOG.jsonl
One line per call: task, times, tokens, answer, and whether the caller hung up."""
import http.client, http.server, json, select, socket, sys, threading, time

PORT, UP, LOG = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
lock = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.forward("GET", None)

    def do_POST(self):
        self.forward("POST", self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def forward(self, method, body):
        began = time.time()
        row = {"task": self.headers.get("x-colloquy-task", ""), "at": began}
        request = json.loads(body) if body else {}
        row.update(stream=request.get("stream", False), schema=(request.get("response_format") or {}).get("type"),
                   max_tokens=request.get("max_tokens"), prompt_chars=sum(len(m["content"]) for m in request.get("messages", [])),
                   messages=[m["content"] for m in request.get("messages", [])][-1:])
        up = http.client.HTTPConnection("127.0.0.1", UP, timeout=300)
        done = threading.Event()
        gone = threading.Event()

        def watch():  # a caller that hangs up must stop the generation, also before its first byte
            while not done.is_set():
                if select.select([self.connection], [], [], 0.02)[0]:
                    try:
                        if self.connection.recv(1, socket.MSG_PEEK) == b"":
                            gone.set()
                            if up.sock:
                                up.sock.shutdown(socket.SHUT_RDWR)
                            return
                    except OSError:
                        return
                    time.sleep(0.02)

        threading.Thread(target=watch, daemon=True).start()
        received = b""
        try:
            up.request(method, self.path, body, {"Content-Type": "application/json"} if body else {})
            answer = up.getresponse()
            row["status"] = answer.status
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.getheader("Content-Type", ""))
            self.send_header("Connection", "close")
            self.end_headers()
            while piece := answer.read1(65536):
                row.setdefault("first_byte_s", round(time.time() - began, 3))
                received += piece
                self.wfile.write(piece)
                self.wfile.flush()
        except (OSError, http.client.HTTPException) as error:
            row["broken"] = type(error).__name__
        done.set()
        up.close()
        self.close_connection = True
        row["hung_up"] = gone.is_set()
        row["seconds"] = round(time.time() - began, 3)
        if row["stream"]:
            text = []
            for line in received.decode("utf-8", "replace").splitlines():
                if line.startswith("data: {"):
                    try:
                        data = json.loads(line[6:])
                    except ValueError:
                        continue
                    for choice in data.get("choices", []):
                        text.append((choice.get("delta") or {}).get("content") or "")
                        row["finish"] = choice.get("finish_reason") or row.get("finish")
                    row["usage"] = data.get("usage") or row.get("usage")
            row["answer"] = "".join(text)
            row["chunks"] = len(text)
        else:
            try:
                data = json.loads(received)
                row["usage"] = data.get("usage")
                row["finish"] = data["choices"][0]["finish_reason"] if "choices" in data else None
                row["answer"] = data["choices"][0]["message"]["content"] if "choices" in data else data
                row["timings"] = data.get("timings")
            except ValueError:
                row["answer"] = received.decode("utf-8", "replace")[:2000]
        with lock, open(LOG, "a") as out:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


http.server.ThreadingHTTPServer.daemon_threads = True
http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()

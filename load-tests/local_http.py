"""What the load tests in Python share: free ports, JSON over HTTP, and the wait for a server."""
import json
import socket
import sys
import time
import urllib.error
import urllib.request


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def send(method, url, body=None, token=None):
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def wait_for(url, process):
    for _ in range(200):
        try:
            urllib.request.urlopen(url).close()
            return
        except OSError as error:
            # The mock model has no page at its root.
            if isinstance(error, urllib.error.HTTPError) and error.code == 404:
                return
            if process.poll() is not None:
                break
            time.sleep(0.1)
    sys.exit(f"nothing answers at {url}")

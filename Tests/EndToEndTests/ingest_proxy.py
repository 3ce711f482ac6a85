"""A network on a bad day, between a client and the ingest service.

usage: ingest_proxy.py PORT SEED

Answers on a port of its own, which is the first line of standard output, and passes requests on to PORT.
Three in ten go wrong: not taken, taken and not answered, answered by half, or told 408, 429 or 503. Any GET
answers how many went which way.
"""

import http.client
import http.server
import json
import random
import socketserver
import sys
import threading

TARGET, RANDOM = int(sys.argv[1]), random.Random(int(sys.argv[2]))
faults, lock = {}, threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body, headers=(), cut=None):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:cut])
        if cut is not None:
            self.close_connection = True

    def do_GET(self):
        with lock:
            body = json.dumps(faults).encode()
        self.reply(200, body, [("Content-Type", "application/json")])

    def do_POST(self):
        with lock:
            kind = RANDOM.choices(
                ["passed", "dropped", "unanswered", "cut", "503", "429", "408"],
                [70, 6, 6, 6, 5, 5, 2])[0]
            faults[kind] = faults.get(kind, 0) + 1
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if kind == "dropped":
            self.close_connection = True
            return
        if kind in ("503", "429", "408"):
            wait = [] if kind == "408" else [("Retry-After", RANDOM.choice(["0", "1"]))]
            self.reply(int(kind), b"", wait)
            return
        connection = http.client.HTTPConnection("127.0.0.1", TARGET, timeout=30)
        try:
            headers = {name: value for name, value in self.headers.items()
                       if name.lower() not in ("host", "connection", "content-length")}
            connection.request("POST", self.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if kind == "unanswered":
            self.close_connection = True
            return
        self.reply(answer.status, content, [("Content-Type", "application/json")],
                   len(content) // 2 if kind == "cut" else None)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Clients that are killed end their connections, which is no error here."""


server = Server(("127.0.0.1", 0), Handler)
print("listening", server.server_address[1], flush=True)
server.serve_forever()

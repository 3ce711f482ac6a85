"""An app that sends ingest what is dear to read, and another app's device beside it.

usage: ingest_hostile.py PORT PID ATTACKER_KEY NEIGHBOUR_KEY TYPE SECONDS KIND...

KIND is `refused` (64 connections send 1,000 objects at a time, of which none is valid) or `nested` (32
connections send gzip of lines of nested objects, 4 MiB unpacked). The neighbour sends one object every
50 ms before, during and after each kind, each as long as SECONDS. Memory is what the process PID has of
its own, and `held` what its metrics say that requests hold. Prints one JSON object; times are in ms.
"""

import base64
import gzip
import json
import multiprocessing
import os
import re
import socket
import sys
import threading
import time

PORT, PID, ATTACKER, NEIGHBOUR, TYPE = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5]
SECONDS, KINDS = float(sys.argv[6]), sys.argv[7:]
CONNECTIONS = {"refused": 64, "nested": 32}
TIMEOUT = 60


def request(key, path, body, *headers):
    credential = base64.b64encode((key + ":").encode()).decode()
    lines = ["POST %s HTTP/1.1" % path, "Host: 127.0.0.1", "Authorization: Basic " + credential,
             "Content-Length: %d" % len(body), *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def attack(kind):
    path = "/v1/ingest/" + TYPE
    if kind == "refused":
        body = json.dumps([{"_id": "%024x" % number, "deviceId": number} for number in range(1000)])
        return request(ATTACKER, path, body.encode(), "Content-Type: application/json")
    line = b'{"":' * 400 + b"0" + b"}" * 400 + b"\n"
    body = gzip.compress(line * ((4 << 20) // len(line)), 9)
    return request(ATTACKER, path, body, "Content-Type: application/x-ndjson", "Content-Encoding: gzip")


class Connection:
    def __init__(self):
        self.socket, self.rest = None, b""

    def post(self, data):
        """The status and the body."""
        if self.socket is None:
            self.socket, self.rest = socket.create_connection(("127.0.0.1", PORT), TIMEOUT), b""
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.socket.sendall(data)
            while b"\r\n\r\n" not in self.rest:
                self.read()
            head, self.rest = self.rest.split(b"\r\n\r\n", 1)
            length = int(re.search(rb"(?i)\r\ncontent-length: *(\d+)", head + b"\r\n").group(1))
            while len(self.rest) < length:
                self.read()
            body, self.rest = self.rest[:length], self.rest[length:]
            if b"\nconnection: close" in head.lower():
                self.socket = None
            return int(head.split(b" ", 2)[1]), body
        except (OSError, AttributeError, ValueError, EOFError):
            self.socket = None
            return 0, b""

    def read(self):
        more = self.socket.recv(1 << 18)
        if not more:
            raise EOFError
        self.rest += more


class Attack:
    """In a process of its own, which gives way: it is the service's work that delays others, not this."""

    def __init__(self, kind):
        self.over, self.told = multiprocessing.Event(), multiprocessing.Queue()
        self.process = multiprocessing.Process(target=self.play, args=(kind,), daemon=True)
        self.process.start()

    def play(self, kind):
        os.nice(10)
        data, statuses, lock = attack(kind), {}, threading.Lock()

        def run():
            connection = Connection()
            while not self.over.is_set():
                status, _ = connection.post(data)
                with lock:
                    statuses[status] = statuses.get(status, 0) + 1
                if status in (429, 503):
                    time.sleep(0.01)

        threads = [threading.Thread(target=run, daemon=True) for _ in range(CONNECTIONS[kind])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.told.put(statuses)

    def stop(self):
        self.over.set()
        statuses = self.told.get()
        self.process.join()
        return statuses


class Neighbour:
    """A device of its own, which has one object at a time on its way."""

    def __init__(self):
        self.connection, self.number, self.failed = Connection(), 0, 0

    def play(self, seconds):
        times, start = [], time.monotonic()
        while (due := start + len(times) / 20) < start + seconds:
            time.sleep(max(0, due - time.monotonic()))
            self.number += 1
            sent = time.monotonic()
            body = json.dumps({"_id": "%024x" % self.number, "deviceId": "honest"}).encode()
            status, answer = self.connection.post(request(NEIGHBOUR, "/v1/ingest/" + TYPE, body))
            if status != 200 or not json.loads(answer)["accepted"]:
                self.failed += 1
            times.append((time.monotonic() - sent) * 1000)
            if time.monotonic() > start + seconds + TIMEOUT:
                break
        times.sort()
        return {"count": len(times), "median": round(times[len(times) // 2], 1),
                "p99": round(times[len(times) * 99 // 100], 1)}


class Memory:
    def __init__(self):
        self.memory, self.held, self.isOver = 0, 0, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    @staticmethod
    def now():
        for line in open("/proc/%d/status" % PID):
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
        return 0

    @staticmethod
    def reported():
        connection = Connection()
        try:
            _, page = connection.post(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        finally:
            if connection.socket:
                connection.socket.close()
        found = re.search(rb"(?m)^ingest_held_bytes(?:\{[^}]*\})? ([0-9.e+]+)", page)
        return int(float(found.group(1))) if found else 0

    def run(self):
        while not self.isOver.wait(0.1):
            self.memory = max(self.memory, self.now())
            self.held = max(self.held, self.reported())

    def stop(self):
        self.isOver.set()
        self.thread.join()
        return {"memory": self.memory, "held": self.held}


def main():
    neighbour, result = Neighbour(), {}
    neighbour.play(1)
    for kind in KINDS:
        base, memory = Memory.now(), Memory()
        before = neighbour.play(SECONDS)
        attack = Attack(kind)
        time.sleep(0.5)
        during = neighbour.play(SECONDS)
        statuses = attack.stop()
        after = neighbour.play(SECONDS)
        result[kind] = {"before": before, "during": during, "after": after, "base": base, **memory.stop(),
                        "attacker": {str(status): count for status, count in sorted(statuses.items())}}
    result["failed"] = neighbour.failed
    print(json.dumps(result))


main()

"""Measures the memory of idle WebSockets: opens them, lets each echo one message, and prints JSON.

usage: idle_sockets.py CARILLON_BENCH [COUNT [PATH_OF_AN_ALLOCATOR]]

Each side needs COUNT file descriptors (`ulimit -n`). `resident` is what each socket adds to the
server's resident memory in bytes, after the handshake and after the message.
"""

import json
import os
import socket
import subprocess
import sys

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
REQUEST = (b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
           b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + KEY + b"\r\n"
           b"User-Agent: idle_sockets\r\n\r\n")
BODY = b'{"type":"hello","device":"0123456789abcdef"}'
MESSAGE = bytes([0x81, 0x80 | len(BODY), 0, 0, 0, 0]) + BODY
ECHO = bytes([0x81, len(BODY)]) + BODY


def resident(process):
    with open(f"/proc/{process}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def receive(peer, size, end=b""):
    received = b""
    while len(received) < size and not (end and received.endswith(end)):
        part = peer.recv(65536)
        if not part:
            raise SystemExit(f"ended after {received!r}")
        received += part
    return received


def opened(port):
    peer = socket.create_connection(("127.0.0.1", port))
    peer.sendall(REQUEST)
    head = receive(peer, 1 << 16, b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 101 "):
        raise SystemExit(head)
    return peer


def main():
    program = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    environment = dict(os.environ)
    if len(sys.argv) > 3:
        environment["LD_PRELOAD"] = sys.argv[3]
    server = subprocess.Popen([program, "sockets"], stdout=subprocess.PIPE, env=environment)
    try:
        port = int(server.stdout.readline())
        # What the first connections need is not each one's.
        peers = [opened(port) for _ in range(100)]
        first = resident(server.pid)
        peers += [opened(port) for _ in range(count)]
        open_ = resident(server.pid)
        for peer in peers:
            peer.sendall(MESSAGE)
            assert receive(peer, len(ECHO)) == ECHO
        used = resident(server.pid)
        print(json.dumps({
            "sockets": count,
            "resident": {
                "opened": (open_ - first) // count,
                "after a message": (used - first) // count,
            },
            "total": used,
        }))
    finally:
        server.terminate()
        server.wait()


main()

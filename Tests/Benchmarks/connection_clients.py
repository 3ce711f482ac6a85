"""Devices that hold a connection of their own: many `carillon.push.v1` clients in one process.

usage: connection_clients.py APP KEY COUNT PORT[,PORT…] STATUS [FIRST]

Device N has the installation id `device-<N, 16 digits>`; the first is FIRST (default 1). Each connects
from 127.0.0.2 upward to one of the ports, acknowledges what it receives, and connects again after a
close, to another port, with a delay of up to two seconds. Writes its counts to the file STATUS each half
second, as one JSON object: `open`, `received` (messages), `distinct` (of device and push), `repeats`,
`conflicts` (repeats with another id), `first` and `last`: when messages of the newest push arrived, in
milliseconds since 1970, and `newest`: how many. `lags` counts the times from a push's `at` (in its data,
milliseconds) to its arrival, by tenths of a millisecond, above 10 ms by milliseconds: a list of
them all would take tens of milliseconds to write, in which nothing is read. Ends at SIGTERM.
"""

import base64
import collections
import errno
import gc
import heapq
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import time

REQUEST = (b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
           b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(bytes(16)) +
           b"\r\nSec-WebSocket-Protocol: carillon.push.v1\r\n\r\n")
PER_ADDRESS = 500


def frame(message):
    """A text frame. The mask is zero: it protects proxies, and there is none."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) < 126:
        return struct.pack("!BB", 0x81, 0x80 | len(body)) + bytes(4) + body
    return struct.pack("!BBH", 0x81, 0xFE, len(body)) + bytes(4) + body


class Device:
    __slots__ = ("number", "place", "socket", "received", "is_upgraded", "is_ready", "pushes")

    def __init__(self, number, place):
        self.number, self.place = number, place
        self.socket, self.received = None, b""
        self.is_upgraded = self.is_ready = False
        self.pushes = {}

    @property
    def installation(self):
        return "device-%016d" % self.number


class Clients:
    def __init__(self, app, key, count, ports, first=1):
        self.app, self.key, self.ports = app, key, ports
        self.poll = select.epoll()
        self.by_descriptor = {}
        self.due = [(0.0, number, Device(number, number % len(ports)))
                    for number in range(first, first + count)]
        self.received = self.distinct = self.repeats = self.conflicts = self.ready = 0
        self.lags = collections.Counter()
        self.newest = None
        self.newest_count = self.newest_first = self.newest_last = 0

    def connect(self, device):
        peer = socket.socket()
        peer.setblocking(False)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        place = device.number // PER_ADDRESS
        peer.bind(("127.0.%d.%d" % (place // 250, 2 + place % 250), 0))
        device.socket, device.received = peer, b""
        device.is_upgraded = device.is_ready = False
        if peer.connect_ex(("127.0.0.1", self.ports[device.place])) not in (0, errno.EINPROGRESS):
            return self.closed(device)
        self.by_descriptor[peer.fileno()] = device
        self.poll.register(peer, select.EPOLLOUT)

    def closed(self, device):
        descriptor = device.socket.fileno()
        if self.by_descriptor.pop(descriptor, None):
            self.poll.unregister(descriptor)
        device.socket.close()
        self.ready -= device.is_ready
        device.is_ready = False
        device.place = (device.place + 1) % len(self.ports)
        heapq.heappush(self.due, (time.monotonic() + random.random() * 2, device.number, device))

    def send(self, device, data):
        # A client's messages are few and small: a full buffer means that the node hangs.
        try:
            if device.socket.send(data) != len(data):
                self.closed(device)
        except OSError:
            self.closed(device)

    def take(self, device, now):
        try:
            data = device.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            return self.closed(device)
        data = device.received + data
        if not device.is_upgraded:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                device.received = data
                return
            if not data.startswith(b"HTTP/1.1 101 "):
                return self.closed(device)
            data = data[end + 4:]
            device.is_upgraded = True
            self.send(device, frame({"type": "hello", "app": self.app, "key": self.key,
                                     "installation": device.installation}))
        place, ids = 0, []
        while len(data) - place >= 2:
            length, start = data[place + 1], place + 2
            if length == 126:
                if len(data) < place + 4:
                    break
                length, start = struct.unpack_from("!H", data, place + 2)[0], place + 4
            if len(data) < start + length:
                break
            if data[place] == 0x81:
                self.message(device, json.loads(data[start:start + length]), ids, now)
            elif data[place] == 0x88:
                return self.closed(device)
            place = start + length
        device.received = data[place:]
        if ids and device.socket.fileno() >= 0:
            self.send(device, frame({"type": "ack", "ids": ids}))

    def message(self, device, message, ids, now):
        if message["type"] == "ready":
            device.is_ready = True
            self.ready += 1
        elif message["type"] == "push":
            ids.append(message["id"])
            push = message["pushId"]
            self.received += 1
            if push not in device.pushes:
                self.distinct += 1
                device.pushes[push] = message["id"]
            elif device.pushes[push] == message["id"]:
                self.repeats += 1
            else:
                self.conflicts += 1
            at = message["data"].get("at")
            if at is not None:
                lag = now - at
                self.lags[round(lag, 1 if lag < 10 else None)] += 1
            if push != self.newest:
                self.newest, self.newest_count, self.newest_first = push, 0, now
            self.newest_count += 1
            self.newest_last = now

    def write(self, path):
        # Quickly, as no device is read meanwhile: `json.dump` takes ten times as long.
        with open(path + ".new", "w") as file:
            file.write(json.dumps({
                "open": self.ready, "received": self.received, "distinct": self.distinct,
                "repeats": self.repeats, "conflicts": self.conflicts, "newest": self.newest_count,
                "first": self.newest_first, "last": self.newest_last, "lags": self.lags,
            }))
        os.replace(path + ".new", path)

    def run(self, path):
        is_running = True

        def stop(*_):
            nonlocal is_running
            is_running = False

        signal.signal(signal.SIGTERM, stop)
        written = 0.0
        while is_running:
            for descriptor, events in self.poll.poll(0.02, 4096):
                device = self.by_descriptor.get(descriptor)
                if device is None:
                    continue
                if events & (select.EPOLLERR | select.EPOLLHUP) and not events & select.EPOLLIN:
                    self.closed(device)
                elif events & select.EPOLLOUT:
                    self.poll.modify(descriptor, select.EPOLLIN)
                    self.send(device, REQUEST)
                else:
                    self.take(device, time.time() * 1000)
            now = time.monotonic()
            # In portions, so that those that are connected are read in between.
            for _ in range(200):
                if not self.due or self.due[0][0] > now:
                    break
                self.connect(heapq.heappop(self.due)[2])
            if now - written >= 0.5:
                written = now
                self.write(path)
        self.write(path)


def main():
    if len(sys.argv) not in (6, 7):
        raise SystemExit(__doc__)
    app, key, count, ports, status = sys.argv[1:6]
    clients = Clients(app, key, int(count), [int(port) for port in ports.split(",")],
                      int(sys.argv[6]) if len(sys.argv) == 7 else 1)
    # Nothing here refers to itself in a circle, and a collection would stop all devices for long.
    gc.disable()
    clients.run(status)


main()

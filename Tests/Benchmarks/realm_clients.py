"""Clients of Realm's protocol that load ingest: a model of the official client, with its bytes.

usage: realm_clients.py upload PORT APP SECONDS CONNECTIONS PER_TRANSACTION
       realm_clients.py idle PORT APP COUNT
       realm_clients.py return PORT APP COUNT OTHER

`upload`: each connection is a device with a file of 20,000 objects, 100 in an upload, PER_TRANSACTION in a
transaction, compressed as the official client does; up to four uploads are not acknowledged at a time. When all
of them are, the next file begins. The objects are made before. Prints one JSON object: `objects`, those that
were acknowledged, and `per_second`, without the first fifth of the time.

`idle`: COUNT devices that have signed in and begun a session, and send a ping each 55 s. Prints `open` once all
of them are, and ends at SIGTERM.

`return`: COUNT devices as of `idle`, whose service is then stopped by the caller. Each comes back to the service on
the port OTHER after the pause that it was asked for. Prints `open`, and at the end one JSON object: `longest`, the
longest pause in seconds, `most`, those that came back in the busiest second, and `slowest`, the milliseconds in which
the slowest one had a session again.
"""

import collections
import http.client
import json
import selectors
import socket
import struct
import sys
import threading
import time
import zlib

UPLOADS, OBJECTS, WINDOW, PING = 200, 100, 4, 55
CLASS = "WeatherSensor"
FIELDS = ["deviceId", "temperatureInFahrenheit", "barometricPressureInHg", "windSpeedInMph"]


# Encoding

def integer(value):
    """Groups of 7 bits, the lowest first; the last has 6 bits and the sign."""
    sign, value, out = (0x40, -1 - value, bytearray()) if value < 0 else (0, value, bytearray())
    while value > 63:
        out.append(0x80 | value & 0x7F)
        value >>= 7
    out.append(sign | value)
    return bytes(out)


def interned(index, text):
    return b"\x3f" + integer(index) + integer(len(text)) + text.encode()


def schema():
    """A file's first changeset. The official client interns an empty string there, which it does not use."""
    out = [interned(0, CLASS), interned(1, "_id"), b"\x00\x00\x02\x01\x0a\x00"]
    for index, name, kind in zip((2, 4, 5, 6), FIELDS, (b"\x03", b"\x06", b"\x06", b"\x01")):
        out.append(interned(index, name))
        if index == 2:
            out.append(interned(3, ""))
        out.append(b"\x06\x00" + integer(index) + kind + b"\x00\x00")
    return b"".join(out)


def transaction(numbers):
    """One changeset with these objects, as the official client writes it."""
    out, is_first = [interned(0, CLASS)], True
    for number in numbers:
        key = b"\x00\x0a" + number.to_bytes(12, "big")
        device = b"WX%04dUIT" % (number % 10000)
        values = (b"\x03" + integer(len(device)) + device, b"\x06" + struct.pack("<f", 40 + number % 600 / 10),
                  b"\x06" + struct.pack("<f", 28 + number % 300 / 100), b"\x01" + integer(number % 60))
        out.append(b"\x02" + key)
        for index, (name, value) in enumerate(zip(FIELDS, values), 1):
            if is_first:
                out.append(interned(index, name))
            out.append(b"\x04" + key + integer(index) + b"\x00" + value + b"\x00")
        is_first = False
    return b"".join(out)


class Upload:
    """A message but for its session."""

    def __init__(self, number, per):
        version, parts = 2 + number * (OBJECTS // per), []
        # A file begins with its schema.
        if number == 0:
            parts.append(b"1 0 375546963029 0 %d " % len(schema()) + schema())
        for first in range(number * OBJECTS, (number + 1) * OBJECTS, per):
            changeset = transaction(range(first, first + per))
            parts.append(b"%d 1 %d 0 %d " % (version, 375546963029 + version, len(changeset)) + changeset)
            version += 1
        self.last = version - 1
        plain = b"".join(parts)
        packed = zlib.compress(plain)
        self.head = b"1 %d %d %d 1 1\n" % (len(plain), len(packed), self.last)
        self.body = packed

    def message(self, session):
        return b"upload %d " % session + self.head + self.body


# Connections

def sign_in(connection):
    connection.request("POST", "/api/client/v2.0/app/%s/auth/providers/anon-user/login" % APP,
                       '{"provider":"anon-user"}', {"Content-Type": "application/json"})
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise SystemExit("not signed in: %d %r" % (answer.status, body))
    return json.loads(body)["access_token"]


class Connection:
    def __init__(self, token, port=None):
        self.socket = socket.create_connection(("127.0.0.1", port or PORT), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall((
            "GET /api/client/v2.0/app/%s/realm-sync?baas_at=%s HTTP/1.1\r\nHost: localhost\r\n"
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nUser-Agent: RealmSync/14.12.0 (model)\r\n"
            "Sec-WebSocket-Protocol: com.mongodb.realm-query-sync#14\r\n\r\n" % (APP, token)).encode())
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self.read()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        if not head.startswith(b"HTTP/1.1 101 "):
            raise SystemExit("no WebSocket: %r" % head)

    def read(self):
        data = self.socket.recv(65536)
        if not data:
            raise SystemExit("the service ended a connection")
        self.buffer += data

    def send(self, message):
        # The mask is zero: it protects proxies, and there is none.
        size = len(message)
        if size < 126:
            head = struct.pack("!BB", 0x82, 0x80 | size)
        elif size < 65536:
            head = struct.pack("!BBH", 0x82, 0xFE, size)
        else:
            head = struct.pack("!BBQ", 0x82, 0xFF, size)
        self.socket.sendall(head + bytes(4) + message)

    def receive(self, word):
        """The fields of the next message, which must have this word."""
        while True:
            if len(self.buffer) >= 4:
                size, start = self.buffer[1], 2
                if size == 126:
                    size, start = struct.unpack_from("!H", self.buffer, 2)[0], 4
                if len(self.buffer) >= start + size:
                    break
            self.read()
        message, self.buffer = self.buffer[start:start + size], self.buffer[start + size:]
        head, self.body = message.split(b"\n", 1)
        fields = head.split(b" ")
        if fields[0] != word:
            raise SystemExit("instead of %r came %r" % (word, message[:500]))
        return fields

    def begin(self, session):
        """Begins a session with a new file; its first download is the end of a bootstrap."""
        body = b'{"schemaVersion":0,"sessionReason":0}'
        self.send(b"bind %d %d 0 1 0\n" % (session, len(body)) + body)
        ident, salt = self.receive(b"ident")[2:4]
        self.send(b"ident %d %s %s 0 0 0 0 0 2\n{}" % (session, ident, salt))
        self.receive(b"download")
        self.send(b"mark %d 1\n" % session)
        self.receive(b"mark")

    def file(self, session, uploads, is_over, acknowledged):
        """Uploads a file, or a part of it when the time is over."""
        self.begin(session)
        waiting, rest = [], iter(uploads)
        upload = next(rest)
        while waiting or upload:
            while upload and len(waiting) < WINDOW:
                self.send(upload.message(session))
                waiting.append(upload)
                upload = None if is_over() else next(rest, None)
            fields = self.receive(b"download")
            server, client = int(fields[2]), int(fields[6])
            count = sum(one.last <= client for one in waiting)
            del waiting[:count]
            acknowledged(count * OBJECTS)
            # The client's acknowledgement of the server's version.
            self.send(b"upload %d 0 0 0 %d %d %d\n" % (session, client, server, server))
        self.send(b"unbind %d\n" % session)
        self.receive(b"unbound")


def upload(seconds, count, per):
    uploads = [Upload(number, per) for number in range(UPLOADS)]
    sign_ins = http.client.HTTPConnection("127.0.0.1", PORT)
    connections = [Connection(sign_in(sign_ins)) for _ in range(count)]
    begun = time.monotonic()
    warm = begun + seconds / 5
    lock, failures = threading.Lock(), []
    objects = counted = 0

    def acknowledged(more):
        nonlocal objects, counted
        with lock:
            objects += more
            if warm <= time.monotonic() < begun + seconds:
                counted += more

    def is_over():
        return failures or time.monotonic() >= begun + seconds

    def run(connection):
        session = 0
        try:
            while not is_over():
                session += 1
                connection.file(session, uploads, is_over, acknowledged)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(connection,)) for connection in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    print(json.dumps({"objects": objects, "per_second": counted / (begun + seconds - warm)}))


def idle(count):
    connections = []
    sign_ins = http.client.HTTPConnection("127.0.0.1", PORT)
    for number in range(count):
        connection = Connection(sign_in(sign_ins))
        connection.begin(1)
        # Spread over the interval, as devices are that did not begin together.
        connections.append([time.monotonic() + PING * number / count, connection])
    print("open", flush=True)
    while True:
        for place in connections:
            time.sleep(max(0, place[0] - time.monotonic()))
            place[0] = time.monotonic() + PING
            place[1].send(b"ping %d 0\n" % (time.monotonic() * 1000))
            place[1].receive(b"pong")


def come_back(count, other):
    sign_ins = http.client.HTTPConnection("127.0.0.1", PORT)
    token = sign_in(sign_ins)
    asked, returns = selectors.DefaultSelector(), []
    for _ in range(count):
        connection = Connection(token)
        connection.begin(1)
        asked.register(connection.socket, selectors.EVENT_READ, connection)
    print("open", flush=True)
    while len(returns) < count:
        for key, _ in asked.select():
            asked.unregister(key.fileobj)
            key.data.receive(b"json_error")
            pause = json.loads(key.data.body)["backoffIntervalSec"]
            returns.append((time.monotonic() + pause, pause))
            key.data.socket.close()
    seconds, slowest, kept = collections.Counter(), 0, []
    for due, pause in sorted(returns):
        time.sleep(max(0, due - time.monotonic()))
        kept.append(Connection(token, other))
        kept[-1].begin(1)
        slowest = max(slowest, time.monotonic() - due)
        seconds[pause] += 1
    print(json.dumps({"longest": max(seconds), "most": max(seconds.values()), "slowest": round(slowest * 1000)}))


if len(sys.argv) < 5:
    raise SystemExit(__doc__)
KIND, PORT, APP = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if KIND == "upload":
    upload(float(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6]))
elif KIND == "return":
    come_back(int(sys.argv[4]), int(sys.argv[5]))
else:
    idle(int(sys.argv[4]))

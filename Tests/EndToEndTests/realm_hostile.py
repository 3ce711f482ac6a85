"""Clients of Realm's WebSocket that break its rules.

usage: realm_hostile.py PORT APP

Each case is a connection of its own. Ends with 1 and a reason if a connection that should end does not, if
any end has a close frame, or if an honest client is not served afterwards. Prints the number of cases.
"""

import json
import os
import select
import socket
import struct
import sys
import time
import urllib.request
import zlib

PORT, APP = int(sys.argv[1]), sys.argv[2]
BASE = f"/api/client/v2.0/app/{APP}"


def sign_in():
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{BASE}/auth/providers/anon-user/login",
        data=b'{"provider":"anon-user"}',
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["access_token"]


TOKEN = sign_in()


def frame(opcode, payload, first=0x80, mask=b"\x01\x02\x03\x04"):
    size = len(payload)
    bit = 0x80 if mask else 0
    if size < 126:
        head = struct.pack("!BB", first | opcode, bit | size)
    elif size < 65536:
        head = struct.pack("!BBH", first | opcode, bit | 126, size)
    else:
        head = struct.pack("!BBQ", first | opcode, bit | 127, size)
    if not mask:
        return head + payload
    key = (mask * (size // 4 + 1))[:size]
    number = int.from_bytes(payload, "little") ^ int.from_bytes(key, "little")
    return head + mask + number.to_bytes(size, "little")


class Client:
    def __init__(self):
        self.socket = socket.create_connection(("127.0.0.1", PORT), timeout=8)
        self.socket.sendall(
            (
                f"GET {BASE}/realm-sync?baas_at={TOKEN} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"
                "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                "Sec-WebSocket-Protocol: com.mongodb.realm-query-sync#14\r\n\r\n"
            ).encode()
        )
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self.buffer += self.socket.recv(65536)
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 101"), head
        assert b"Sec-WebSocket-Protocol: com.mongodb.realm-query-sync#14" in head, head

    def raw(self, *parts):
        try:
            for part in parts:
                self.socket.sendall(part)
        except OSError:
            pass

    def say(self, *messages):
        self.raw(*(frame(2, message) for message in messages))

    def next(self):
        """The next frame's opcode and payload; None at the end of TCP."""
        while True:
            if len(self.buffer) >= 2:
                size, start = self.buffer[1] & 0x7F, 2
                if size == 126 and len(self.buffer) >= 4:
                    size, start = struct.unpack("!H", self.buffer[2:4])[0], 4
                if size < 126 or start == 4:
                    if len(self.buffer) >= start + size:
                        whole = self.buffer[: start + size]
                        self.buffer = self.buffer[start + size :]
                        return whole[0] & 0x0F, whole[start:]
            try:
                more = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not more:
                return None
            self.buffer += more

    def end(self, name):
        """Reads to the end of TCP."""
        words = []
        while (got := self.next()) is not None:
            opcode, payload = got
            assert opcode in (2, 10), f"{name}: a frame of opcode {opcode}: {payload!r}"
            words.append(payload.split(b" ", 1)[0])
        self.socket.close()
        return words


BIND = b'bind 1 37 0 1 0\n{"schemaVersion":0,"sessionReason":0}'
IDENT = b"ident 1 5 7 0 0 0 0 0 2\n{}"


def ready():
    client = Client()
    client.say(BIND)
    client.next()
    client.say(IDENT)
    client.next()
    return client


def upload(body, plain=None, packed=False):
    sizes = f"1 {plain} {len(body)}" if packed else f"0 {len(body)} 0"
    return f"upload 1 {sizes} 9 0 0\n".encode() + body


cases = 0


def expect_end(name, client, *messages):
    global cases
    cases += 1
    client.say(*messages)
    return client.end(name)


for message in [
    b"", b"\n", b"bind\n", b"hello 1\n", b"bind 1 37 0 1 0", b"bind 1 99 0 1 0\n{}", b"mark 1 1\n",
    b"bind 9223372036854775808 0 0 1 0\n", b"bind -1 0 0 1 0\n", b"unbind 7\n",
    b"ident 1 5 7 0 0 0 0 0 2\n{}", b"ping 1\n", b"ping 1 2\nx", b"upload 1 0 0 0 0 0 0\n",
    b"\xff\xfe\n", b"bind 1 0 0 2 0\n", os.urandom(200),
]:
    expect_end(repr(message), Client(), message)
for message in [
    BIND, IDENT, b"ident 2 5 7 0 0 0 0 0 2\n{}", b"query 1 0 2\n{}", upload(b"1 0 0 0 9 xx"),
    upload(b"9223372036854775808 0 0 0 0 "), upload(b"2 0 0 0 0 1 0 0 0 0 "), upload(b"junk"),
    upload(b"1 99 0 0 0 "), upload(zlib.compress(b"1 0 0 0 0 ")[:-3], 10, True),
    upload(zlib.compress(b"0" * 1000), 10, True), upload(zlib.compress(b"x" * 10), 1 << 40, True),
    upload(zlib.compress(b"\0" * (64 << 20), 9), 64 << 20, True),
]:
    expect_end(repr(message[:40]), ready(), message)

# More sessions than a connection may have: the client is asked to pause.
words = expect_end(
    "sessions", Client(), *(b"bind %d 0 0 0 0\n" % number for number in range(1, 1001))
)
assert words == [b"json_error"], words

for name, parts in {
    "text": [frame(1, b"hello")],
    "unmasked": [frame(2, BIND, mask=None)],
    "reserved": [frame(2, BIND, first=0xC0)],
    "opcode": [frame(5, BIND)],
    "continuation": [frame(0, BIND)],
    "close": [frame(8, struct.pack("!H", 1009))],
    "too large": [frame(2, b"upload" + b" " * (65 << 20))],
    "announced": [struct.pack("!BBQ", 0x82, 0xFF, 1 << 62) + b"\1\2\3\4" + b"x" * 100],
}.items():
    cases += 1
    client = Client()
    client.raw(*parts)
    client.end(name)

# A changeset that cannot be decoded is acknowledged: its client has no other way on.
client = ready()
client.say(upload(b"7 0 0 0 3 \xff\xff\xff"), b"mark 1 3\n")
got = [client.next()[1].split(b" ", 1)[0] for _ in range(3)]
assert sorted(got) == [b"download", b"log_message", b"mark"], got
cases += 1

# Two of the largest transactions at once, each of two million objects that it erases again. Another
# client's are stored meanwhile.
large = b"\x3f\x00\x01V" + b"".join(
    b"\x02\x00\x0a" + key + b"\x03\x00\x0a" + key
    for key in (number.to_bytes(12, "big") for number in range(2_100_000))
)
large = b"7 0 0 0 %d " % len(large) + large
plain = len(large)
large = upload(zlib.compress(large, 1), plain, True)
slow, honest = [ready(), ready()], ready()
for client in slow:
    client.say(large)
small, end = 0, time.monotonic() + 120
while not any(select.select([client.socket for client in slow], [], [], 0)):
    small += 1
    assert time.monotonic() < end, "two large uploads are not answered in two minutes"
    honest.say(upload(b"%d 0 0 0 0 " % small))
    assert honest.next()[1].startswith(b"download 1 ")
assert small > 20, f"only {small} small uploads were stored beside two large ones"
for client in slow:
    client.socket.settimeout(60)
    assert client.next()[1].startswith(b"download 1 ")
cases += 1
print(cases, "cases;", small, "small uploads beside two of", plain, "bytes")

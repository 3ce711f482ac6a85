"""Attacks an HTTP/2 server with h2 and hyperframe, and prints a line for each attack.

usage: h2_attacks.py PORT

A line is the attack's name, then how the server ended it: `goaway CODE`, `reset CODE`, `answer
STATUS` or `closed`. After each attack an honest client asks for `/hello/x`; `server is gone` is
printed when it gets no answer.
"""

import socket
import struct
import sys

import h2.config
import h2.connection
import h2.errors
import h2.events
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame, DataFrame, GoAwayFrame, HeadersFrame, PingFrame, PriorityFrame,
    PushPromiseFrame, RstStreamFrame, SettingsFrame, WindowUpdateFrame)

HEAD = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/hello/x")]
POST = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/echo")]


def block(fields):
    # Only literals, so that no attack leaves entries in a table.
    return b"".join(
        b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields)


def headers(stream, fields=HEAD, flags=("END_HEADERS", "END_STREAM"), data=None):
    frame = HeadersFrame(stream, block(fields) if data is None else data)
    for flag in flags:
        frame.flags.add(flag)
    return frame.serialize()


def raw(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(
        ">I", stream) + payload


def data(stream, payload, end=False):
    frame = DataFrame(stream, payload)
    if end:
        frame.flags.add("END_STREAM")
    return frame.serialize()


def flood(frame, turns=300, each=20):
    for _ in range(turns):
        yield frame * each


def rapid_reset(turns=400):
    for turn in range(turns):
        yield b"".join(
            headers(stream) + RstStreamFrame(stream, 8).serialize()
            for stream in range(20 * turn + 1, 20 * turn + 20, 2))


def endless_headers():
    frame = HeadersFrame(1, block(HEAD))
    frame.flags.add("END_STREAM")
    yield frame.serialize()
    for turn in range(400):
        yield ContinuationFrame(1, block([("x-%d" % turn, "a" * 100)])).serialize()


def table_bomb():
    entry = Encoder().encode([("x", "a" * 3000)], huffman=False)
    for stream in range(1, 200, 2):
        yield headers(stream, data=entry + b"\xbe" * 12000)


OPEN = ("END_HEADERS",)
BIG = b"\x00" * 16384
ATTACKS = {
    "rapid reset": (rapid_reset, "goaway 11"),
    "ping flood": (lambda: flood(PingFrame(0, b"12345678").serialize()), "goaway 11"),
    "settings flood": (lambda: flood(SettingsFrame(0).serialize()), "goaway 11"),
    "priority flood": (lambda: flood(PriorityFrame(1, 3, 1).serialize()), "goaway 11"),
    "empty data flood": (
        lambda: [headers(1, POST, OPEN), *flood(data(1, b""))], "goaway 11"),
    "endless headers": (endless_headers, "goaway 11"),
    "table bomb": (table_bomb, "goaway 11"),
    "no preface": (lambda: [b"\x00" * 64], "answer 400"),
    "frame too large": (lambda: [raw(0, 0, 1, BIG + b"\x00")], "goaway 6"),
    "ping of a wrong size": (lambda: [raw(6, 0, 0, b"1234")], "goaway 6"),
    "settings of a wrong size": (lambda: [raw(4, 0, 0, b"12345")], "goaway 6"),
    "settings ack with a payload": (lambda: [raw(4, 1, 0, b"123456")], "goaway 6"),
    "window update of a wrong size": (lambda: [raw(8, 0, 0, b"1")], "goaway 6"),
    "ping on a stream": (lambda: [raw(6, 0, 1, b"12345678")], "goaway 1"),
    "settings on a stream": (lambda: [raw(4, 0, 1, b"")], "goaway 1"),
    "data on stream 0": (lambda: [raw(0, 0, 0, b"a")], "goaway 1"),
    "headers on stream 0": (lambda: [raw(1, 5, 0, block(HEAD))], "goaway 1"),
    "headers on an even stream": (lambda: [headers(2)], "goaway 1"),
    "data on an idle stream": (lambda: [data(5, b"a")], "goaway 1"),
    "reset of an idle stream": (lambda: [RstStreamFrame(5, 8).serialize()], "goaway 1"),
    "window update of an idle stream": (
        lambda: [WindowUpdateFrame(5, window_increment=1).serialize()], "goaway 1"),
    "continuation without headers": (
        lambda: [ContinuationFrame(1, block(HEAD)).serialize()], "goaway 1"),
    "a frame between headers and continuation": (
        lambda: [headers(1, flags=()), PingFrame(0, b"12345678").serialize()], "goaway 1"),
    "a push from a client": (
        lambda: [PushPromiseFrame(1, 2, data=block(HEAD)).serialize()], "goaway 1"),
    "padding beyond the frame": (
        lambda: [headers(1, POST, OPEN), raw(0, 8, 1, b"\x09a")], "goaway 1"),
    "a header block that is none": (lambda: [headers(1, data=b"\xff\xff\xff\xff\xff")], "goaway 9"),
    "a table index that is not there": (lambda: [headers(1, data=b"\xfe")], "goaway 9"),
    "a stream window beyond 2^31": (
        lambda: [headers(1, POST, OPEN),
                 WindowUpdateFrame(1, window_increment=2**31 - 1).serialize()], "reset 3"),
    "a connection window beyond 2^31": (
        lambda: [WindowUpdateFrame(0, window_increment=2**31 - 1).serialize()], "goaway 3"),
    "an initial window beyond 2^31": (
        lambda: [raw(4, 0, 0, struct.pack(">HI", 4, 2**31))], "goaway 3"),
    "more data than the windows": (
        lambda: [headers(1, POST, OPEN), *[data(1, BIG)] * 200], "goaway 3 or reset 3"),
    "an upper case name": (lambda: [headers(1, HEAD + [("X-A", "b")])], "reset 1"),
    "a connection header": (lambda: [headers(1, HEAD + [("connection", "close")])], "reset 1"),
    "an unknown pseudo-header": (lambda: [headers(1, HEAD + [(":x", "b")])], "reset 1"),
    "a pseudo-header twice": (lambda: [headers(1, HEAD + HEAD[3:])], "reset 1"),
    "a pseudo-header after fields": (lambda: [headers(1, [("x", "a")] + HEAD)], "reset 1"),
    "no path": (lambda: [headers(1, HEAD[:3])], "reset 1"),
    "a control character": (lambda: [headers(1, HEAD + [("x", "a\nb")])], "reset 1"),
    "less body than it says": (
        lambda: [headers(1, POST + [("content-length", "5")], OPEN), data(1, b"a", True)],
        "reset 1"),
    "more body than it says": (
        lambda: [headers(1, POST + [("content-length", "1")], OPEN), data(1, b"abc", True)],
        "reset 1"),
    # They are sent at once: otherwise the response may come first, and the stream is closed on both
    # sides.
    "data after the end": (lambda: [headers(1, POST) + data(1, b"a")], "goaway 5"),
    "a stream of its own parent": (lambda: [PriorityFrame(1, 1, 1).serialize()], "goaway 1"),
}


def connect(port):
    sock = socket.create_connection(("127.0.0.1", port), timeout=10)
    return sock


def attack(port, name):
    make, _ = ATTACKS[name]
    with connect(port) as sock:
        try:
            if name != "no preface":
                sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SettingsFrame(0).serialize())
            for part in make():
                sock.sendall(part)
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        got = b""
        try:
            while part := sock.recv(65536):
                got += part
        except OSError:
            pass
    if got.startswith(b"HTTP/1.1 "):
        return "answer " + got[9:12].decode()
    return said(got)


def said(got):
    reset = None
    while len(got) >= 9:
        length, kind = int.from_bytes(got[:3], "big"), got[3]
        payload, got = got[9:9 + length], got[9 + length:]
        if kind == GoAwayFrame.type and (code := int.from_bytes(payload[4:8], "big")):
            return "goaway %d" % code
        if kind == RstStreamFrame.type:
            reset = reset or "reset %d" % int.from_bytes(payload, "big")
    return reset or "closed"


def is_served(port):
    connection = h2.connection.H2Connection(
        h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
    connection.initiate_connection()
    connection.send_headers(1, HEAD, end_stream=True)
    body = b""
    with connect(port) as sock:
        sock.sendall(connection.data_to_send())
        while part := sock.recv(65536):
            for event in connection.receive_data(part):
                if isinstance(event, h2.events.DataReceived):
                    body += event.data
                if isinstance(event, h2.events.StreamEnded):
                    return body == b"hello x"
    return False


def main():
    port = int(sys.argv[1])
    for name, (_, expected) in ATTACKS.items():
        found = attack(port, name)
        print("%s: %s, expected %s" % (name, found, expected), flush=True)
        if not is_served(port):
            print("server is gone", flush=True)


main()

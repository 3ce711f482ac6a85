"""Writes generated and mutated HTTP/1.1 inputs, each with what h11 makes of it.

usage: h11_verdicts.py COUNT SEED FILE

A record is two texts, each after its length in four bytes: the input, and h11's verdict by lines:
`R` (a whole request: hex of method, target, headers and body, between blanks), then one of
`E reason` (refused), `M` (more is needed) or `C` (no request may follow).
"""

import random
import struct
import sys

import h11

METHODS = [b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH"]
NAMES = [b"Accept", b"X-A", b"Cookie", b"user-agent", b"Content-Type", b"Connection"]
VALUES = [b"", b"a", b"a b", b"text/plain; q=0.5", b"close", b"keep-alive", b"\xc3\xa4", b"x" * 60]
LINES = [
    b"Host: b", b"Content-Length: 3", b"Content-Length: 3, 3", b"Content-Length: +3",
    b"Content-Length: 0003", b"Content-Length: 99999999999999999999", b"Content-Length: -1",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: x",
    b"Transfer-Encoding: CHUNKED", b"Transfer-Encoding : chunked", b" folded: 1", b"\tfolded",
    b"Expect: 100-continue", b"Expect: wonders", b"Upgrade: websocket", b"Host : a", b": no name",
    b"no colon", b"X-Ctl: a\x01b", b"X-Nul: a\x00b", b"X-CR: a\rb", b"Na me: x", b"X\xff: a",
    b"Content-Length:\t3 ", b"Connection: close, x", b"Connection: x,keep-alive",
]
INSERTS = [
    b"\r", b"\n", b"\r\n", b"\x00", b" ", b"\t", b":", b";", b",", b"0", b"\x7f", b"\x80", b"\xff",
    b"HTTP/1.1", b"\r\n\r\n", b"\x0b", b"#", b"%", b"chunked", b"/", b"GET / HTTP/1.1\r\n",
]


def body_of(rng):
    return bytes(rng.randrange(256) for _ in range(rng.choice([0, 1, 3, 20, 300])))


def chunks_of(rng, body):
    out = b""
    while body:
        size = rng.randint(1, len(body))
        extension = rng.choice([b"", b"", b"", b";a=b", b";x"])
        number = (b"%x" if rng.random() < 0.5 else b"%X") % size
        out += rng.choice([b"", b"", b"00"]) + number + extension + b"\r\n" + body[:size] + b"\r\n"
        body = body[size:]
    return out + b"0\r\n" + rng.choice([b"", b"", b"X-Trailer: a\r\n"]) + b"\r\n"


def request(rng):
    method = rng.choice(METHODS)
    target = rng.choice([b"/", b"/a/b?c=d", b"/%41", b"/" + b"p" * 40, b"http://a/x", b"*", b"/a#b"])
    if target == b"*" and rng.random() < 0.8:
        method = b"OPTIONS"
    version = b"HTTP/1.0" if rng.random() < 0.08 else b"HTTP/1.1"
    lines = [b"Host: " + rng.choice([b"a", b"a.example:80", b"[::1]:8080", b"1.2.3.4"])]
    for _ in range(rng.randrange(4)):
        lines.append(rng.choice(NAMES) + b":" + rng.choice([b" ", b"", b"\t "]) + rng.choice(VALUES))
    body = b""
    kind = rng.random()
    if kind < 0.35:
        body = body_of(rng)
        lines.append(b"Content-Length: %d" % len(body))
    elif kind < 0.65 and version == b"HTTP/1.1":
        body = chunks_of(rng, body_of(rng))
        lines.append(b"Transfer-Encoding: chunked")
    if rng.random() < 0.15:
        lines.append(rng.choice(LINES))
    rng.shuffle(lines)
    return method + b" " + target + b" " + version + b"\r\n" + b"".join(
        line + b"\r\n" for line in lines) + b"\r\n" + body


def mutate(rng, data):
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(data))
        end = min(len(data), at + rng.choice([1, 1, 1, 2, 10]))
        what = rng.randrange(5)
        if what == 0:
            data = data[:at] + rng.choice(INSERTS) + data[at:]
        elif what == 1:
            data = data[:at] + data[end:]
        elif what == 2:
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1:]
        elif what == 3:
            data = data[:at] + data[at:end] + data[at:]
        else:
            data = data[:at]
    return data


def pieces(rng, data):
    cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.randrange(6)))
    return [data[a:b] for a, b in zip([0] + cuts, cuts + [len(data)]) if b > a]


def verdict(parts):
    lines = []
    connection = h11.Connection(h11.SERVER)
    head, body = None, b""
    try:
        for part in parts:
            connection.receive_data(part)
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    break
                if event is h11.PAUSED:
                    if connection.our_state in (h11.SEND_RESPONSE, h11.MIGHT_SWITCH_PROTOCOL):
                        answer(connection)
                    if connection.our_state is not h11.DONE:
                        return lines + [b"C"]
                    connection.start_next_cycle()
                elif isinstance(event, h11.Request):
                    head, body = event, b""
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    fields = b"\n".join(name + b":" + text(value) for name, value in head.headers)
                    parts_ = [head.method, head.target, fields, body]
                    lines.append(b"R " + b" ".join(part.hex().encode() or b"-" for part in parts_))
                    if head.http_version == b"1.0":
                        return lines + [b"C"]
                    answer(connection)
                    if connection.our_state is not h11.DONE:
                        return lines + [b"C"]
                    connection.start_next_cycle()
                else:
                    return lines + [b"C"]
    except h11.RemoteProtocolError as error:
        return lines + [b"E " + str(error).encode("latin-1", "replace").replace(b"\n", b" ")]
    return lines + [b"M"]


def text(value):
    """UTF-8, or Latin-1 in UTF-8, as ours is."""
    try:
        value.decode()
        return value
    except UnicodeDecodeError:
        return value.decode("latin-1").encode()


def answer(connection):
    connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
    connection.send(h11.EndOfMessage())


def main():
    count, seed, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    rng = random.Random(seed)
    with open(path, "wb") as file:
        for _ in range(count):
            data = b"".join(request(rng) for _ in range(rng.choice([1, 1, 2, 3])))
            if rng.random() < 0.75:
                data = mutate(rng, data)
            text = b"\n".join(verdict(pieces(rng, data)))
            file.write(struct.pack(">I", len(data)) + data + struct.pack(">I", len(text)) + text)


main()

"""The network between a Realm client and ingest, which passes every byte but for what it is told to change.

usage: realm_proxy.py PORT [KEY]

Answers on a port of its own, which is the first line of standard output, and passes connections on to PORT.
`GET /proxy` answers what it has seen: `handshakes`, those of WebSockets, each with what was offered to the service
and what its response chose; `requests`, the others; `open`, the WebSockets that are open now; and `sent`, the bytes
that clients have sent through WebSockets. `POST /proxy` with a JSON object changes the following from then on:

  port       of the service for new connections
  isHeld     true: new WebSockets wait until it is false
  rate       the bytes that a client's WebSocket passes in a second
  protocols  the subprotocols that a handshake offers instead of the client's
  answer     the subprotocol of the response instead of the service's
  refusals   how many of the next handshakes are answered `status`
  status     401 at first
  lifetime   of access tokens in responses to sign-ins, in seconds from now; the token is signed again with KEY
             (hexadecimal)
  renewed    the same for responses to renewals
  cut        true: every open connection ends now
"""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import socket
import struct
import sys
import time

KEY = bytes.fromhex(sys.argv[2]) if len(sys.argv) > 2 else b""
told = {"port": int(sys.argv[1]), "isHeld": False, "rate": None, "protocols": None, "answer": None,
        "refusals": 0, "status": 401, "lifetime": None, "renewed": None}
seen = {"handshakes": [], "requests": [], "open": 0, "sent": 0}
writers = set()
released = asyncio.Event()
NAME = rb"(?im)^sec-websocket-protocol:[ \t]*(.*?)[ \t]*\r$"


def field(head, pattern):
    found = re.search(pattern, head)
    return found.group(1).decode() if found else None


def with_protocol(head, value):
    return re.sub(NAME, lambda _: b"Sec-WebSocket-Protocol: " + value.encode() + b"\r", head, count=1)


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def with_lifetime(body, seconds):
    """The same answer with an access token that ends then. It has as many bytes."""
    def changed(found):
        head, claims, _ = found.group(1).split(b".")
        claims = base64.urlsafe_b64decode(claims + b"==")
        claims = re.sub(rb'"exp":\d+', b'"exp":%d' % (time.time() + seconds), claims)
        signed = head + b"." + encoded(claims)
        return b'"access_token":"' + signed + b"." + encoded(hmac.digest(KEY, signed, hashlib.sha256)) + b'"'
    return re.sub(rb'"access_token":"([^"]+)"', changed, body)


async def message(reader):
    """The head and the body of a request or a response."""
    head = await reader.readuntil(b"\r\n\r\n")
    return head, await reader.readexactly(int(field(head, rb"(?im)^content-length:[ \t]*(\d+)") or 0))


async def pass_up(reader, writer):
    while data := await reader.read(65536):
        seen["sent"] += len(data)
        writer.write(data)
        await writer.drain()
        if told["rate"] is not None:
            await asyncio.sleep(len(data) / told["rate"])


async def pass_down(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


def reset(writer):
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def serve_socket(head, reader, writer):
    if told["protocols"] is not None:
        head = with_protocol(head, ", ".join(told["protocols"]))
    handshake = {"offered": field(head, NAME), "chosen": None, "port": told["port"]}
    seen["handshakes"].append(handshake)
    while told["isHeld"]:
        released.clear()
        await released.wait()
    if told["refusals"] > 0:
        told["refusals"] -= 1
        writer.write(b"HTTP/1.1 %d Refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % told["status"])
        return
    far_reader, far = await asyncio.open_connection("127.0.0.1", told["port"])
    writers.add(far)
    try:
        far.write(head)
        answer = await far_reader.readuntil(b"\r\n\r\n")
        handshake["chosen"] = field(answer, NAME)
        if told["answer"] is not None:
            answer = with_protocol(answer, told["answer"])
        writer.write(answer)
        seen["open"] += 1
        ways = [asyncio.ensure_future(way) for way in (pass_up(reader, far), pass_down(far_reader, writer))]
        try:
            # The end of either ends both.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            seen["open"] -= 1
            for way in ways:
                way.cancel()
            ends = await asyncio.gather(*ways, return_exceptions=True)
            # A reset is passed on as such.
            if any(isinstance(end, ConnectionResetError) for end in ends):
                reset(writer)
    finally:
        writers.discard(far)
        far.close()


async def serve_requests(head, body, reader, writer):
    far_reader, far = await asyncio.open_connection("127.0.0.1", told["port"])
    writers.add(far)
    try:
        while True:
            method, path = head.split(b" ")[:2]
            far.write(head + body)
            answer, content = await message(far_reader)
            seen["requests"].append(f"{method.decode()} {path.decode()} {answer.split(b' ')[1].decode()}")
            kind = "lifetime" if path.endswith(b"/login") else "renewed" if path.endswith(b"/session") else None
            if kind and told[kind] is not None:
                content = with_lifetime(content, told[kind])
            writer.write(answer + content)
            if re.search(rb"(?im)^connection:[ \t]*close", head):
                return
            head, body = await message(reader)
    finally:
        writers.discard(far)
        far.close()


def control(method, body):
    if method == b"POST":
        change = json.loads(body)
        if change.pop("cut", False):
            for writer in writers:
                writer.transport.abort()
        told.update(change)
        released.set()
    content = json.dumps(seen).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" \
        b"Connection: close\r\n\r\n" % len(content) + content


async def serve(reader, writer):
    try:
        head, body = await message(reader)
        method, path = head.split(b" ")[:2]
        if path == b"/proxy":
            writer.write(control(method, body))
        else:
            writers.add(writer)
            if re.search(rb"(?im)^upgrade:[ \t]*websocket", head):
                await serve_socket(head, reader, writer)
            else:
                await serve_requests(head, body, reader, writer)
    except (OSError, asyncio.IncompleteReadError):
        # Either side has ended.
        pass
    finally:
        writers.discard(writer)
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    print("listening", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())

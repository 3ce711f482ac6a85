"""Talks to an echoing WebSocket server with `websockets`, and prints a line for each promise kept.

usage: websocket_client.py PORT [TLS_PORT CA_FILE]

The first promise that does not hold ends it with an error.
"""

import asyncio
import ssl
import sys

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.protocol import State

PORT = int(sys.argv[1])
URL = f"ws://127.0.0.1:{PORT}/socket"


def kept(promise):
    print(promise, flush=True)


async def closed(socket):
    try:
        async for _ in socket:
            pass
    except ConnectionClosed:
        pass
    await socket.wait_closed()
    return socket.close_code


async def echoes():
    async with connect(URL, subprotocols=["x", "a", "b"]) as socket:
        assert socket.subprotocol == "a", socket.subprotocol
        # The client offers permessage-deflate; the server declines.
        assert not socket.protocol.extensions, socket.protocol.extensions
        for size in [0, 1, 125, 126, 65535, 65536, 100_000]:
            text = "é" * (size // 2) + "x" * (size % 2)
            await socket.send(text)
            assert await socket.recv() == text, size
            await socket.send(b"\x00\xff" * (size // 2))
            assert await socket.recv() == b"\x00\xff" * (size // 2), size
    assert socket.close_code == 1000, socket.close_code
    kept("messages of all sizes come back")


async def fragments():
    async with connect(URL) as socket:
        await socket.send(["frag", "men", "", "ts"])
        assert await socket.recv() == "fragments"
        await socket.send([b"a", b"b"])
        assert await socket.recv() == b"ab"
    kept("fragments are joined")


async def pings():
    async with connect(URL, ping_interval=None) as socket:
        for payload in [b"", b"x" * 125]:
            await asyncio.wait_for(await socket.ping(payload), 10)
        # The server's own ping is answered by the library: nothing of it is seen here.
        await socket.send("ping")
        await socket.send("after the ping")
        assert await socket.recv() == "after the ping"
    kept("pings are answered")


async def pipeline():
    async with connect(URL) as socket:
        for number in range(2000):
            await socket.send(str(number))
        for number in range(2000):
            assert await socket.recv() == str(number)
    kept("2000 messages come back in order")


async def closes():
    async with connect(URL) as socket:
        await socket.send("close 4001 the reason")
        assert await closed(socket) == 4001
        assert socket.close_reason == "the reason", socket.close_reason
    kept("the server's close is clean")

    async with connect(URL) as socket:
        await socket.close(3999, "ours")
        assert socket.protocol.close_rcvd.code == 3999
        assert socket.protocol.close_rcvd_then_sent is False
    kept("the client's close is echoed")

    async with connect(URL) as socket:
        await socket.send("abort")
        assert await closed(socket) == 1006
    kept("an abort has no close frame")

    async with connect(URL) as socket:
        await socket.send("illegal")
        # The library fails the connection itself.
        assert await closed(socket) in (1002, 1006)
        assert socket.state is State.CLOSED
    kept("an illegal frame is an error")


async def limits():
    async with connect(URL) as socket:
        await socket.send("x" * (200 << 10))
        assert await closed(socket) == 1009, socket.close_code
    kept("a message beyond the limit is refused with 1009")


async def refusals():
    try:
        async with connect(f"ws://127.0.0.1:{PORT}/plain"):
            raise AssertionError("a plain route became a socket")
    except InvalidStatus as refusal:
        assert refusal.response.status_code == 200
    kept("a plain route is no socket")


async def over_tls(port, authority):
    context = ssl.create_default_context(cafile=authority)
    async with connect(f"wss://localhost:{port}/socket", ssl=context) as socket:
        for size in [5, 70_000]:
            await socket.send("s" * size)
            assert await socket.recv() == "s" * size
        await socket.send("close 4002 sealed")
        assert await closed(socket) == 4002
    kept("the same over TLS")


async def main():
    await echoes()
    await fragments()
    await pings()
    await pipeline()
    await closes()
    await limits()
    await refusals()
    if len(sys.argv) == 4:
        await over_tls(int(sys.argv[2]), sys.argv[3])


asyncio.run(main())

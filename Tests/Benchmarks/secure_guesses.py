"""Guesses secrets of identities, from many addresses, until it is told to stop.

usage: secure_guesses.py PORT APP ADDRESSES RATE KNOWN

From 127.0.0.2 on, RATE guesses a second from each of ADDRESSES, whether those before were answered or
not. Each names another identity, so that no limit of one identity spares the service the work: every
second one is `guessed-0` to `guessed-<KNOWN - 1>`, which have secrets, the others nobody has heard of.
At SIGTERM prints one JSON object: how many guesses a second were sent, and the answers by status.
"""

import asyncio
import base64
import collections
import json
import os
import random
import signal
import sys
import time

PORT, APP = int(sys.argv[1]), sys.argv[2]
ADDRESSES, RATE, KNOWN = int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])

statuses = collections.Counter()
sent = 0


def guess(number):
    name = "guessed-%d" % (number // 2 % KNOWN) if number % 2 else "nobody-%d" % random.getrandbits(40)
    secret = "%032x" % random.getrandbits(128)
    proof = base64.b64encode(("%s:%s" % (name, secret)).encode()).decode()
    return (
        "GET /%s/api/notifications HTTP/1.1\r\nHost: a\r\nAuthorization: Basic %s\r\n\r\n"
        % (APP, proof)
    ).encode()


async def read_answer(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    await reader.readexactly(length)
    return int(head.split(b" ")[1])


async def try_once(address, free, request):
    """One guess over a connection that has no answer to come, or over a new one."""
    connection = free.pop() if free else None
    try:
        if connection is None:
            connection = await asyncio.open_connection(
                "127.0.0.1", PORT, local_addr=(address, 0)
            )
        reader, writer = connection
        writer.write(request)
        statuses[await read_answer(reader)] += 1
        free.append(connection)
    except (OSError, EOFError, asyncio.IncompleteReadError):
        statuses["closed"] += 1
        if connection is not None:
            connection[1].close()


async def attack(number):
    global sent
    address, free, tasks = "127.0.0.%d" % (number + 2), [], set()
    at = time.monotonic() + number / ADDRESSES / RATE
    count = number
    while True:
        await asyncio.sleep(max(0, at - time.monotonic()))
        at += 1 / RATE
        count += 1
        sent += 1
        task = asyncio.create_task(try_once(address, free, guess(count)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


async def main():
    # Real clients run on other machines.
    os.nice(19)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    start = time.monotonic()
    attacks = [asyncio.create_task(attack(number)) for number in range(ADDRESSES)]
    await stop.wait()
    for task in attacks:
        task.cancel()
    counts = {str(status): count for status, count in sorted(statuses.items(), key=str)}
    print(json.dumps({"sent": sent / (time.monotonic() - start), "answers": counts}), flush=True)
    os._exit(0)


asyncio.run(main())

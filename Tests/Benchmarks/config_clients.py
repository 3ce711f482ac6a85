"""Many clients of remote config that listen, and fetch as soon as they hear of a new version.

usage: config_clients.py PORT PID APP KEY COUNT -- COMMAND...

Opens COUNT streams, runs COMMAND, which publishes, and waits until each has heard of it and has
fetched. Prints one JSON object: the service's memory for each stream, the time from the end of
COMMAND to the last that heard, without CONFIG_COALESCE's second, how long the fetches took in all,
and how many of them were not answered 200.
"""

import asyncio
import json
import sys
import time

COALESCE = 1.0


def resident_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise SystemExit("no such process")


def request(path, body):
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def listen(port, app, key, number, opened, heard):
    """One stream; when it has heard, its fetch on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
    body = json.dumps(
        {
            "project": app,
            "namespace": "firebase",
            "lastKnownVersionNumber": "1",
            "appId": "1:1234567890:android:0a1b2c3d4e5f",
            "appInstanceId": f"client-{number}",
        }
    ).encode()
    writer.write(
        request(f"/v1/projects/{app}/namespaces/firebase:streamFetchInvalidations?key={key}", body)
    )
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        raise SystemExit(f"a stream was refused: {head!r}")
    opened()
    while b"latestTemplateVersionNumber" not in await reader.readline():
        pass
    heard.append(time.monotonic())
    writer.close()


async def fetch(port, app, key, number):
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=65536)
        body = json.dumps(
            {"appInstanceId": f"client-{number}", "appId": "1:1234567890:android:0a1b2c3d4e5f"}
        ).encode()
        writer.write(request(f"/v1/projects/{app}/namespaces/firebase:fetch?key={key}", body))
        line = await reader.readline()
        writer.close()
        return line.split(b" ")[1] if line else b"closed"
    except OSError as error:
        return str(error).encode()


async def main():
    port, pid, app, key, count = (
        int(sys.argv[1]),
        int(sys.argv[2]),
        sys.argv[3],
        sys.argv[4],
        int(sys.argv[5]),
    )
    command = sys.argv[7:]
    before = resident_bytes(pid)
    all_open = asyncio.Event()
    number_open = 0

    def opened():
        nonlocal number_open
        number_open += 1
        if number_open == count:
            all_open.set()

    heard = []
    listeners = []
    for number in range(count):
        listeners.append(asyncio.create_task(listen(port, app, key, number, opened, heard)))
        if number % 200 == 199:
            await asyncio.sleep(0.01)
    await asyncio.wait_for(all_open.wait(), 60)
    memory = resident_bytes(pid) - before
    publishing = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL
    )
    if await publishing.wait() != 0:
        raise SystemExit("nothing was published")
    published = time.monotonic()
    await asyncio.wait_for(asyncio.gather(*listeners), 60)
    last_heard = max(heard)
    started = time.monotonic()
    answers = await asyncio.gather(*(fetch(port, app, key, number) for number in range(count)))
    print(
        json.dumps(
            {
                "kilobytes": memory / count / 1000,
                "heard": last_heard - published - COALESCE,
                "fetched": time.monotonic() - started,
                "refused": sum(answer != b"200" for answer in answers),
            }
        )
    )


asyncio.run(main())

"""Measures what 20 hostile peers do to an honest one of the registration service, and prints one JSON
object.

usage: hostile.py PORT PID APP KEY

The honest client, from 127.0.0.1, saves an installation every few milliseconds over one connection,
first alone, then beside each kind of hostile peers: `p50` and `p99` of its answers' times in
milliseconds, and the most resident memory in bytes that the service had meanwhile.

The hostile ones come from 127.0.0.2 on, an address and a connection each, hold the key that every
shipped app carries where it is said so, and each sends at a stated rate:

keys      5 bodies/s of 40 kB whose keys are permutations of combining marks, with the key
brackets  5 bodies/s of gzip, 1 MB of nothing but brackets each, to a batch, without a key
proved    1 such body/s, with the key: all 20 together have 20 MB/s of JSON read
unread    5 finds/s of 100 kB each, and no answer is read; whoever is cut off comes back

They make way for the honest client, as they would on machines of their own: they are as nice as can
be, and it runs before all others where that is allowed.
"""

import gzip
import itertools
import json
import os
import random
import signal
import socket
import sys
import time

PORT, PID, APP, KEY = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
SECONDS, PEERS = 6, 20
MARKS = "\u0334\u0327\u031b\u0316\u0301\u0360\u0345"
PROOF = {"X-LC-Id": APP, "X-LC-Key": KEY}


def request(method, target, headers, body=b""):
    lines = ["%s %s HTTP/1.1" % (method, target), "Host: a", "Content-Length: %d" % len(body)]
    lines += ["%s: %s" % field for field in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def save(body, **more):
    headers = {"Content-Type": "application/json", **PROOF}
    return request("POST", "/1.1/installations", headers, json.dumps({**body, **more}).encode())


def flooded():
    keys = ("a" + "".join(marks) for marks in itertools.permutations(MARKS))
    body = {"deviceType": "ios", "deviceToken": "f" * 64}
    size = 0
    for key in keys:
        body[key] = 1
        size += len(key.encode()) + 5
        if size > 40_000:
            break
    text = json.dumps(body, ensure_ascii=False).encode()
    return request(
        "POST", "/1.1/installations", {"Content-Type": "application/json", **PROOF}, text
    )


def brackets(proof):
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip", **proof}
    body = b'{"requests":[' + b"[]," * 330_000 + b"[]]}"
    return request("POST", "/1.1/batch", headers, gzip.compress(body))


# The requests of each attack, their rate per second, and whether the response is read.
ATTACKS = {
    "keys": (flooded, 5, True),
    "brackets": (lambda: brackets({}), 5, True),
    "proved": (lambda: brackets(PROOF), 1, True),
    "unread": (lambda: request("GET", "/1.1/installations?limit=100", PROOF), 5, False),
}


def connect(address="127.0.0.1", small=False):
    sock = socket.socket()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if small:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(30)
    sock.bind((address, 0))
    sock.connect(("127.0.0.1", PORT))
    return sock


def memory():
    with open("/proc/%d/status" % PID) as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def read_answer(sock, buffer):
    while b"\r\n\r\n" not in buffer:
        part = sock.recv(65536)
        if not part:
            raise EOFError
        buffer += part
    head, _, rest = buffer.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    )
    while len(rest) < length:
        part = sock.recv(65536)
        if not part:
            raise EOFError
        rest += part
    return int(head.split(b" ")[1]), rest[length:]


def honest(seconds=SECONDS):
    times, most = [], 0
    token = "%064x" % random.getrandbits(256)
    call = save({"deviceType": "ios", "deviceToken": token, "apnsTopic": "com.example." + APP})
    with connect() as sock:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            start = time.perf_counter()
            sock.sendall(call)
            status, rest = read_answer(sock, b"")
            if status not in (200, 201) or rest:
                sys.exit("the honest client was told %d" % status)
            times.append((time.perf_counter() - start) * 1000)
            most = max(most, memory())
            time.sleep(0.004)
    times.sort()
    return {"p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100], "memory": most}


def attack(number, call, rate, reads):
    """One hostile peer, for ever."""
    address = "127.0.0.%d" % (number + 2)
    sock, at = None, time.monotonic() + number / PEERS / rate
    while True:
        time.sleep(max(0, at - time.monotonic()))
        at = max(at + 1 / rate, time.monotonic() - 1)
        try:
            if sock is None:
                sock = connect(address, small=not reads)
                if not reads:
                    sock.setblocking(False)
            if reads:
                sock.sendall(call)
                read_answer(sock, b"")
            elif sock.send(call) < len(call):
                # Half a request is of no more use.
                raise OSError
        except BlockingIOError:
            # The server accepts no more. It may keep what it has buffered.
            continue
        except (OSError, EOFError):
            if sock is not None:
                sock.close()
            sock = None


def beside(kind):
    make, rate, reads = ATTACKS[kind]
    call = make()
    children = []
    for number in range(PEERS):
        child = os.fork()
        if child == 0:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            os.nice(19)
            attack(number, call, rate, reads)
        children.append(child)
    try:
        # The first seconds belong to the attackers.
        time.sleep(3)
        return honest()
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def main():
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    except PermissionError:
        pass
    with connect() as sock:
        for number in range(100):
            token = "%064x" % number
            sock.sendall(save({"deviceType": "ios", "deviceToken": token}, note="x" * 800))
            if read_answer(sock, b"")[0] not in (200, 201):
                sys.exit("an installation could not be saved")
    honest(2)
    figures = {"alone": honest()}
    for kind in ATTACKS:
        figures[kind] = beside(kind)
    print(json.dumps(figures))


main()

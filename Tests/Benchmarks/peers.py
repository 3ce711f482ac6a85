"""Measures what slow, idle and greedy peers do to an honest one, and prints one JSON object.

usage: peers.py PORT PID

The honest client sends a GET every few milliseconds over one connection, first alone, then beside
each kind of peers: `p50` and `p99` of its answers' times in milliseconds, and the server's resident
memory in bytes.

The idle ones have each had a request answered before, every eighth of them one with a body of 60 kB,
and are all there at the end. Slow and greedy ones whom the server cuts off come back at once.

The peers make way for the honest client, as they would on machines of their own: they are as nice as
can be, and it runs before all others where that is allowed. What is left is the server's part.
"""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time

PORT, PID = int(sys.argv[1]), int(sys.argv[2])
SECONDS = 4
IDLE, SLOW, GREEDY = 5000, 1000, 1000
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"
LARGE = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n" + b"x" * 60000


def connect():
    return socket.create_connection(("127.0.0.1", PORT), timeout=30)


def memory():
    with open("/proc/%d/status" % PID) as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def honest(seconds=SECONDS):
    times = []
    with connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            start = time.perf_counter()
            sock.sendall(GET)
            got = b""
            while not got.endswith(b"}"):
                part = sock.recv(4096)
                if not part:
                    sys.exit("the honest client was cut off")
                got += part
            times.append((time.perf_counter() - start) * 1000)
            time.sleep(0.003)
    times.sort()
    return {
        "p50": times[len(times) // 2],
        "p99": times[len(times) * 99 // 100],
        "memory": memory(),
    }


def give_way():
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.nice(19)


def beside(work, count, begin):
    """The honest client's figures while another process does `work` on each of its peers over and
    over. A peer for which it returns false is gone, and begins anew."""
    ready, is_ready = os.pipe()
    child = os.fork()
    if child == 0:
        give_way()
        peers = [begin(number) for number in range(count)]
        os.write(is_ready, b"!")
        while True:
            for number, peer in enumerate(peers):
                if not work(peer):
                    peer.close()
                    peers[number] = begin(number)
            time.sleep(0.1)
    os.close(is_ready)
    if os.read(ready, 1) != b"!":
        sys.exit("the peers could not connect")
    os.close(ready)
    try:
        figures = honest()
        # Connections that were just cut off reconnect.
        end = time.monotonic() + 10
        while connections() < count:
            if time.monotonic() > end:
                sys.exit("of %d peers only %d are left" % (count, connections()))
            time.sleep(0.1)
        return figures
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def connections():
    """How many sockets the server has open, its listener included."""
    folder = "/proc/%d/fd" % PID
    count = 0
    for name in os.listdir(folder):
        try:
            count += os.readlink("%s/%s" % (folder, name)).startswith("socket:")
        except FileNotFoundError:
            pass
    return count


def sending(first):
    def begin(_):
        peer = connect()
        peer.sendall(first)
        peer.setblocking(False)
        return peer

    return begin


def answered(number):
    peer = connect()
    peer.sendall(LARGE if number % 8 == 0 else GET)
    got = b""
    while not got.endswith(b"}"):
        part = peer.recv(4096)
        if not part:
            sys.exit("a peer was cut off before it was idle")
        got += part
    peer.setblocking(False)
    return peer


def rest(_):
    return True


def dribble(peer):
    """A byte at a time; the server says 408 and ends when it has had enough."""
    try:
        peer.send(b"x")
        # Any byte is the end.
        peer.recv(4096)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def devour(peer):
    """Sends as many requests as the server takes, and never reads an answer."""
    try:
        peer.send(GET * 20)
        return True
    except BlockingIOError:
        return True
    except OSError:
        return False


def hammered():
    """Twenty requests ahead on each connection, as fast as the answers come."""
    url = "http://127.0.0.1:%d/" % PORT
    load = subprocess.Popen(
        ["h2load", "--h1", "-t", "1", "-c", str(GREEDY), "-m", "20", "-D", "600", url],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=give_way,
    )
    try:
        time.sleep(2)
        return honest()
    finally:
        load.kill()
        load.wait()


def main():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    except PermissionError:
        pass
    honest(1)
    figures = {
        "alone": honest(),
        "idle": beside(rest, IDLE, answered),
        "request_line": beside(dribble, SLOW, sending(b"GET /")),
        "headers": beside(dribble, SLOW, sending(GET[:-2] + b"X: ")),
        "body": beside(dribble, SLOW, sending(POST)),
        "devour": beside(devour, GREEDY, sending(GET)),
        "hammer": hammered(),
    }
    print(json.dumps(figures))


main()

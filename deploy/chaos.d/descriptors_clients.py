"""Opens more connections to a service than it has descriptors for, beside a client that was there before.

usage: descriptors_clients.py PORT OPERATIONS_PORT PID COUNT

The client asks 100 times a second over one connection: five seconds before, ten while COUNT connections
are opened and opened again when they are closed, and five after. Beside the attack the operators' port is
asked for /livez, each time over a new connection. Prints one JSON object: the client's p99 in milliseconds
of each part, what was not answered, and the process's share of a CPU after the last attacker has left.
"""

import json
import os
import select
import socket
import sys
import time

PORT, OPERATIONS, PID, COUNT = (int(word) for word in sys.argv[1:5])
REQUEST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


def open_socket(port, timeout):
    connection = socket.create_connection(("127.0.0.1", port), timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def ask(connection):
    """Milliseconds until there was an answer; None where there was none."""
    start = time.monotonic()
    try:
        connection.sendall(REQUEST)
        answer = connection.recv(65536)
    except OSError:
        return None
    return (time.monotonic() - start) * 1000 if answer.startswith(b"HTTP/1.1 ") else None


def operators_are_answered():
    try:
        with open_socket(OPERATIONS, 2) as connection:
            return ask(connection) is not None
    except OSError:
        return False


def cpu_seconds():
    with open("/proc/%d/stat" % PID) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Attack:
    """COUNT connections that send nothing. Those that the service closes are opened again."""

    def __init__(self):
        self.poller = select.epoll()
        self.sockets = {}
        self.opened = 0

    def turn(self, limit):
        for number, _ in self.poller.poll(0, limit):
            connection = self.sockets[number]
            if connection in self.connected:
                self.drop(number)
            else:
                # It is connected or refused: an end is reported at once.
                self.connected.add(connection)
                self.poller.modify(number, select.EPOLLRDHUP)
        for _ in range(min(limit, COUNT - len(self.sockets))):
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", PORT))
            self.sockets[connection.fileno()] = connection
            self.poller.register(connection.fileno(), select.EPOLLOUT | select.EPOLLRDHUP)
            self.opened += 1

    connected = set()

    def drop(self, number):
        connection = self.sockets.pop(number)
        self.connected.discard(connection)
        self.poller.unregister(number)
        connection.close()

    def end(self):
        for number in list(self.sockets):
            self.drop(number)


def part(connection, seconds, attack=None):
    """The client's times; beside an attack also whether operators were answered."""
    times, missed, operators = [], 0, []
    end = time.monotonic() + seconds
    turn = 0
    while time.monotonic() < end:
        next_turn = time.monotonic() + 0.01
        took = ask(connection) if missed < 3 else None
        if took is None:
            missed += 1
        else:
            times.append(took)
        turn += 1
        if attack:
            attack.turn(100)
            if turn % 100 == 50:
                operators.append(operators_are_answered())
        time.sleep(max(0, next_turn - time.monotonic()))
    times.sort()
    return times[len(times) * 99 // 100] if times else None, missed, operators


def main():
    client = open_socket(PORT, 2)
    before, _, _ = part(client, 5)
    attack = Attack()
    during, missed, operators = part(client, 10, attack)
    attack.end()
    time.sleep(1)
    cpu, start = cpu_seconds(), time.monotonic()
    after, missed_after, _ = part(client, 5)
    share = (cpu_seconds() - cpu) / (time.monotonic() - start)
    print(
        json.dumps(
            {
                "p99Before": before,
                "p99During": during,
                "p99After": after,
                "missed": missed + missed_after,
                "opened": attack.opened,
                "operatorsAsked": len(operators),
                "operatorsAnswered": sum(operators),
                "cpuAfter": round(share, 3),
            }
        )
    )


main()

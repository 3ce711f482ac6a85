"""Devices with Realm's own client, which write objects while all that serves them comes and goes.

usage: realm_clients.py CLIENTS COUNT KILLS PORT APP FOLDER -- COMMAND…

Each of CLIENTS processes of COMMAND (the client's driver: JSON lines in and out) has files of its own in
FOLDER, and writes COUNT / CLIENTS objects in transactions of 1, 5 or 20. One in 25 writes has a property
that the declared type does not have. The processes are ended by kill -9 in turns, KILLS times, as a rule in
the middle of a write, and started again over the same files. In the end each waits until all is uploaded.

FOLDER/allowed is how many objects may be written so far; the caller raises it. FOLDER/written is how many
are. FOLDER/record is what was written, one JSON object for each write: `prefix` (16 hexadecimal digits, of
them 8 for all and 8 for the client), `first` and `count` (the other 8 digits of the ids), `per` (objects of a transaction), `isRefused`, and
`isCertain`: false if the client was killed meanwhile, so that any number of its first transactions may have
been committed. Prints one JSON object.
"""

import collections
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time

END = sys.argv.index("--")
CLIENTS, COUNT, KILLS, PORT = map(int, sys.argv[1:5])
APP, FOLDER = sys.argv[5:END]
COMMAND = sys.argv[END + 1:]
CHUNK = 20
# How long all writes would take without an outage.
SECONDS = COUNT / (COUNT / 300 + 20)
TYPE = "WeatherSensor"
# The first 8 digits of every id; a client's number and the object's follow.
PREFIX = "7265616c"
SCHEMA = [{"name": TYPE, "kind": "asymmetric", "pk": "_id", "props": {
    "_id": "objectId", "deviceId": "string?", "temperatureInFahrenheit": "float?", "windSpeedInMph": "int?",
    "extra": "string?"}}]


class Ended(Exception):
    """The client's process has ended."""


class Client:
    """One process of the driver."""

    def __init__(self, folder, note):
        self.note, self.replies = note, queue.Queue()
        with open(folder + "/errors.log", "ab") as errors:
            self.process = subprocess.Popen(
                COMMAND + ["--log", folder + "/client.log", "--level", "4"], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                # Its last line may be cut off.
                continue
            if "event" in message:
                self.note(message)
            elif "ok" in message or "error" in message:
                self.replies.put(message)
        self.process.wait()
        self.replies.put(None)

    def ask(self, command, seconds=120):
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
        except (OSError, ValueError):
            raise Ended from None
        reply = self.replies.get(timeout=seconds)
        if reply is None:
            raise Ended
        return reply

    def do(self, command):
        reply = self.ask(command)
        if "ok" not in reply:
            raise RuntimeError("%s: %s" % (command["cmd"], reply))
        return reply


class Device(threading.Thread):
    """A device: its files, and one process after the other that opens them."""

    def __init__(self, number, count):
        super().__init__(daemon=True)
        self.number, self.left = number, count
        self.folder = "%s/client-%02d" % (FOLDER, number)
        os.makedirs(self.folder)
        self.lock, self.client, self.is_killed = threading.Lock(), None, False
        self.user, self.next, self.turn = None, 0, 0
        self.written = self.refused = self.starts = self.kills = self.crashes = 0
        self.is_open, self.is_done = threading.Event(), False
        self.record, self.harm, self.told = [], [], collections.Counter()

    # Its process

    def start_client(self):
        """Starts it over the files that are there, until it is open."""
        while True:
            with self.lock:
                self.is_killed = False
                self.client = Client(self.folder, self.note)
            self.starts += 1
            try:
                stored = self.client.do({"cmd": "app", "baseUrl": "http://127.0.0.1:%d" % PORT, "appId": APP,
                                         "dir": self.folder + "/data"})
                if self.user is None:
                    self.user = self.client.do({"cmd": "login", "provider": "anonymous"})["user"]
                elif (stored["user"], stored["userState"]) != (self.user, 1):
                    self.harm.append("the user is not signed in any more: %s" % stored)
                self.client.do({"cmd": "open", "schema": SCHEMA})
                self.is_open.set()
                return
            except Ended:
                self.ended()

    def ended(self):
        if not self.is_killed:
            self.crashes += 1
            self.harm.append("ended by itself, with %s" % self.client.process.wait())

    def kill(self):
        with self.lock:
            # It is being started again.
            if self.is_killed or self.client.process.poll() is not None:
                return False
            self.is_killed = True
            self.client.process.kill()
            self.kills += 1
            return True

    def note(self, event):
        name = event["event"]
        if name == "syncError":
            self.told[event["name"]] += 1
            if event["fatal"] or event["clientReset"]:
                self.harm.append("an error that is fatal or a reset: %s" % event)
        elif name in ("beforeClientReset", "afterClientReset", "syncThreadError"):
            self.harm.append(json.dumps(event))

    # Its work

    def run(self):
        try:
            self.start_client()
            while self.left > 0:
                if FAILURES:
                    return
                if WRITTEN.may_begin():
                    self.write(min(CHUNK, self.left))
                else:
                    time.sleep(0.1)
            self.upload()
            self.is_done = True
        except BaseException as failure:
            FAILURES.append("client %d: %r" % (self.number, failure))

    def write(self, count):
        per, is_refused = random.choice((1, 1, 5, 20)), self.turn % 25 == 24
        self.turn += 1
        first, self.next = self.next, self.next + count
        template = {"deviceId": "WX%d" % self.number, "temperatureInFahrenheit": 66.7}
        if is_refused:
            template["extra"] = "not declared"
        prefix = "%s%08x" % (PREFIX, self.number)
        part = {"prefix": prefix, "first": first, "count": count, "per": per, "isRefused": is_refused}
        try:
            self.client.do({
                "cmd": "writeMany", "class": TYPE, "count": count, "perTransaction": per, "first": first,
                "idPrefix": prefix, "template": template, "counter": "windSpeedInMph",
                "pauseMs": round(1000 * SECONDS * CLIENTS * per / COUNT)})
        except Ended:
            self.record.append(part | {"isCertain": False})
            self.ended()
            self.start_client()
            return
        self.record.append(part | {"isCertain": True})
        self.left -= count
        self.written += count
        self.refused += count if is_refused else 0
        WRITTEN.add(count)

    def upload(self):
        """Waits until the server has acknowledged everything. A wait may end with an outage's error."""
        deadline = time.monotonic() + 900
        while time.monotonic() < deadline and not FAILURES:
            try:
                if "ok" in self.client.ask({"cmd": "waitUpload", "timeoutMs": 20000}):
                    state = self.client.do({"cmd": "state"})
                    if state["user"] != "loggedIn":
                        self.harm.append("in the end its user is %s" % state["user"])
                    self.client.ask({"cmd": "quit"})
                    return
                time.sleep(0.5)
            except Ended:
                self.ended()
                self.start_client()
        raise RuntimeError("not all is uploaded")


class Written:
    """How many objects are written, and may be."""

    def __init__(self):
        self.lock, self.count = threading.Lock(), 0

    def may_begin(self):
        with open(FOLDER + "/allowed") as file:
            return self.count < int(file.read())

    def add(self, count):
        with self.lock:
            self.count += count


WRITTEN, FAILURES = Written(), []


def put(path, text):
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)


def watch(devices):
    kills = 0
    while any(device.is_alive() for device in devices):
        put(FOLDER + "/written", "%d\n" % WRITTEN.count)
        due = WRITTEN.count * (KILLS + 1) // COUNT
        device = devices[kills % CLIENTS]
        if kills < min(KILLS, due) and (device.is_done or device.kill()):
            kills += 1
        time.sleep(0.1)
    put(FOLDER + "/written", "%d\n" % WRITTEN.count)


def main():
    started, devices = time.monotonic(), []
    for number in range(CLIENTS):
        devices.append(Device(number, COUNT // CLIENTS + (number < COUNT % CLIENTS)))
        devices[-1].start()
        # The first one unpacks the native library for all.
        while not devices[-1].is_open.wait(1):
            if FAILURES:
                break
    if not FAILURES:
        watch(devices)
    if FAILURES:
        raise SystemExit("; ".join(FAILURES))
    with open(FOLDER + "/record", "w") as file:
        file.writelines(json.dumps(part) + "\n" for device in devices for part in device.record)
    told = collections.Counter()
    for device in devices:
        told.update(device.told)
    harm = ["client %d: %s" % (device.number, text) for device in devices for text in device.harm]
    print(json.dumps({
        "written": WRITTEN.count, "refused": sum(device.refused for device in devices),
        "interrupted": sum(not part["isCertain"] for device in devices for part in device.record),
        "kills": sum(device.kills for device in devices), "crashes": sum(device.crashes for device in devices),
        "killedEach": min(device.kills for device in devices),
        "harm": len(harm), "harmFirst": harm[:3], "told": told, "seconds": round(time.monotonic() - started),
    }))


def stop(*_):
    raise SystemExit("stopped")


signal.signal(signal.SIGTERM, stop)
main()

"""Saves installations without a pause, as devices do that start, and notes how long each save takes.

usage: saves.py APP_ID APP_KEY PORT DEVICES

Four clients save DEVICES installations in turn until SIGTERM. Prints one JSON object: how many saves there
were, how many were not answered with 200 or 201, and the times in ms: the median, the 99th of a hundred,
and the longest.
"""

import http.client
import json
import signal
import sys
import threading
import time

APP, KEY, PORT, DEVICES = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
HEADERS = {"X-LC-Id": APP, "X-LC-Key": KEY, "Content-Type": "application/json"}
CLIENTS = 4
stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())


class Client(threading.Thread):
    def __init__(self, number):
        super().__init__()
        self.number, self.times, self.failures = number, [], []

    def run(self):
        connection, save = None, 0
        while not stopped.is_set():
            device = (self.number + save * CLIENTS) % DEVICES
            save += 1
            body = json.dumps({"deviceType": "ios", "deviceToken": "%064x" % (device + (1 << 200)),
                               "installationId": "save-%d" % device, "badge": save % 100,
                               "channels": ["saves"], "save": save})
            start = time.monotonic()
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
                connection.request("POST", "/1.1/installations", body, HEADERS)
                answer = connection.getresponse()
                text = answer.read()
                if answer.status not in (200, 201):
                    self.failures.append("%d %s" % (answer.status, text[:200].decode(errors="replace")))
            except (OSError, http.client.HTTPException) as error:
                connection = None
                self.failures.append(repr(error))
            self.times.append(time.monotonic() - start)
            # A hundred a second of each: this is not a load test.
            stopped.wait(max(0, 0.01 - self.times[-1]))


clients = [Client(number) for number in range(CLIENTS)]
for client in clients:
    client.start()
for client in clients:
    client.join()
times = sorted(1000 * t for client in clients for t in client.times)
failures = [failure for client in clients for failure in client.failures]
print(json.dumps({"saves": len(times), "failures": len(failures), "first": failures[:3],
                  "p50": round(times[len(times) // 2], 1), "p99": round(times[len(times) * 99 // 100], 1),
                  "longest": round(times[-1], 1)}))

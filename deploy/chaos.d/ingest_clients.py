"""Sends objects by a service that comes and goes, as devices do that keep each until it is acknowledged.

usage: ingest_clients.py APP_KEY TYPE COUNT RATE PORT PROGRESS ACKNOWLEDGED

Eight clients send COUNT objects in batches of 500, RATE a second in all at most, each until its `_id` is
in `accepted` or `duplicates`; every twentieth batch comes once more, as if its answer had been lost. Of
number n the `_id` is n in 24 hexadecimal digits, and all else follows from n. PROGRESS has how many are
acknowledged so far, ACKNOWLEDGED in the end the `_id` of each. Prints one JSON object.
"""

import base64
import http.client
import json
import os
import sys
import threading
import time

KEY, TYPE, COUNT, RATE, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
PROGRESS, ACKNOWLEDGED = sys.argv[6], sys.argv[7]
CLIENTS, BATCH = 8, 500
HEADERS = {
    "Authorization": "Basic " + base64.b64encode((KEY + ":").encode()).decode(),
    "Content-Type": "application/json",
}
START = time.monotonic()


def made(number):
    return {"_id": "%024x" % number, "deviceId": "WX%d" % (number % 1000),
            "temperatureInFahrenheit": number % 1000 / 8, "windSpeedInMph": number % 100}


class Client:
    def __init__(self):
        self.connection = None
        self.acknowledged = []
        self.repeats, self.asked_to_wait, self.refused, self.strange = 0, 0, 0, []

    def post(self, objects):
        """The ids that the answer acknowledges; None where there is none, or it is the service's trouble."""
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
            self.connection.request("POST", "/v1/ingest/" + TYPE, json.dumps(objects), HEADERS)
            answer = self.connection.getresponse()
            text = answer.read()
            if answer.status in (429, 503):
                self.asked_to_wait += 1
                time.sleep(min(1, float(answer.getheader("Retry-After", "1"))))
                return None
            if answer.status != 200:
                # Its result is unknown, so all of it is sent again; there should be few of these.
                self.strange.append("%d %s" % (answer.status, text[:200].decode(errors="replace")))
                return None
            body = json.loads(text)
            self.refused += len(body["refused"])
            return body["accepted"] + body["duplicates"]
        except (OSError, http.client.HTTPException, ValueError):
            self.connection = None
            return None

    def send(self, objects):
        left = {one["_id"]: one for one in objects}
        while left:
            ids = self.post(list(left.values()))
            if ids is None:
                self.repeats += 1
                time.sleep(0.1)
                continue
            for one in set(ids):
                if left.pop(one, None) is None:
                    raise SystemExit("acknowledged, and never sent: %r" % one)
                self.acknowledged.append(one)


def main():
    clients, failures = [Client() for _ in range(CLIENTS)], []

    def run(number):
        try:
            client, due = clients[number], time.monotonic()
            for turn, first in enumerate(range(number * BATCH, COUNT, CLIENTS * BATCH)):
                if failures:
                    break
                # The delay of an outage is not made up for: the next outage must come among the
                # rest.
                due = max(due + CLIENTS * BATCH / RATE, time.monotonic())
                time.sleep(max(0, due - time.monotonic()))
                objects = [made(n) for n in range(first, min(first + BATCH, COUNT))]
                client.send(objects)
                if turn % 20 == 19:
                    client.post(objects)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    alive = True
    while alive:
        alive = any(thread.is_alive() for thread in threads)
        with open(PROGRESS + ".new", "w") as file:
            file.write("%d\n" % sum(len(client.acknowledged) for client in clients))
        os.replace(PROGRESS + ".new", PROGRESS)
        time.sleep(0.1)
    if failures:
        raise failures[0]
    with open(ACKNOWLEDGED, "w") as file:
        for client in clients:
            file.writelines(one + "\n" for one in client.acknowledged)
    strange = [one for client in clients for one in client.strange]
    print(json.dumps({
        "acknowledged": sum(len(client.acknowledged) for client in clients),
        "refused": sum(client.refused for client in clients),
        "repeats": sum(client.repeats for client in clients),
        "askedToWait": sum(client.asked_to_wait for client in clients),
        "strange": len(strange), "strangeFirst": strange[:3],
        "seconds": round(time.monotonic() - START),
    }))


main()

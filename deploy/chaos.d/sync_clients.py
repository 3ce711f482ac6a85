"""Writes datasets by a service that comes and goes, and sees what each update came to.

usage: sync_clients.py POOL COUNT UPDATES PORT

COUNT identities have a dataset each, to which the installation of their number is subscribed once it is
there. Eight clients write one record of each, UPDATES times in all, each until it is answered: a 200, or
a conflict by which the record turns out to have the value already. Prints one JSON object.
"""

import http.client
import json
import sys
import threading
import time
import urllib.parse

POOL, COUNT, UPDATES, PORT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
CLIENTS = 8


class Client:
    def __init__(self):
        self.connection = None
        self.repeats = 0

    def ask(self, method, path, body=None):
        """The first answer that is not the service's trouble: its status and body."""
        while True:
            try:
                if self.connection is None:
                    self.connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
                self.connection.request(method, path, body and json.dumps(body),
                                        {"Content-Type": "application/json"})
                answer = self.connection.getresponse()
                text = answer.read()
                if answer.status < 500:
                    return answer.status, json.loads(text)
            except (OSError, http.client.HTTPException, ValueError):
                self.connection = None
            self.repeats += 1
            time.sleep(0.05)


class Dataset:
    def __init__(self, number):
        self.device = "%024x" % (number + 1)
        pool = urllib.parse.quote(POOL, safe="")
        self.path = "/identitypools/%s/identities/us-east-1%%3A%s/datasets/d" % (pool, self.device)
        self.token, self.count, self.value = None, 0, None

    def read(self, client):
        status, page = client.ask("GET", self.path + "/records")
        if status != 200:
            raise SystemExit("not read: %d %r" % (status, page))
        self.token = page["SyncSessionToken"]
        return page["Records"][0] if page["Records"] else {"SyncCount": 0, "Value": None}

    def write(self, client, value):
        if self.token is None:
            self.read(client)
        while True:
            status, answer = client.ask("POST", self.path, {
                "SyncSessionToken": self.token, "RecordPatches": [
                    {"Op": "replace", "Key": "k", "Value": value, "SyncCount": self.count}]})
            if status == 200:
                self.count = answer["Records"][0]["SyncCount"]
                break
            if status != 409:
                raise SystemExit("not written: %d %r" % (status, answer))
            # A response was lost.
            record = self.read(client)
            if record["Value"] == value:
                self.count = record["SyncCount"]
                break
            raise SystemExit("a conflict with nobody: %r" % answer)
        if self.value is None:
            status, answer = client.ask("POST", self.path + "/subscriptions/" + self.device)
            if status != 200:
                raise SystemExit("not subscribed: %d %r" % (status, answer))
        self.value = value


def main():
    datasets = [Dataset(number) for number in range(COUNT)]
    answered, failures, repeats = [], [], []

    def run(number):
        client = Client()
        try:
            mine = datasets[number::CLIENTS]
            for turn in range(number, UPDATES, CLIENTS):
                if failures:
                    break
                mine[turn // CLIENTS % len(mine)].write(client, "value %d" % turn)
                answered.append(turn)
        except BaseException as failure:
            failures.append(failure)
        repeats.append(client.repeats)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    client = Client()
    different = sum(one.read(client)["Value"] != one.value for one in datasets)
    print(json.dumps({"answered": len(answered), "different": different, "repeats": sum(repeats)}))


main()

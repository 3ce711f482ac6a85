"""Publishes remote config through replicas that come and go, and watches what clients would see.

usage: config_clients.py APP KEY MASTER_KEY PUBLISHES BROKERS TOPIC PORT PORT

Publishes one version after another, by turns through each port, until so many were accepted; a
publish whose answer was lost may have counted, and is not counted. Meanwhile it reads the topic,
and fetches from both: after a version was read from the topic, no fetch that begins may answer with
an older one. Prints one JSON object.
"""

import base64
import http.client
import json
import subprocess
import sys
import threading
import time

APP, KEY, MASTER, PUBLISHES, BROKERS, TOPIC = sys.argv[1:7]
PORTS = [int(port) for port in sys.argv[7:]]
BASIC = "Basic " + base64.b64encode(f"{APP}:{MASTER}".encode()).decode()

published = 0
accepted = 0
announced = 0
records = []
fetches = 0
older = []
publishing_is_over = threading.Event()
lock = threading.Lock()


def ask(connections, port, method, path, headers, body):
    """An answer's status and body; (0, None) where there was none."""
    try:
        connection = connections.get(port)
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connections[port] = connection
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        connections.pop(port, None)
        return 0, None


def publish():
    global accepted, published
    connections = {}
    number = 0
    while accepted < int(PUBLISHES):
        number += 1
        template = {"parameters": {"number": {"defaultValue": {"value": str(number)}}}}
        status, body = ask(
            connections,
            PORTS[number % len(PORTS)],
            "PUT",
            f"/v1/projects/{APP}/remoteConfig",
            {"Authorization": BASIC, "If-Match": "*", "Content-Type": "application/json"},
            json.dumps(template),
        )
        if status == 200:
            accepted += 1
            published = max(published, int(json.loads(body)["version"]["versionNumber"]))
        elif status not in (0, 503):
            raise SystemExit(f"a publish was refused: {status} {body!r}")
        time.sleep(0.3)


def fetch(number):
    global fetches
    connections = {}
    while not publishing_is_over.is_set():
        for port in PORTS:
            before = announced
            status, body = ask(
                connections,
                port,
                "POST",
                f"/v1/projects/{APP}/namespaces/firebase:fetch?key={KEY}",
                {"Content-Type": "application/json"},
                json.dumps({"appInstanceId": f"client-{number}", "appId": "1:1:android:ab"}),
            )
            if status == 200:
                version = int(json.loads(body).get("templateVersion", "0"))
                with lock:
                    fetches += 1
                    if version < before:
                        older.append((before, version))
            elif status not in (0, 503):
                raise SystemExit(f"a fetch was refused: {status} {body!r}")
            else:
                time.sleep(0.05)


def read_topic(consumer):
    global announced
    for line in consumer.stdout:
        version = int(json.loads(line)["configVersion"])
        records.append(version)
        announced = max(announced, version)


def main():
    consumer = subprocess.Popen(
        ["kcat", "-C", "-q", "-u", "-b", BROKERS, "-t", TOPIC, "-o", "beginning"],
        stdout=subprocess.PIPE,
        text=True,
    )
    threading.Thread(target=read_topic, args=(consumer,), daemon=True).start()
    fetchers = [threading.Thread(target=fetch, args=(number,)) for number in range(4)]
    for fetcher in fetchers:
        fetcher.start()
    try:
        publish()
        # A version that counted without a response may be above the known one.
        deadline = time.monotonic() + 60
        while announced < published and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(2)
    finally:
        publishing_is_over.set()
        for fetcher in fetchers:
            fetcher.join()
        consumer.terminate()
    first_seen = []
    for version in records:
        if version not in first_seen:
            first_seen.append(version)
    print(
        json.dumps(
            {
                "accepted": accepted,
                "published": published,
                "announced": len(first_seen),
                "records": len(records),
                "inOrder": first_seen == sorted(first_seen),
                "lastAnnounced": announced >= published,
                "fetches": fetches,
                "older": len(older),
            }
        )
    )


main()

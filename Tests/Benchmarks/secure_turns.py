"""Makes ids of secure payloads that a reader gets 404 for, of each kind that there is.

usage: secure_turns.py PORT APP MASTER_KEY OTHER_APP OTHER_MASTER_KEY IDENTITY AUTHORIZATION COUNT

Prints a line for each: its kind, the Authorization, and the request. What is to be `expired` waits
yet, and what is `consumed` is in its grace: the caller sees to the former, and waits for the latter.
"""

import base64
import http.client
import json
import os
import sys

PORT = int(sys.argv[1])
APP, MASTER, OTHER_APP, OTHER_MASTER, IDENTITY, AUTHORIZATION = sys.argv[2:8]
COUNT = int(sys.argv[8])

connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)


def ask(method, path, authorization, expected, body=None):
    headers = {"Authorization": authorization}
    if body is not None:
        headers["Content-Type"] = "application/json"
        body = json.dumps(body)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != expected:
        sys.exit("%s %s: %d %s" % (method, path, answer.status, text.decode(errors="replace")))
    return json.loads(text) if text else None


def keep(app, master, identity, **more):
    pair = base64.b64encode(("%s:%s" % (app, master)).encode()).decode()
    body = {"identity": identity, "payload": "x" * 400, **more}
    return ask("POST", "/api/notifications", "Basic " + pair, 201, body)["Id"]


def path(number):
    return "/api/notifications/%s" % number


def deleted():
    kept = keep(APP, MASTER, IDENTITY)
    ask("DELETE", path(kept), AUTHORIZATION, 204)
    return kept


def consumed():
    kept = keep(APP, MASTER, IDENTITY, readOnce=True)
    ask("GET", path(kept), AUTHORIZATION, 200)
    return kept


KINDS = {
    "another's": lambda: keep(APP, MASTER, "somebody else"),
    "another app's": lambda: keep(OTHER_APP, OTHER_MASTER, IDENTITY),
    "expired": lambda: keep(APP, MASTER, IDENTITY),
    "deleted": deleted,
    "consumed": consumed,
    "made up": lambda: os.urandom(16).hex(),
}

for number in range(COUNT):
    for kind, make in KINDS.items():
        print(kind, AUTHORIZATION, "GET " + path(make()), sep="\t")

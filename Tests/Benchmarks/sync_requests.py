"""Writes files of requests for Cognito Sync's surface, as `carillon-bench requests` reads them.

usage: sync_requests.py PORT POOL DATASETS KEYS FOLDER

The identities are those that deploy/bench has written: 1 to DATASETS in hexadecimal, each with a dataset d1
of 20 records. sync-updates has KEYS updates of each, of a new key each; sync-lists and sync-subscriptions
one request of each. Nothing is signed.
"""

import http.client
import json
import sys
import urllib.parse

PORT, POOL, DATASETS, KEYS, FOLDER = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
updates, lists, subscriptions = [], [], []
for number in range(1, DATASETS + 1):
    device = "%024x" % number
    path = "/identitypools/%s/identities/us-east-1%%3A%s/datasets/d1" % (urllib.parse.quote(POOL, safe=""), device)
    connection.request("GET", path + "/records")
    answer = connection.getresponse()
    page = json.loads(answer.read())
    if answer.status != 200 or page["Count"] < 20:
        sys.exit("not read: %d %r" % (answer.status, page))
    updates.append((path, page["SyncSessionToken"]))
    lists.append("list\t-\tGET %s/records?maxResults=20\n" % path)
    subscriptions.append("subscribe\t-\tPOST %s/subscriptions/%s\t{}\n" % (path, device))
with open(FOLDER + "/sync-updates", "w") as file:
    for key in range(KEYS):
        for path, token in updates:
            body = json.dumps({"SyncSessionToken": token, "RecordPatches": [
                {"Op": "replace", "Key": "key-%d" % key, "Value": "x" * 100, "SyncCount": 0}]})
            file.write("update\t-\tPOST %s\t%s\n" % (path, body))
for name, lines in (("lists", lists), ("subscriptions", subscriptions)):
    with open(FOLDER + "/sync-" + name, "w") as file:
        file.writelines(lines)

"""Makes devices readers of secure payloads, and prints how each proves itself.

usage: secure_readers.py PORT APP MASTER_KEY COUNT

The installations are those that deploy/bench has written: 1 to COUNT in hexadecimal, three of one
identity. Prints a line each: the identity, the installation's id, its Authorization.
"""

import base64
import http.client
import json
import sys

PORT, APP, MASTER, COUNT = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
HEADERS = {"X-LC-Id": APP, "X-LC-Key": MASTER + ",master", "Content-Type": "application/json"}

connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
for number in range(1, COUNT + 1):
    installation = "%024x" % number
    connection.request("PUT", "/v1/installations/%s/reader" % installation, "{}", HEADERS)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        sys.exit("no reader: %d %s" % (answer.status, body.decode(errors="replace")))
    reader = json.loads(body)
    pair = "%s:%s" % (installation, reader["deviceSecret"])
    proof = "Basic " + base64.b64encode(pair.encode()).decode()
    print(reader["identity"], installation, proof, sep="\t")

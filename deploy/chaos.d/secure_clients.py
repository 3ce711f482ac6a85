"""Has secure payloads kept by a service that comes and goes, and sees what each request came to.

usage: secure_clients.py APP MASTER_KEY IDENTITY COUNT PORT

Eight clients post COUNT texts for the identity, each with an Idempotency-Key of its own and until it
is answered 201. Then the service stays, and the clients post each once more, which must be answered as
the first time, and read each as the identity. Prints one JSON object, of which `ids` are lists of the
id and the push's id that each was answered.
"""

import base64
import http.client
import json
import queue
import sys
import threading
import time

APP, MASTER, IDENTITY, COUNT, PORT = (
    sys.argv[1],
    sys.argv[2],
    sys.argv[3],
    int(sys.argv[4]),
    int(sys.argv[5]),
)


def basic(name, secret):
    return "Basic " + base64.b64encode(("%s:%s" % (name, secret)).encode()).decode()


def text(number):
    return "secret number %d" % number


class Client:
    def __init__(self):
        self.connection = None
        self.repeats = 0

    def ask(self, method, path, headers, body=None):
        """An answer's status, body and headers; None where the connection did not bring it."""
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
            self.connection.request(method, path, body, headers)
            answer = self.connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            self.connection = None
            return None

    def until_answered(self, method, path, headers, body=None):
        """The first answer that is not the service's trouble."""
        while True:
            answer = self.ask(method, path, headers, body)
            if answer is not None and answer[0] not in (500, 503):
                return answer
            self.repeats += 1
            time.sleep(0.05)

    def post(self, number):
        status, body = self.until_answered(
            "POST",
            "/api/notifications",
            {
                "Authorization": basic(APP, MASTER),
                "Content-Type": "application/json",
                "Idempotency-Key": "chaos-%d" % number,
            },
            json.dumps({"identity": IDENTITY, "payload": text(number)}),
        )
        if status != 201:
            raise SystemExit("not kept: %d %r" % (status, body))
        return json.loads(body)

    def read(self, secret, number):
        return self.until_answered(
            "GET",
            "/%s/api/notifications/%s" % (APP, number),
            {"Authorization": basic(IDENTITY, secret)},
        )


def each(work):
    """Calls work(client, number) for each number, by eight clients; how often they asked again."""
    numbers = queue.SimpleQueue()
    for number in range(COUNT):
        numbers.put(number)
    repeats, failures = [], []

    def run():
        client = Client()
        try:
            while not failures:
                work(client, numbers.get_nowait())
        except queue.Empty:
            pass
        except BaseException as failure:
            failures.append(failure)
        repeats.append(client.repeats)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sum(repeats)


def main():
    answers = [None] * COUNT
    differ, wrong = [], []

    def post(client, number):
        answers[number] = client.post(number)
        # This leaves work for the last of the kills to interrupt.
        time.sleep(0.01)

    def post_again(client, number):
        if client.post(number) != answers[number]:
            differ.append(number)

    repeats = each(post)
    print("all are kept", file=sys.stderr, flush=True)
    # The process that ended the service last may still have to start it again.
    each(post_again)
    status, body = Client().until_answered(
        "PUT",
        "/v1/identities/%s/secret" % IDENTITY,
        {"Authorization": basic(APP, MASTER), "Content-Type": "application/json"},
        "{}",
    )
    if status != 200:
        raise SystemExit("no secret: %d %r" % (status, body))
    secret = json.loads(body)["secret"]

    def read(client, number):
        status, body = client.read(secret, answers[number]["Id"])
        if status != 200 or json.loads(body)["Payload"] != text(number):
            wrong.append(number)

    each(read)
    print(
        json.dumps(
            {
                "answered": sum(answer is not None for answer in answers),
                "repeats": repeats,
                "different": len(differ),
                "unreadable": len(wrong),
                "ids": [[answer["Id"], answer["pushId"]] for answer in answers],
            }
        )
    )


main()

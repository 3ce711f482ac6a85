"""A model of a Realm client, as strict as those that are built with assertions.

Reads a dialogue from standard input, one JSON object a line: {"dir": "client" | "server", "hex": …},
in the order of the bytes. `{"dir": "open"}` begins another connection of the same client, whose files
keep their progress. Ends with 1 and a reason at the first byte that would end, stop or empty a client.
"""

import base64
import json
import sys
import zlib

HIGHEST = 2**63 - 1
KEYS = {"message", "logURL", "tryAgain", "shouldClientReset", "isRecoveryModeDisabled", "action"}
PAUSE = {"backoffIntervalSec", "backoffMaxDelaySec", "backoffMultiplier"}
WRITE = {"rejectedUpdates", "rejectedClientVersion", "compensatingWriteServerVersion"}


class Breach(Exception):
    pass


def require(holds, reason):
    if not holds:
        raise Breach(reason)


def number(text):
    require(text.isascii() and text.isdigit(), f"{text!r} is not a number")
    require(text == "0" or text[0] != "0", f"{text!r} has a leading zero")
    value = int(text)
    require(value <= HIGHEST, f"{text!r} is too large")
    return value


def parse(message, words):
    """Splits a message into its word, its numbers and its body."""
    line, newline, body = message.partition(b"\n")
    require(newline, "a head does not end")
    word, *fields = line.decode("ascii").split(" ")
    require(word in words, f"the word {word!r} is unknown")
    require(len(fields) == words[word], f"{word} has {len(fields)} numbers")
    return word, [number(field) for field in fields], body


CLIENT = {
    "bind": 5, "ident": 9, "query": 3, "mark": 2, "upload": 7, "unbind": 1, "ping": 2,
    "json_error": 3, "test_command": 3,
}
SERVER = {
    "ident": 3, "download": 13, "mark": 2, "unbound": 1, "pong": 1, "json_error": 3,
    "log_message": 2,
}


class Session:
    """A file, as one connection sees it."""

    def __init__(self, needs_ident):
        self.needs_ident = needs_ident
        self.ident = None
        self.is_begun = False
        self.is_stopped = False
        self.is_unbinding = False
        self.download_server = self.latest_server = 0
        self.latest_salt = 0
        self.download_client = self.upload_client = 0
        self.upload_server = 0
        self.own_version = 0
        self.query_version = 0
        self.pending_query = None
        self.is_bootstrapped = False
        self.marks = []
        self.refusals = []


class Client:
    def __init__(self):
        self.connect()

    def connect(self):
        self.sessions = {}
        self.is_ended = False
        self.pings = []

    # What the client says.

    def says(self, message):
        require(not self.is_ended, "the client speaks after the end of the connection")
        word, numbers, body = parse(message, CLIENT)
        if word == "ping":
            self.pings.append(numbers[0])
            return
        if word in ("json_error", "test_command"):
            return
        if word == "bind":
            require(numbers[0] not in self.sessions, "a session is bound twice")
            self.sessions[numbers[0]] = Session(numbers[3] == 1)
            return
        session = self.sessions[numbers[0]]
        if word == "ident":
            session.is_begun = True
            require(not session.needs_ident or session.ident == numbers[1:3], "another identity")
            session.ident = numbers[1:3]
            session.download_server, session.download_client = numbers[3], numbers[4]
            session.latest_server, session.latest_salt = numbers[5], numbers[6]
            session.upload_client = session.own_version = numbers[4]
            session.query_version = numbers[7]
            session.is_bootstrapped = numbers[3] > 0
        elif word == "query":
            session.pending_query = numbers[1]
        elif word == "mark":
            session.marks.append(numbers[1])
        elif word == "unbind":
            session.is_unbinding = True
        elif word == "upload":
            if numbers[1]:
                require(len(body) == numbers[3], "a compressed size is wrong")
                body = zlib.decompress(body)
            require(len(body) == numbers[2], "a size is wrong")
            while body:
                version, server, _, _, size, body = body.split(b" ", 5)
                session.own_version = max(session.own_version, int(version))
                body = body[int(size):]

    # What the server says.

    def hears(self, message):
        require(not self.is_ended, "a message after the end of the connection")
        word, numbers, body = parse(message, SERVER)
        if word == "pong":
            require(not body, "pong has a body")
            require(self.pings and self.pings.pop(0) == numbers[0], "a pong that was not asked")
            return
        if word == "json_error":
            self.error(numbers, body)
            return
        require(numbers[0] in self.sessions, f"{word} for an unbound session")
        session = self.sessions[numbers[0]]
        if word == "unbound":
            require(session.is_unbinding and not body, "unbound that was not asked")
            del self.sessions[numbers[0]]
            return
        require(not session.is_stopped, f"{word} for a session that has an error")
        require(not session.is_unbinding or word != "mark", "mark for a session that ends")
        if word == "ident":
            require(session.needs_ident and session.ident is None, "ident that was not asked")
            require(numbers[1] >= 2 and numbers[2] >= 1 and not body, "an invalid identity")
            session.ident = numbers[1:3]
        elif word == "mark":
            require(session.marks and session.marks.pop(0) == numbers[1], "mark was not asked")
            require(session.is_bootstrapped and not body, "mark before its download")
        elif word == "log_message":
            require(len(body) == numbers[1], "the size of a log message is wrong")
            require(set(json.loads(body)) == {"level", "msg", "co_id"}, "keys of a log message")
        else:
            self.download(session, numbers[1:], body)

    def download(self, session, numbers, body):
        (server, client, latest, salt, up_client, up_server, query, state, progress, packed,
         plain, size) = numbers
        require(session.is_begun, "download before ident")
        require(packed == 0 and size == 0 and len(body) == plain, "the size of a download is wrong")
        require(progress == 0, "the progress is not 0")
        require(server <= latest, "download S is ahead of latest S")
        require((latest == 0) == (salt == 0), "the salt does not fit the version")
        require(latest > session.latest_server or salt == session.latest_salt, "another salt")
        require(server >= session.download_server, "download S falls")
        require(latest >= session.latest_server, "latest S falls")
        require(client >= session.download_client, "download C falls")
        require(up_client >= session.upload_client, "upload C falls")
        require(up_server >= session.upload_server, "upload S falls")
        require(up_client <= session.own_version, "upload C is ahead of the client")
        require(client <= up_client, "download C is ahead of upload C")
        require(up_server <= server, "upload S is ahead of download S")
        changesets = []
        while body:
            parts = body.split(b" ", 6)
            require(len(parts) == 7, "a changeset has no head")
            s, c, _, origin, original, length = (number(part.decode("ascii")) for part in parts[:6])
            body = parts[6]
            require(length <= len(body) and original == length, "the size of a changeset is wrong")
            require(length == 0, "a changeset has instructions")
            body = body[length:]
            require(session.download_server < s <= server, "a changeset of another server version")
            require(not changesets or s > changesets[-1], "changesets are out of order")
            require(c <= up_client, "a changeset is ahead of upload C")
            require(origin > 0 and origin != session.ident[0], "a changeset of the own file")
            changesets.append(s)
        if state == 1:
            # Without a changeset the client loops for ever.
            require(changesets, "a bootstrap without a changeset")
            if session.is_bootstrapped:
                require(query == session.pending_query, "a bootstrap of no pending query")
            else:
                require(query in (session.query_version, session.pending_query), "another query")
            session.query_version, session.pending_query = query, None
            session.is_bootstrapped = True
        else:
            require(state == 2, f"the batch state is {state}")
            require(session.is_bootstrapped, "an acknowledgement before the bootstrap")
            require(query == session.query_version, "an acknowledgement of another query")
            require(up_client > session.upload_client, "an acknowledgement of nothing")
            reported = [refusal[1] for refusal in session.refusals if refusal[1] <= server]
            require(changesets == reported, f"changesets {changesets} for the reports {reported}")
            for refused_client, _ in session.refusals:
                require(refused_client <= up_client, "a report of a version not acknowledged")
            session.refusals = []
        session.download_server, session.latest_server, session.latest_salt = server, latest, salt
        session.download_client, session.upload_client = client, up_client
        session.upload_server = up_server

    def error(self, numbers, body):
        code, size, name = numbers
        require(len(body) == size, "the size of an error is wrong")
        error = json.loads(body.decode("utf-8"))
        require(KEYS <= set(error), "an error lacks a key")
        for key in ("tryAgain", "shouldClientReset", "isRecoveryModeDisabled"):
            require(isinstance(error[key], bool), f"{key} is not a boolean")
        require(error["shouldClientReset"] is False and error["tryAgain"] is True, "a reset")
        rest = set(error) - KEYS
        if code in (101, 201):
            require(error["action"] == "Transient", f"{code} with the action {error['action']}")
            require(rest in (set(), PAUSE), "a pause has three keys")
            require(all(type(error[key]) is int and error[key] > 0 for key in rest), "a pause")
        else:
            require(code == 231, f"the code {code}")
            require(error["action"] == "Warning" and rest == WRITE, "a compensating write's keys")
        if code == 101:
            require(name == 0, "101 has no session")
            self.is_ended = True
            return
        require(name in self.sessions, "an error of an unbound session")
        session = self.sessions[name]
        require(session.is_begun and not session.is_stopped, "an error of a stopped session")
        if code == 201:
            session.is_stopped = True
            return
        server = error["compensatingWriteServerVersion"]
        client = error["rejectedClientVersion"]
        require(type(server) is int and type(client) is int, "a version is not a number")
        require(server > session.download_server, "a report of a server version that has passed")
        require(client <= session.own_version, "a report ahead of the client")
        require(not session.refusals or server > session.refusals[-1][1], "reports out of order")
        require(error["rejectedUpdates"], "a report of nothing")
        for update in error["rejectedUpdates"]:
            require(set(update) == {"table", "pk", "reason"}, "a refused object's keys")
            require(0 < len(update["table"].encode()) <= 63, "a class name")
            check_key(base64.b64decode(update["pk"], validate=True))
        session.refusals.append((client, server))


def check_key(data):
    """Decodes the key of a refused object; a client ends if it cannot."""
    require(data, "an empty key")
    kind, rest = data[0], data[1:]
    if kind == 0x00:
        require(not rest, "a null key has more bytes")
    elif kind == 0x01:
        require(integer(rest)[1] == b"", "an integer key has more bytes")
    elif kind == 0x03:
        length, rest = integer(rest)
        require(length == len(rest), "the length of a key is wrong")
        rest.decode("utf-8")
    else:
        require(kind in (0x0A, 0x0B), f"a key of the type {kind}")
        require(len(rest) == (12 if kind == 0x0A else 16), "the size of an id is wrong")


def integer(data):
    value = 0
    for place, byte in enumerate(data[:10]):
        if byte < 0x80:
            value |= (byte & 0x3F) << 7 * place
            return (~value if byte & 0x40 else value), data[place + 1:]
        value |= (byte & 0x7F) << 7 * place
    raise Breach("an integer does not end")


def main():
    client = Client()
    messages = 0
    for line in sys.stdin:
        turn = json.loads(line)
        try:
            if turn["dir"] == "open":
                client.connect()
                continue
            message = bytes.fromhex(turn["hex"])
            if turn["dir"] == "client":
                client.says(message)
            else:
                client.hears(message)
        except (Breach, ValueError, UnicodeDecodeError, KeyError) as breach:
            sys.exit(f"message {messages}: {breach!r}")
        messages += 1
    print(messages)


if __name__ == "__main__":
    main()

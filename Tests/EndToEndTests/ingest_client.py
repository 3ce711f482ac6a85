"""Segment's, RudderStack's and CloudEvents' own packages, unchanged but for their address.

usage: ingest_client.py SCENARIO

INGEST_URL is the service's address, APP_ID and APP_KEY are those of an app that has the type
WeatherSensor and that nobody else uses. What was sent and must be there once is a line "sent TYPE ID" of
standard output. Each promise that did not hold is a line on standard error and makes the exit status 1;
the last line of standard output is JSON for the caller.
"""

import base64
import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid
from datetime import datetime, timezone

URL, APP_KEY = os.environ["INGEST_URL"], os.environ["APP_KEY"]
problems, checked = [], 0


def check(what, got, wanted=True):
    global checked
    checked += 1
    if got != wanted:
        problems.append(what)
        print(f"{what}: got {got!r}, wanted {wanted!r}", file=sys.stderr)


def sent(kind, identifier):
    print("sent", kind, identifier)


def calls(client, count):
    """So many of each, and 20 times as many of track; what is sent is told."""
    def told(kind, result):
        # Segment returns (success, message) with the id that it made, and so does RudderStack.
        check(f"{kind} is queued", result[0])
        sent("Segment" + kind, result[1]["messageId"])

    user, when = f"user-{uuid.uuid4()}", datetime(2024, 2, 29, 12, 0, 0, 123456, timezone.utc)
    for number in range(count):
        for reading in range(20):
            told("Track", client.track(
                user, "Reading é🔔", {"number": number, "reading": reading, "value": 66.7, "none": None}))
        told("Identify", client.identify(user, {"email": "ann@example.com"}, timestamp=when))
        told("Group", client.group(user, "a-group", {"name": "Bells"}))
        told("Page", client.page(user, "Shop", "Start", {"url": "https://example.com/"}))
        told("Screen", client.screen(anonymous_id=f"nobody-{number}", name="Start"))
        told("Alias", client.alias("an-old-name", user))


def package_calls(make):
    """All calls, by a thread and by none, with and without gzip, and ids that are no UUIDs."""
    failures = []

    def failed(error, items):
        failures.append((str(error), len(items)))

    for compressed in (False, True):
        client = make(on_error=failed, gzip=compressed)
        calls(client, 15)
        client.flush()
        client.join()
        client = make(on_error=failed, gzip=compressed, sync_mode=True)
        calls(client, 1)
    # A repeat is recognised by its id, in any form.
    client = make(on_error=failed, sync_mode=True)
    repeated = str(uuid.uuid4())
    for _ in range(3):
        client.track("ann", "Repeated", message_id=repeated)
        client.track("ann", "Repeated", message_id=f"not-a-uuid-{repeated}")
    sent("SegmentTrack", repeated)
    sent("SegmentTrack", "*")
    check("failures", failures, [])


def segment():
    from segment.analytics import Client
    package_calls(lambda **options: Client(APP_KEY, host=URL, **options))


def segment_module():
    import segment.analytics as analytics
    analytics.write_key, analytics.host, analytics.gzip = APP_KEY, URL, True
    identifier = str(uuid.uuid4())
    failures = []
    analytics.on_error = lambda error, items: failures.append(str(error))
    analytics.track("ann", "By the module", message_id=identifier)
    analytics.flush()
    analytics.shutdown()
    sent("SegmentTrack", identifier)
    check("failures", failures, [])


def rudder():
    from rudderstack.analytics import Client
    package_calls(lambda **options: Client(APP_KEY, host=URL, **options))


def segment_limited():
    """More than the app's quota lets in, for so many seconds: all of it comes, none twice."""
    from segment.analytics import Client
    failures, seconds = [], float(os.environ["LIMITED_SECONDS"])
    client = Client(APP_KEY, host=URL, on_error=lambda error, items: failures.append(str(error)))
    begin = time.monotonic()
    for number in range(int(os.environ["LIMITED_COUNT"])):
        queued, message = client.track("ann", "Reading", {"number": number})
        check("queued", queued)
        sent("SegmentTrack", message["messageId"])
    client.flush()
    took = time.monotonic() - begin
    client.join()
    check("failures", failures, [])
    check(f"it was told to wait: it took {took:.1f} s", took > seconds * 0.8)
    print(f"took {took:.1f} s")


# ── CloudEvents ─────────────────────────────────────────────────────────────────────────────────


def post(headers, body, path="/events"):
    """The status and the JSON of an answer."""
    credentials = base64.b64encode(f"{APP_KEY}:".encode()).decode()
    request = urllib.request.Request(
        URL + path, body, {"Authorization": f"Basic {credentials}", **headers}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


def object_id():
    return uuid.uuid4().hex[:24]


def reading(**more):
    return {"deviceId": "WX1278UIT", "temperatureInFahrenheit": 66.7, "windSpeedInMph": 2, **more}


def cloudevents():
    from cloudevents.core.bindings.http import to_binary_event, to_structured_event
    from cloudevents.core.v1.event import CloudEvent

    def event(data=None, **attributes):
        identifier = object_id()
        return CloudEvent(
            {"type": "WeatherSensor", "source": "/sensors/é 1278", "id": identifier,
             "specversion": "1.0", "time": datetime.now(timezone.utc),
             "datacontenttype": "application/json", **attributes},
            reading() if data is None else data)

    for number in range(10):
        one = event(subject="a subject, 100 %", batch=str(number))
        message = to_binary_event(one)
        check("binary", post(message.headers, message.body), (204, None))
        sent("WeatherSensor", one.get_id())
        one = event()
        message = to_structured_event(one)
        check("structured", post(message.headers, message.body), (204, None))
        check("structured again", post(message.headers, message.body)[0], 204)
        sent("WeatherSensor", one.get_id())
    # There is no helper for batches.
    batched = {"Content-Type": "application/cloudevents-batch+json"}

    def batch(*events):
        return post(batched, b"[" + b",".join(to_structured_event(one).body for one in events) + b"]")

    many = [event() for _ in range(50)]
    check("a batch", batch(*many, many[0]), (204, None))
    for one in many:
        sent("WeatherSensor", one.get_id())
    check("an empty batch", post(batched, b"[]"), (204, None))

    # An invalid one is a separate error, and its neighbours are stored.
    bad = event({"deviceId": 7})
    good = [event(), event(), event()]
    status, answer = batch(good[0], bad, good[1])
    check("a batch with a bad one", status, 400)
    check("what is accepted", answer["accepted"], [one.get_id() for one in good[:2]])
    check("what is refused", [(one["index"], one["_id"], one["pointer"]) for one in answer["refused"]],
          [(1, bad.get_id(), "/deviceId")])
    status, answer = batch(good[2], event(type="Nobody.Declared"))
    check("a batch with an unknown type", status, 404)
    check("which", [one["index"] for one in answer["refused"]], [1])
    lone, neighbour = event(), event()
    broken = to_structured_event(lone).body.replace(b"WX1278UIT", b"\\ud83d")
    check("it is broken", b"\\ud83d" in broken)
    status, answer = post(batched, b"[" + broken + b"," + to_structured_event(neighbour).body + b"]")
    check("a batch with a lone surrogate", status, 400)
    check("where it is", [(one["index"], one["pointer"]) for one in answer["refused"]],
          [(0, "/data/deviceId")])
    for one in good + [neighbour]:
        sent("WeatherSensor", one.get_id())
    message = to_binary_event(event(type="Nobody.Declared"))
    check("an unknown type", post(message.headers, message.body)[0], 404)

    # The id is the object's own, or the event's if it is valid, or else derived from source and id.
    mine = object_id()
    one = event(reading(_id=mine))
    message = to_structured_event(one)
    check("an id in the data", post(message.headers, message.body)[0], 204)
    sent("WeatherSensor", mine)
    for _ in range(2):
        message = to_structured_event(event(id="reading 1"))
        check("an id that is none of ours", post(message.headers, message.body)[0], 204)
        message = to_binary_event(event(id="reading 1"))
        check("the same, binary", post(message.headers, message.body)[0], 204)
    sent("WeatherSensor", "*")
    message = to_structured_event(event(id="reading 1", source="/sensors/1279"))
    check("of another source", post(message.headers, message.body)[0], 204)
    sent("WeatherSensor", "*")

    # The package encodes bytes as data_base64.
    one = event(json.dumps(reading()).encode(), datacontenttype="application/json")
    message = to_structured_event(one)
    check("the package codes bytes", b"data_base64" in message.body)
    check("bytes", post(message.headers, message.body)[0], 204)
    sent("WeatherSensor", one.get_id())
    message = to_binary_event(event("a bare text", datacontenttype="text/plain"))
    check("no JSON", post(message.headers, message.body)[0], 400)
    headers = dict(to_binary_event(event()).headers)
    headers.pop("ce-source")
    check("no source", post(headers, b"{}")[0], 400)
    check("no event", post({"Content-Type": "application/json"}, b"{}")[0], 415)
    check("XML", post({"Content-Type": "application/cloudevents+xml"}, b"<event/>")[0], 415)


def cloudevents_former():
    """The helpers that were `cloudevents.http`: without a content type, binary has none."""
    from cloudevents.v1.http import CloudEvent, to_binary, to_structured
    for number in range(5):
        attributes = {"type": "WeatherSensor", "source": "/sensors/1278", "id": str(uuid.uuid4())}
        headers, body = to_binary(CloudEvent(attributes, reading()))
        # urllib would add one of its own.
        headers.setdefault("Content-Type", "")
        check("binary", post(headers, body), (204, None))
        sent("WeatherSensor", attributes["id"])
        attributes = dict(attributes, id=str(uuid.uuid4()).upper())
        headers, body = to_structured(CloudEvent(attributes, reading()))
        check("structured", post(headers, body), (204, None))
        sent("WeatherSensor", attributes["id"].lower())


scenarios = {
    "segment": segment, "segment, by its module": segment_module, "segment, limited": segment_limited,
    "rudder": rudder, "cloudevents": cloudevents, "cloudevents, as it was": cloudevents_former,
}
scenarios[sys.argv[1]]()
print(json.dumps({"checked": checked, "problems": len(problems)}))
sys.exit(1 if problems else 0)

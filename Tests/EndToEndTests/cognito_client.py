"""Amazon Cognito Sync by boto3, unchanged but for its endpoint.

usage: cognito_client.py SCENARIO

APP_ID, APP_KEY and MASTER_KEY are those of an app that nobody else uses, POOL an identity pool that is
linked to it. Each promise that did not hold is a line on standard error and makes the exit status 1; the
last line of standard output is JSON for the caller.
"""

import hashlib
import http.client
import json
import os
import secrets
import sys
import threading
import time
import urllib.parse
import urllib.request
import uuid

import boto3
import botocore
from botocore import auth, awsrequest, credentials
from botocore.config import Config
from botocore.exceptions import ClientError

URL, POOL = os.environ["REGISTRATION_URL"], os.environ["POOL"]
APP, APP_KEY, MASTER_KEY = (os.environ[name] for name in ("APP_ID", "APP_KEY", "MASTER_KEY"))
SIMULATOR = os.environ["SIMULATOR_URL"]
ARN = "arn:aws:sns:us-east-1:123456789012:app/"
ROLE = "arn:aws:iam::123456789012:role/push-sync"
problems, checked = [], 0


def check(what, got, wanted=True):
    global checked
    checked += 1
    if got != wanted:
        problems.append(what)
        print(f"{what}: got {got!r}, wanted {wanted!r}", file=sys.stderr)


def client(access, secret, **options):
    options.setdefault("retries", {"total_max_attempts": 1})
    return boto3.client(
        "cognito-sync", region_name="us-east-1", endpoint_url=URL,
        aws_access_key_id=access, aws_secret_access_key=secret, config=Config(**options))


me, developer = client(APP, APP_KEY), client(APP + ":master", MASTER_KEY)
unsigned = client("-", "-", signature_version=botocore.UNSIGNED)


def refused(what, name, call, **arguments):
    """A call that must fail by the modelled class of this name."""
    try:
        call(**arguments)
    except ClientError as error:
        modelled = getattr(me.exceptions, name)
        check(f"{what}: its class, {error}", type(error).__name__, modelled.__name__)
        check(f"{what}: its message", bool(error.response.get("message")))
        return error.response
    check(f"{what} is refused")
    return None


def identity():
    return {"IdentityPoolId": POOL, "IdentityId": f"us-east-1:{uuid.uuid4()}"}


def dataset(owner=None, name="notes"):
    return dict(owner or identity(), DatasetName=name)


def session(of, by=me):
    return by.list_records(**of)["SyncSessionToken"]


def put(key, value, count=0):
    return {"Op": "replace", "Key": key, "Value": value, "SyncCount": count}


def drop(key, count):
    return {"Op": "remove", "Key": key, "SyncCount": count}


def save(of, *patches, by=me, **more):
    return by.update_records(**of, SyncSessionToken=session(of, by), RecordPatches=list(patches), **more)


def records(of, **more):
    page = me.list_records(**of, **more)
    return {item["Key"]: (item.get("Value"), item["SyncCount"]) for item in page["Records"]}


def switch_on():
    developer.set_identity_pool_configuration(
        IdentityPoolId=POOL, PushSync={"ApplicationArns": [ARN + "GCM/shop"], "RoleArn": ROLE})


# ── All operations ──────────────────────────────────────────────────────────────────────────────


def operations():
    """All seventeen, by those who may, and by those who may not."""
    pool, of = {"IdentityPoolId": POOL}, dataset()
    owner = {name: of[name] for name in ("IdentityPoolId", "IdentityId")}
    refused("a device of a pool that does not push", "InvalidConfigurationException",
            me.register_device, **owner, Platform="GCM", Token="t")
    check("no configuration", "PushSync" in developer.get_identity_pool_configuration(**pool), False)
    switch_on()
    check("configured", developer.get_identity_pool_configuration(**pool)["PushSync"],
          {"ApplicationArns": [ARN + "GCM/shop"], "RoleArn": ROLE})
    developer.set_identity_pool_configuration(
        **pool, CognitoStreams={"StreamName": "s", "StreamingStatus": "DISABLED"})
    check("the rest stays", "PushSync" in developer.get_identity_pool_configuration(**pool))
    told = refused("streams", "InvalidParameterException", developer.set_identity_pool_configuration,
                   **pool, CognitoStreams={"StreamingStatus": "ENABLED"})
    check("it names the topic", "dataset.changes" in told["message"])
    device = me.register_device(**owner, Platform="GCM", Token=secrets.token_hex(20))["DeviceId"]
    check("no dataset yet", me.list_records(**of)["DatasetExists"], False)
    check("one record", [r["SyncCount"] for r in save(of, put("a", "1"))["Records"]], [1])
    me.subscribe_to_dataset(**of, DeviceId=device)
    me.subscribe_to_dataset(**of, DeviceId=device)
    check("records", records(of), {"a": ("1", 1)})
    check("datasets", [d["DatasetName"] for d in me.list_datasets(**owner)["Datasets"]], ["notes"])
    described = me.describe_dataset(**of)["Dataset"]
    check("described", (described["NumRecords"], described["DataStorage"]), (1, 2))
    check("usage", me.describe_identity_usage(**owner)["IdentityUsage"]["DatasetCount"], 1)
    nobody = me.describe_identity_usage(**identity())["IdentityUsage"]
    check("usage of nobody", (nobody["DatasetCount"], nobody["DataStorage"]), (0, 0))
    usage = developer.describe_identity_pool_usage(**pool)["IdentityPoolUsage"]
    check("usage of the pool", usage["DataStorage"], 2)
    check("pools", [p["IdentityPoolId"] for p in developer.list_identity_pool_usage()["IdentityPoolUsages"]],
          [POOL])
    check("events", developer.get_cognito_events(**pool)["Events"], {})
    developer.set_cognito_events(**pool, Events={"SyncTrigger": ""})
    refused("a function", "InvalidParameterException", developer.set_cognito_events,
            **pool, Events={"SyncTrigger": "arn:aws:lambda:x"})
    check("never published", developer.get_bulk_publish_details(**pool)["BulkPublishStatus"], "NOT_STARTED")
    developer.bulk_publish(**pool)
    deadline = time.monotonic() + 60
    while (status := developer.get_bulk_publish_details(**pool))["BulkPublishStatus"] == "IN_PROGRESS":
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    check("published", status["BulkPublishStatus"], "SUCCEEDED")
    refused("the second of a day", "AlreadyStreamedException", developer.bulk_publish, **pool)
    for name in ("list_identity_pool_usage", "describe_identity_pool_usage", "get_identity_pool_configuration",
                 "get_cognito_events", "bulk_publish", "get_bulk_publish_details"):
        arguments = {} if name.startswith("list") else pool
        refused(f"{name} by the app key", "NotAuthorizedException", getattr(me, name), **arguments)
    me.unsubscribe_from_dataset(**of, DeviceId=device)
    refused("twice", "ResourceNotFoundException", me.unsubscribe_from_dataset, **of, DeviceId=device)
    check("deleted", me.delete_dataset(**of)["Dataset"]["NumRecords"], 1)
    for name in ("delete_dataset", "describe_dataset"):
        refused(f"{name} of none", "ResourceNotFoundException", getattr(me, name), **of)


def credentials_of_others():
    """Unsigned calls only where they are let in; no other app's pool; no wrong key."""
    of = dataset()
    letting_in = os.environ["UNSIGNED"] == "on"
    if letting_in:
        save(of, put("a", "1"), by=unsigned)
        check("an unsigned record", records(of), {"a": ("1", 1)})
    else:
        refused("unsigned", "NotAuthorizedException", unsigned.list_records, **of)
    refused("a developer's call, unsigned", "NotAuthorizedException",
            unsigned.get_identity_pool_configuration, IdentityPoolId=POOL)
    for access, secret in ((APP, MASTER_KEY), (APP + ":master", APP_KEY), (APP, "x"), ("nobody", APP_KEY)):
        refused(f"{access[-7:]} by another key", "NotAuthorizedException",
                client(access, secret).list_records, **of)
    other = dict(of, IdentityPoolId=f"us-east-1:{uuid.uuid4()}")
    for by in (me, developer, unsigned):
        refused("a pool of nobody", "NotAuthorizedException", by.list_records, **other)


# ── What a dataset does ─────────────────────────────────────────────────────────────────────────


def semantics():
    """Counts, conflicts, tombstones, sessions, pages, deletion, limits."""
    of = dataset()
    check("three", len(save(of, put("a", "1"), put("b", ""), drop("c", 0))["Records"]), 3)
    check("a removal has no value", records(of), {"a": ("1", 1), "b": ("", 1), "c": (None, 1)})
    for patch, current in ((put("a", "2", 0), 1), (put("a", "2", 2), 1), (put("new", "2", 1), 0),
                           (drop("a", 0), 1), (put("c", "2", 0), 1)):
        token = session(of)
        told = refused(f"{patch}", "ResourceConflictException", me.update_records, **of,
                       SyncSessionToken=token, RecordPatches=[put("free", "x"), patch])
        check("its words", told["message"],
              f"Current SyncCount for: {patch['Key']} is: {current} not: {patch['SyncCount']}")
    check("nothing of it was done", "free" in records(of), False)
    token = session(of)
    for count in (1, 2):
        me.update_records(**of, SyncSessionToken=token, RecordPatches=[put("a", str(count), count)])
    check("a session serves several", records(of, LastSyncCount=1), {"a": ("2", 3)})
    for bad in ("", "x", token[:-2], session(dataset()), session(dict(of, DatasetName="other"))):
        refused("a session of none", "InvalidParameterException", me.update_records, **of,
                SyncSessionToken=bad, RecordPatches=[put("z", "1")])
    check("no patches change nothing", save(of)["Records"], [])
    check("not even the count", me.list_records(**of)["DatasetSyncCount"], 3)
    seen, more = [], {}
    while True:
        page = me.list_records(**of, MaxResults=1, **more)
        seen += [item["Key"] for item in page["Records"]]
        check("each page tells of the dataset", page["DatasetSyncCount"] >= 3 and page["DatasetExists"])
        if len(seen) == 1:
            save(of, put("b", "moved", 1))
        if "NextToken" not in page:
            break
        more = {"NextToken": page["NextToken"]}
    check("pages", seen, ["b", "c", "a", "b"])
    refused("a page of another", "InvalidParameterException", me.list_records, **dataset(), **more)
    for bad in ({"MaxResults": 0}, {"LastSyncCount": -1}, {"NextToken": "x"}):
        refused(f"{bad}", "InvalidParameterException", me.list_records, **of, **bad)
    before = me.list_records(**of)["DatasetSyncCount"]
    me.delete_dataset(**of)
    page = me.list_records(**of, LastSyncCount=before)
    check("gone", (page["DatasetExists"], page["DatasetDeletedAfterRequestedSyncCount"],
                   page["DatasetSyncCount"]), (False, True, 0))
    check("who is new is told to delete nothing",
          me.list_records(**of)["DatasetDeletedAfterRequestedSyncCount"], False)
    check("counts go on", save(of, put("a", "1"))["Records"][0]["SyncCount"], before + 1)
    page = me.list_records(**of, LastSyncCount=before)
    check("made anew", (page["DatasetExists"], page["DatasetDeletedAfterRequestedSyncCount"]), (True, True))
    limits()


def limits():
    """Twenty datasets, 1,024 records, 1 MiB; what cannot be, by its name."""
    of = dataset()
    save(of, *(put(f"k{number}", "v") for number in range(1024)))
    check("one page holds all", len(records(of)), 1024)
    refused("one record more", "LimitExceededException", save_one, of=of, patch=put("more", "v"))
    owner = {name: of[name] for name in ("IdentityPoolId", "IdentityId")}
    big = dataset(owner, "big")
    save(big, put("k", "x" * 1_048_575))
    refused("one byte more", "LimitExceededException", save_one, of=big, patch=put("l", ""))
    for number in range(18):
        save(dataset(owner, f"d{number}"), put("k", "v"))
    refused("one dataset more", "LimitExceededException", save_one, of=dataset(owner, "more"),
            patch=put("k", "v"))
    names, more = [], {}
    while True:
        page = me.list_datasets(**owner, MaxResults=7, **more)
        names += [item["DatasetName"] for item in page["Datasets"]]
        if "NextToken" not in page:
            break
        more = {"NextToken": page["NextToken"]}
    check("all datasets, by name", names, sorted(names))
    check("all of them", len(names), 20)
    for what, patches in {
        "a NUL": [put("k\0", "v")], "twice the same": [put("k", "v"), drop("k", 0)],
        "another operation": [{"Op": "add", "Key": "k", "SyncCount": 0}],
        "below nothing": [put("k", "v", -1)],
    }.items():
        refused(what, "InvalidParameterException", me.update_records, **of,
                SyncSessionToken=session(of), RecordPatches=patches)
    refused("a name that is none", "InvalidParameterException", me.describe_dataset,
            **dict(of, DatasetName="a b"))
    refused("an identity that is none", "InvalidParameterException", me.list_datasets,
            IdentityPoolId=POOL, IdentityId="US:X")


def save_one(of, patch):
    save(of, patch)


def together(jobs):
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def races():
    """Two writers, 1,000 updates; thirty writers, twenty places."""
    of, counts, lost = dataset(), [], []
    save(of, put("0", "v"), put("1", "v"), put("both", "v"))

    def writer(name):
        mine, token, own, shared = client(APP, APP_KEY), session(of), 1, 1
        for _ in range(500):
            try:
                done = mine.update_records(**of, SyncSessionToken=token, RecordPatches=[
                    put(name, "v", own), put("both", name, shared)])["Records"]
                own = shared = done[0]["SyncCount"]
                counts.append(own)
            except mine.exceptions.ResourceConflictException:
                lost.append(name)
                shared = records(of)["both"][1]

    together([lambda name=name: writer(name) for name in ("0", "1")])
    check("each count is one's", sorted(counts), list(range(2, len(counts) + 2)))
    check("each call was answered", len(counts) + len(lost), 1000)
    check("the last count", me.list_records(**of)["DatasetSyncCount"], len(counts) + 1)
    owner, refusals = identity(), []

    def maker(number):
        try:
            save(dataset(owner, f"d{number}"), put("k", "v"), by=client(APP, APP_KEY))
        except ClientError as error:
            refusals.append(error.response["Error"]["Code"])

    together([lambda number=number: maker(number) for number in range(30)])
    check("twenty places", me.describe_identity_usage(**owner)["IdentityUsage"]["DatasetCount"], 20)
    check("the others are told", refusals, ["LimitExceededException"] * 10)


# ── Signatures ──────────────────────────────────────────────────────────────────────────────────


def send(method, path, body, headers):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(URL).netloc)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    if body:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body or None)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, answer.getheader("x-amzn-ErrorType"), text


def signed(method, path, body=b"", **headers):
    request = awsrequest.AWSRequest(method, URL + path, data=body, headers={
        name.replace("_", "-"): value for name, value in headers.items()})
    auth.SigV4Auth(credentials.Credentials(APP, APP_KEY), "cognito-sync", "eu-central-1").add_auth(request)
    found = dict(request.headers)
    found["Host"] = urllib.parse.urlsplit(URL).netloc
    return found


def signatures():
    """What botocore's signer makes verifies; with any byte changed it does not."""
    of = f"/identitypools/{urllib.parse.quote(POOL, safe='')}/identities/us-east-1%3A0a/datasets"
    cases = [
        ("GET", of, b"", {}), ("GET", of + "?maxResults=3", b"", {}),
        ("GET", of + "/a.b_c-d%3Ae/records?maxResults=10&lastSyncCount=0", b"", {}),
        ("GET", of + "/~/records", b"", {}), ("GET", of + "/%28a%29%2F%20b/records?x=&a=%2B%2F%20b", b"", {}),
        ("POST", of + "/notes", b'{"SyncSessionToken": "x"}', {"Content_Type": "application/json"}),
        ("POST", of + "/notes", '{"é": "🔔"}'.encode(), {"x_amz_Client_Context": "  a   b "}),
        ("POST", of + "/notes/subscriptions/d%2F1", b"", {}), ("DELETE", of + "/notes", b"", {}),
        ("GET", of, b"", {"x_amz_security_token": "t//=="}),
    ]
    for method, path, body, more in cases:
        headers = signed(method, path, body, **more)
        status, name, text = send(method, path, body, headers)
        check(f"{method} {path} verifies: {text[:200]}", name != "NotAuthorizedException")
        if body:
            hashed = dict(headers, **{"X-Amz-Content-SHA256": hashlib.sha256(body + b" ").hexdigest()})
            check("another hash", send(method, path, body, hashed)[0], 403)
        altered = [(path + ("&" if "?" in path else "?") + "z=1", body, headers), (path, body + b"x", headers)]
        for index in range(len(headers["Authorization"]) - 64, len(headers["Authorization"]), 9):
            text = headers["Authorization"]
            other = text[:index] + ("0" if text[index] != "0" else "1") + text[index + 1:]
            altered.append((path, body, dict(headers, Authorization=other)))
        for name in headers:
            if name.lower() in headers["Authorization"].lower() and name != "Authorization":
                altered.append((path, body, dict(headers, **{name: headers[name] + "x"})))
        for index in range(len(body)):
            altered.append((path, body[:index] + bytes([body[index] ^ 1]) + body[index + 1:], headers))
        for changed, content, fields in altered:
            status, name, _ = send(method, changed, content, fields)
            check(f"altered: {method} {changed} {fields}", name in (
                "NotAuthorizedException", "InvalidParameterException") and status in (400, 403))
    for label in ("", ".", "..", "%2E%2E"):
        path = f"{of}/{label}"
        check(f"the label {label!r}", send("GET", path, b"", signed("GET", path))[:2],
              (400, "InvalidParameterException"))
    check("no operation", send("PUT", of, b"", signed("PUT", of))[:2], (404, "UnknownOperationException"))


# ── Pushes ──────────────────────────────────────────────────────────────────────────────────────


def heard(token):
    """What a device was sent: the data of each, in order."""
    with urllib.request.urlopen(f"{SIMULATOR}/received") as answer:
        received = json.load(answer)["received"]
    mine = [item for item in received if item["status"] == 200 and (item.get("token") == token
            or item["path"].endswith(token))]
    return mine


def until(what, ask):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        value = ask()
        if value:
            return value
        time.sleep(0.02)
    check(f"within a minute: {what}")
    return []


def pushes():
    """A writer and two that listen; then a burst; then silence."""
    switch_on()
    owner = identity()
    of = dataset(owner)
    tokens = {"APNS": secrets.token_hex(32), "GCM": "fcm:" + secrets.token_hex(20), "writer": secrets.token_hex(32)}
    writer = me.register_device(**owner, Platform="APNS", Token=tokens["writer"].upper())["DeviceId"]
    listeners = {kind: me.register_device(
        **owner, Platform=kind, Token=tokens[kind].upper() if kind == "APNS" else tokens[kind])["DeviceId"]
        for kind in ("APNS", "GCM")}
    check("the same again", me.register_device(**owner, Platform="GCM", Token=tokens["GCM"])["DeviceId"],
          listeners["GCM"])
    tokens["WNS"] = secrets.token_hex(16)
    uri = f"{os.environ['CHANNEL_ORIGIN']}/wns/?token={tokens['WNS']}"
    request = urllib.request.Request(f"{URL}/1.1/installations", json.dumps({
        "deviceType": "windows", "subscriptionUri": uri, "identity": owner["IdentityId"]}).encode(), {
        "X-LC-Id": APP, "X-LC-Key": APP_KEY, "Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        listeners["WNS"] = json.load(answer)["objectId"]
    save(of, put("a", "1"))
    for device in (*listeners.values(), writer):
        me.subscribe_to_dataset(**of, DeviceId=device)
    count = save(of, put("a", "2", 1), DeviceId=writer)["Records"][0]["SyncCount"]
    data = {"source": "cognito-sync", "identityPoolId": POOL, "identityId": owner["IdentityId"],
            "datasetName": "notes", "syncCount": str(count)}

    def told(item):
        body = json.loads(item["body"]) if isinstance(item["body"], str) else item["body"]
        data = body.get("message", body)
        return data.get("data", data)

    def last(kind):
        return [item for item in heard(tokens[kind])
                if told(item).get("datasetName") == "notes" and told(item)["syncCount"] == str(count)]

    got = {kind: until(f"{kind} hears", lambda kind=kind: last(kind)) for kind in listeners}
    check("once each", [len(items) for items in got.values()], [1, 1, 1])
    if all(got.values()):
        check("APNs", got["APNS"][0]["body"], {"aps": {"content-available": 1}, "data": data})
        headers = {name.lower(): value for name, value in dict(got["APNS"][0]["headers"]).items()}
        check("silently", (headers.get("apns-push-type"), headers.get("apns-priority")), ("background", "5"))
        check("FCM", got["GCM"][0]["body"]["message"]["data"], data)
        body = got["WNS"][0]["body"]
        check("WNS", json.loads(body) if isinstance(body, str) else body, data)
    token = session(of)
    for _ in range(10):
        count = me.update_records(**of, SyncSessionToken=token, DeviceId=writer, RecordPatches=[
            put("a", "x", count)])["Records"][0]["SyncCount"]
    until("the last count", lambda: last("GCM"))
    counts = [int(item["body"]["message"]["data"]["syncCount"]) for item in heard(tokens["GCM"])]
    check("counts rise", counts, sorted(set(counts)))
    check(f"fewer than ten: {counts}", len(counts) - 1 < 10 and counts[-1] == count)
    me.unsubscribe_from_dataset(**of, DeviceId=listeners["GCM"])
    before = len(heard(tokens["GCM"]))
    count = save(of, put("a", "y", count), DeviceId=listeners["GCM"])["Records"][0]["SyncCount"]
    until("the others hear", lambda: last("APNS"))
    until("the writer of before hears now", lambda: last("writer"))
    check("silence after unsubscribing", len(heard(tokens["GCM"])), before)
    check("the writer heard of no own", len(heard(tokens["writer"])), 1)


scenarios = {
    "operations": operations, "credentials": credentials_of_others, "semantics": semantics,
    "races": races, "signatures": signatures, "pushes": pushes,
}
scenarios[sys.argv[1]]()
print(json.dumps({"checked": checked, "problems": len(problems)}))
sys.exit(1 if problems else 0)

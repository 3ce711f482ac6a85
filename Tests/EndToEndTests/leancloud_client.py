"""Every call of LeanCloud's own Python package for installations, queries, pushes and records.

usage: leancloud_client.py SCENARIO

The package runs unchanged; LC_API_SERVER leads it here. APP_ID, APP_KEY and MASTER_KEY are those
of an app that nobody else uses, APNS_TOPIC its bundle id. What a query should select is computed
here, by plain Python over the same data. Each promise that did not hold is a line on standard
error and makes the exit status 1; the last line of standard output is JSON for the caller.
"""

import json
import math
import os
import re
import secrets
import sys
import time
import traceback
import warnings
from datetime import datetime, timedelta, timezone

warnings.filterwarnings("ignore")

import leancloud  # noqa: E402
from leancloud import ACL, Installation, LeanCloudError, Query, User, client, cloud  # noqa: E402
from leancloud import GeoPoint, Object, Relation, push  # noqa: E402

TOPIC = os.environ.get("APNS_TOPIC", "com.example.bells")
problems = []


def check(what, got, wanted=True):
    if got != wanted:
        problems.append(what)
        print(f"{what}: got {got!r}, wanted {wanted!r}", file=sys.stderr)


def refused(what, call, *codes, naming=""):
    """A call that must fail the way the package reports: a LeanCloudError with a code."""
    try:
        call()
    except LeanCloudError as error:
        check(f"{what}: a code that is a number", isinstance(error.code, int) and error.code != 0)
        if codes:
            check(f"{what}: its code, {error.error}", error.code in codes)
        if naming:
            check(f"{what}: what is named, {error.error}", naming in str(error.error))
        return
    except Exception as error:
        check(f"{what}: raises LeanCloudError", repr(error), "LeanCloudError")
        return
    check(f"{what}: is refused", False)


def as_master():
    leancloud.init(os.environ["APP_ID"], os.environ["APP_KEY"], os.environ["MASTER_KEY"])
    leancloud.use_master_key(True)


def as_client():
    leancloud.init(os.environ["APP_ID"], os.environ["APP_KEY"], os.environ["MASTER_KEY"])
    leancloud.use_master_key(False)


def phone(**fields):
    made = Installation(deviceType="ios", deviceToken=secrets.token_hex(32), apnsTopic=TOPIC)
    made.set("apnsEnvironment", "production")
    for key, value in fields.items():
        made.set(key, value)
    return made


def again(found):
    """The same object, read afresh."""
    other = Installation.create_without_data(found.id)
    other.fetch()
    return other


def raw(found):
    return client.get("/classes/_Installation/" + found.id).json()


def until(what, ask):
    deadline = time.monotonic() + 60
    while True:
        value = ask()
        if value is not None:
            return value
        if time.monotonic() > deadline:
            raise RuntimeError("not within a minute: " + what)
        time.sleep(0.05)


# ── Installations ───────────────────────────────────────────────────────────────────────────────


def installations():
    as_client()
    born = datetime(2012, 2, 29, 12, 30, 15, 250000, tzinfo=timezone.utc)
    new = phone(channels=["Mets"], badge=2, timeZone="Europe/Oslo", name="Łódź \U0001f514")
    check("a new object is new", (new.is_new(), new.is_dirty(), new.is_existed()),
          (True, True, False))
    new.set({"ratio": 0.25, "flag": True, "none": None, "big": 2**53 - 1, "list": [1, "a", None]})
    new.set("born", born)
    new.set("place", GeoPoint(59.9, 10.75))
    new.set("profile", {"city": "Bergen", "deep": {"levels": [1, {"x": 2}]}, "n": 1})
    new.set("owner", User.create_without_data("user-1"))
    # Operations on an object that does not exist yet.
    new.increment("opened").add_unique("tags", "a").add("log", "made")
    new.remove("absent", "x")
    token = new.get("deviceToken")
    new.save()
    check("a save gives an id", isinstance(new.id, str) and len(new.id) > 0)
    check("and the time", new.created_at is not None and new.created_at == new.updated_at)
    check("then it is not dirty", (new.is_new(), new.is_dirty()), (False, False))

    read = again(new)
    check("it exists", read.is_existed())
    for key, value in [
            ("deviceType", "ios"), ("deviceToken", token), ("channels", ["Mets"]), ("badge", 2),
            ("timeZone", "Europe/Oslo"), ("name", "Łódź \U0001f514"), ("ratio", 0.25),
            ("flag", True), ("big", 2**53 - 1), ("list", [1, "a", None]), ("born", born),
            ("place", GeoPoint(59.9, 10.75)), ("opened", 1), ("tags", ["a"]), ("log", ["made"]),
            ("absent", []), ("apnsTopic", TOPIC),
            ("profile", {"city": "Bergen", "deep": {"levels": [1, {"x": 2}]}, "n": 1})]:
        check("read back: " + key, read.get(key), value)
    check("null is kept", (read.has("none"), read.get("none", "default")), (True, None))
    check("a pointer is its object", (read.get("owner")._class_name, read.get("owner").id),
          ("_User", "user-1"))
    check("valid from the start", read.get("valid"), True)
    check("created_at is read", read.created_at, new.created_at)
    typed = {"__type": "Date", "iso": "2012-02-29T12:30:15.250Z"}
    check("a local dump", read.dump()["born"], typed)
    as_text = raw(new)
    check("times come as text", re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", as_text["createdAt"]) is not None)
    check("dates stay typed", as_text["born"], typed)
    check("pointers stay typed", as_text["owner"],
          {"__type": "Pointer", "className": "_User", "objectId": "user-1"})

    only = Installation.create_without_data(new.id)
    only.fetch(select=["name", "profile.city"])
    check("a fetch of some keys", only.get("name"), "Łódź \U0001f514")
    check("and of a path", only.get("profile"), {"city": "Bergen"})
    check("and of no others", (only.has("badge"), only.has("channels")), (False, False))

    # One change each, then the server's result.
    def changed(what, key, value, change):
        mine = again(new)
        change(mine)
        mine.save()
        check("changed: " + what, again(new).get(key), value)
        check("changed: the time of " + what, mine.updated_at >= mine.created_at)

    changed("set", "name", "x", lambda o: o.set("name", "x"))
    changed("set by a dictionary", "name", "y", lambda o: o.set({"name": "y"}))
    changed("unset", "name", None, lambda o: o.unset("name"))
    changed("increment", "badge", 3, lambda o: o.increment("badge"))
    changed("increment by", "badge", 13, lambda o: o.increment("badge", 10))
    changed("decrement", "badge", 5, lambda o: o.increment("badge", -8))
    changed("increment by a part", "ratio", 0.75, lambda o: o.increment("ratio", 0.5))
    changed("increment what is not there", "fresh", 4, lambda o: o.increment("fresh", 4))
    changed("add", "log", ["made", "read"], lambda o: o.add("log", "read"))
    changed("add to a channel list", "channels", ["Mets", "Giants"],
            lambda o: o.add("channels", "Giants"))
    changed("add what is there", "log", ["made", "read", "read"], lambda o: o.add("log", "read"))
    changed("add_unique of what is there", "tags", ["a"], lambda o: o.add_unique("tags", "a"))
    changed("add_unique", "tags", ["a", "b"], lambda o: o.add_unique("tags", "b"))
    changed("remove", "log", ["made"], lambda o: o.remove("log", "read"))
    changed("remove what is not there", "log", ["made"], lambda o: o.remove("log", "gone"))
    changed("remove a channel", "channels", ["Giants"], lambda o: o.remove("channels", "Mets"))
    changed("bits: a start", "bits", 0b1100, lambda o: o.set("bits", 0b1100))
    changed("bit_and", "bits", 0b0100, lambda o: o.bit_and("bits", 0b0110))
    changed("bit_or", "bits", 0b0111, lambda o: o.bit_or("bits", 0b0011))
    changed("bit_xor", "bits", 0b0010, lambda o: o.bit_xor("bits", 0b0101))
    changed("a dotted key", "profile", {"city": "Oslo", "deep": {"levels": [1, {"x": 2}]}, "n": 1},
            lambda o: o.set("profile.city", "Oslo"))
    changed("a dotted operation", "profile",
            {"city": "Oslo", "deep": {"levels": [1, {"x": 2}]}, "n": 4},
            lambda o: o.increment("profile.n", 3))
    changed("a dotted unset", "profile", {"city": "Oslo", "n": 4},
            lambda o: o.unset("profile.deep"))
    client.put("/classes/_Installation/" + new.id, {
        "missingBits": {"__op": "BitOr", "value": 5}, "badge": {"__op": "Decrement", "amount": 2},
        "blob": {"__type": "Bytes", "base64": "aGk="}})
    check("an operation on bits that are not there", raw(new)["missingBits"], 5)
    check("Decrement by name", raw(new)["badge"], 3)
    check("bytes stay typed", raw(new)["blob"], {"__type": "Bytes", "base64": "aGk="})

    before = again(new)
    before.save()
    check("a save without a change is an opening", again(new).updated_at >= before.created_at)

    whole = phone(name="whole")
    whole.save(fetch_when_save=True)
    check("fetch_when_save on a new one gives all of it", (whole.get("valid"), whole.get("badge")),
          (True, None))
    whole.increment("badge", 7).set("name", "part")
    whole.save(fetch_when_save=True)
    check("fetch_when_save gives what changed", (whole.get("badge"), whole.get("name")),
          (7, "part"))

    # It applies only if the condition is true.
    whole.set("name", "second")
    whole.save(where=Query(Installation).equal_to("badge", 7))
    check("a condition that holds", again(whole).get("name"), "second")
    whole.set("name", "third")
    refused("a condition that does not hold",
            lambda: whole.save(where=Query(Installation).equal_to("badge", 8)), 305)
    check("then nothing changed", again(whole).get("name"), "second")

    # The same phone, installed again.
    twin = phone(name="twin")
    twin.save()
    once_more = phone(deviceToken=twin.get("deviceToken"), channels=["again"])
    once_more.save()
    check("a known token keeps its id", once_more.id, twin.id)
    check("and its fields", (again(twin).get("name"), again(twin).get("channels")),
          ("twin", ["again"]))
    droid = Installation(deviceType="android", installationId="droid-1")
    droid.save()
    update = Installation(deviceType="android", installationId="droid-1", badge=4)
    update.save()
    check("a known installationId keeps its id", (update.id, again(droid).get("badge")),
          (droid.id, 4))

    # Values that the package stores on the object beside its fields.
    acl = ACL()
    acl.set_public_read_access(True)
    acl.set_write_access("user-1", True)
    guarded = phone()
    guarded.set_acl(acl)
    guarded.disable_before_hook().disable_after_hook()
    guarded.save()
    read = again(guarded)
    check("an ACL is kept", (read.get_acl().get_public_read_access(),
                             read.get_acl().get_write_access("user-1"),
                             read.get_acl().get_write_access("user-2")), (True, True, False))
    check("hooks are no field", read.has("__ignore_hooks"), False)
    emptied = phone(name="gone")
    emptied.clear()
    emptied.set({"deviceType": "ios", "deviceToken": secrets.token_hex(32)})
    emptied.save()
    check("clear, then a save", (again(emptied).has("name"), again(emptied).get("deviceType")),
          (False, "ios"))
    named = Object.create("_Installation", deviceType="ios", deviceToken=secrets.token_hex(32))
    named.save()
    check("a class by name", again(named).get("deviceType"), "ios")

    # An unsaved owner is sent first, in a batch.
    as_master()
    owned = phone(owner=User(username="ann", city="Oslo"))
    owned.save()
    owner = again(owned).get("owner")
    check("the owner has an id", isinstance(owner.id, str) and owner.id == owned.get("owner").id)
    owner.fetch()
    check("and fields", (owner.get("username"), owner.get("city")), ("ann", "Oslo"))
    with_owner = Installation.create_without_data(owned.id)
    with_owner.fetch(include=["owner"])
    check("a fetch that includes", with_owner.get("owner").get("city"), "Oslo")

    # Objects that cannot be saved, by the documented codes.
    for what, fields, code in [
            ("a channel's name", {"channels": ["a b"]}, 112),
            ("a key with a dollar", {"a$b": 1}, 121), ("a key that is none", {"1a": 1}, 105),
            ("channels of another type", {"channels": "Mets"}, 111),
            ("a badge of another type", {"badge": "many"}, 111),
            ("a token that is none", {"deviceToken": "x-y"}, 114)]:
        bad = phone(**fields)
        refused(what, bad.save, code)
    refused("no deviceType", Installation(deviceToken=secrets.token_hex(32)).save, 135)

    as_client()
    refused("a delete with the app key", twin.destroy, 119)
    as_master()
    twin.destroy()
    refused("a fetch of what is gone", lambda: again(twin), 101)
    twin.set("name", "ghost")
    refused("a save of what is gone", twin.save, 101)
    refused("a delete of what is gone", twin.destroy, 101)
    refused("an id that never was", lambda: Query(Installation).get("nothing"), 101)
    guarded.destroy()


# ── Batches ─────────────────────────────────────────────────────────────────────────────────────


def batches():
    as_master()
    made = [phone(number=n, channels=["c%d" % n]) for n in range(20)]
    Installation.save_all(made)
    check("all have ids", len({one.id for one in made}), 20)
    check("in their order", [again(one).get("number") for one in made], list(range(20)))
    for one in made:
        one.increment("number", 100).add_unique("channels", "all")
    Installation.save_all(made)
    check("all are updated", [again(one).get("number") for one in made],
          [100 + n for n in range(20)])
    check("with their lists", again(made[3]).get("channels"), ["c3", "all"])

    good, bad, last = phone(name="good"), phone(channels=["no good"]), phone(name="last")
    refused("one of a batch that fails", lambda: Installation.save_all([good, bad, last]), 112)
    check("the others are saved", (again(good).get("name"), again(last).get("name")),
          ("good", "last"))
    answer = client.post("/batch", {"requests": [
        {"method": "GET", "path": "/1.1/classes/_Installation/" + made[0].id},
        {"method": "GET", "path": "/1.1/classes/_Installation",
         "params": {"where": {"number": {"$gte": 118}}, "count": 1, "order": "number"}},
        {"method": "PUT", "path": "/1.1/installations/" + made[1].id, "body": {"name": "n"}},
        {"method": "DELETE", "path": "/1.1/classes/_Installation/unknown", "body": {}},
        {"method": "POST", "path": "/1.1/users", "body": {"username": "of-a-batch"}},
    ]}).json()
    check("an answer each", len(answer), 5)
    check("a read", answer[0]["success"]["number"], 100)
    check("a query", ([one["number"] for one in answer[1]["success"]["results"]],
                      answer[1]["success"]["count"]), ([118, 119], 2))
    check("an update", "updatedAt" in answer[2]["success"])
    check("an error in its place", answer[3]["error"]["code"], 101)
    check("an identity", "objectId" in answer[4]["success"])
    item = {"method": "GET", "path": "/1.1/classes/_Installation/" + made[0].id}
    refused("more than a batch takes", lambda: client.post("/batch", {"requests": [item] * 1001}))
    nested = {"method": "POST", "path": "/1.1/batch", "body": {"requests": []}}
    try:
        answer = client.post("/batch", {"requests": [nested]}).json()
        check("a batch in a batch", "error" in answer[0])
    except LeanCloudError as error:
        check("a batch in a batch", error.code != 0)
    refused("no list", lambda: client.post("/batch", {"requests": 1}))

    Installation.destroy_all(made[:15])
    refused("what was destroyed", lambda: again(made[0]), 101)
    check("what was not", again(made[15]).get("number"), 115)
    refused("one that is gone in a batch", lambda: Installation.destroy_all([made[0], made[15]]),
            101)
    refused("and the other is destroyed", lambda: again(made[15]), 101)
    client.delete("/classes/_Installation/" + made[16].id + "," + made[17].id, {})
    refused("several ids in one path", lambda: again(made[17]), 101)
    check("and no more", again(made[18]).get("number"), 118)


# ── Queries ─────────────────────────────────────────────────────────────────────────────────────

START = datetime(2020, 1, 1, tzinfo=timezone.utc)
CITIES = [("Oslo", 59.91, 10.75), ("Bergen", 60.39, 5.32), ("Paris", 48.86, 2.35),
          ("Sydney", -33.87, 151.21), ("Suva", -18.14, 178.44)]


def people():
    """Five identities, each of a city; the last has no age."""
    users = []
    for number, (city, latitude, longitude) in enumerate(CITIES):
        user = User(username="user%d" % number, city=city, team="t%d" % (number % 2))
        user.set("location", GeoPoint(latitude, longitude))
        if number < 4:
            user.set("age", 20 + 10 * number)
        user.save()
        users.append(user)
    return users


def record(number, users):
    """The fields of one installation; some lack some."""
    fields = {"n": number, "label": "Player %02d" % number, "level": number % 7,
              "channels": [c for c, each in [("Mets", 2), ("Giants", 3), ("Yanks-9", 5)]
                           if number % each == 0],
              "profile": {"city": CITIES[number % 5][0], "stats": {"wins": number % 4}}}
    if number % 5 != 2:
        fields["score"] = number / 4
    if number % 3 != 0:
        fields["flag"] = number % 2 == 0
    if number % 5 != 0:
        fields["numbers"] = [number % 3, number % 4, number % 6][:number % 4]
        fields["born"] = START + timedelta(days=number, milliseconds=number)
    if number % 6 != 0:
        city = CITIES[number % 5]
        fields["place"] = GeoPoint(city[1] + number / 100, city[2] + number / 100)
    if number % 4 != 1:
        fields["owner"] = users[number % 5]
    if number % 8 == 0:
        fields["none"] = None
    if number % 9 == 0:
        fields["mixed"] = ["7"] if number % 2 else [7]
    if number % 7 == 0:
        fields["text"] = ["a.b*c", "A.B*C", "line one\nline two", "(\\Q)", "^start$", "ÆØÅ æøå",
                          "100% _sure_"][number // 7 % 7]
    return fields


MISSING = object()


def value(fields, path):
    for part in path.split("."):
        if not isinstance(fields, dict) or part not in fields:
            return MISSING
        fields = fields[part]
    return fields


def same(left, right):
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, Object) and isinstance(right, Object):
        return left.id == right.id
    return left == right


def some(test):
    """On an array, a test holds for any element or for the array as a whole."""
    def decide(held):
        if held is MISSING:
            return False
        return test(held) or isinstance(held, list) and any(test(each) for each in held)
    return decide


def equals(wanted):
    if wanted is None:
        return lambda held: held is MISSING or some(lambda each: each is None)(held)
    return some(lambda each: same(each, wanted))


def compares(test, wanted):
    def comparable(each):
        if isinstance(wanted, (int, float)):
            return isinstance(each, (int, float)) and not isinstance(each, bool)
        return isinstance(each, type(wanted))
    return some(lambda each: comparable(each) and test(each, wanted))


def matches(pattern, flags=0):
    return some(lambda each: isinstance(each, str) and re.search(pattern, each, flags) is not None)


def denied(test):
    return lambda held: not test(held)


def field_cases(users):
    """Title, a change to a query, and what must hold of an installation's fields."""
    cases = []

    def case(title, build, key, test):
        cases.append((title, build, lambda fields: test(value(fields, key))))

    for key, wanted in [
            ("label", "Player 07"), ("level", 3), ("score", 1.25), ("score", 4), ("flag", True),
            ("flag", False), ("none", None), ("born", START + timedelta(days=8, milliseconds=8)),
            ("owner", users[2]), ("profile.city", "Paris"), ("profile.stats.wins", 2),
            ("profile", {"city": "Oslo", "stats": {"wins": 1}}), ("numbers", 2),
            ("numbers", [2, 2]), ("channels", "Mets"), ("mixed", 7), ("mixed", "7"),
            ("place", GeoPoint(CITIES[1][1] + 0.01, CITIES[1][2] + 0.01)), ("n", True),
            ("flag", 1), ("text", "a.b*c"), ("label", "Player")]:
        case("equal_to %s" % key, lambda q, k=key, w=wanted: q.equal_to(k, w), key, equals(wanted))
        case("not_equal_to %s" % key, lambda q, k=key, w=wanted: q.not_equal_to(k, w), key,
             denied(equals(wanted)))
    operators = [("less_than", lambda a, b: a < b), ("less_than_or_equal_to", lambda a, b: a <= b),
                 ("greater_than", lambda a, b: a > b),
                 ("greater_than_or_equal_to", lambda a, b: a >= b)]
    for name, test in operators:
        for key, wanted in [
                ("level", 3), ("score", 2.5), ("label", "Player 20"), ("numbers", 2), ("mixed", 7),
                ("mixed", "7"), ("born", START + timedelta(days=17, milliseconds=17)),
                ("profile.stats.wins", 2)]:
            case("%s %s" % (name, key), lambda q, n=name, k=key, w=wanted: getattr(q, n)(k, w), key,
                 compares(test, wanted))
    for key, wanted in [
            ("level", [1, 5, 99]), ("label", ("Player 01", "Player 33")), ("level", []),
            ("channels", ["Giants", "Yanks-9"]), ("owner", [users[0], users[3]]),
            ("numbers", [3, 5]), ("mixed", [7, "x"]), ("profile.city", ["Oslo", "Suva"]),
            ("born", [START + timedelta(days=3, milliseconds=3)])]:
        hits = [equals(each) for each in wanted]
        case("contained_in %s" % key, lambda q, k=key, w=wanted: q.contained_in(k, w), key,
             lambda held, hits=hits: any(hit(held) for hit in hits))
        case("not_contained_in %s" % key, lambda q, k=key, w=wanted: q.not_contained_in(k, w), key,
             lambda held, hits=hits: not any(hit(held) for hit in hits))
    for key, wanted in [("channels", ["Mets", "Giants"]), ("numbers", [1, 2]), ("numbers", [0]),
                        ("label", ["Player 03"])]:
        case("contains_all %s" % key, lambda q, k=key, w=wanted: q.contains_all(k, w), key,
             lambda held, w=wanted: all(equals(each)(held) for each in w))
    for key in ["channels", "numbers"]:
        for size in range(4):
            case("size_equal_to %s" % key, lambda q, k=key, s=size: q.size_equal_to(k, s), key,
                 lambda held, s=size: isinstance(held, list) and len(held) == s)
    for key in ["flag", "none", "numbers", "profile.city", "profile.absent", "absent", "owner"]:
        case("exists " + key, lambda q, k=key: q.exists(k), key, lambda held: held is not MISSING)
        case("does_not_exist " + key, lambda q, k=key: q.does_not_exist(k), key,
             lambda held: held is MISSING)
    for key, pattern, ignores_case, lines in [
            ("label", r"^Player [0-2]\d$", False, False), ("label", "PLAYER 1", False, False),
            ("label", "player 1", True, False), ("text", "^line two$", False, False),
            ("text", "^line two$", False, True), ("text", "^LINE TWO$", True, True),
            ("text", r"a\.b\*c", False, False), ("text", "[ÆØÅ]", False, False),
            ("channels", "^Yanks-", False, False), ("text", r"\(\\Q\)", False, False),
            ("label", "1|2", False, False), ("text", "%|_", False, False),
            ("level", "1", False, False)]:
        flags = (re.IGNORECASE if ignores_case else 0) | (re.MULTILINE if lines else 0)
        case("matched " + pattern,
             lambda q, k=key, p=pattern, i=ignores_case, m=lines: q.matched(k, p, i, m), key,
             matches(pattern, flags))
    # The quoted form that LeanCloud's other clients build.
    quoted = r"^\Qa.b*\E"
    case("matched " + quoted, lambda q: q.matched("text", quoted), "text", matches(r"^a\.b\*"))
    case("contains", lambda q: q.contains("label", "er 1"), "label", matches("er 1"))
    case("startswith", lambda q: q.startswith("label", "Player 3"), "label", matches("^Player 3"))
    case("startswith of bytes", lambda q: q.startswith("label", b"Player 2"), "label",
         matches("^Player 2"))
    case("endswith", lambda q: q.endswith("label", "7"), "label", matches("7$"))
    case("several at once", lambda q: q.greater_than("level", 1).less_than("level", 5)
         .not_equal_to("level", 3), "level",
         lambda held: held is not MISSING and 1 < held < 5 and held != 3)
    return cases


def query_cases(users):
    """Title, query and what it selects: over several fields, and over what other queries find."""
    def owned(test):
        return lambda fields: "owner" in fields and test(users.index(fields["owner"]))

    def unowned(test):
        return lambda fields: not ("owner" in fields and test(users.index(fields["owner"])))

    adults = lambda: User.query.greater_than_or_equal_to("age", 30)  # noqa: E731
    in_oslo = lambda: User.query.equal_to("city", "Oslo")  # noqa: E731
    in_world = lambda: User.query.near("location", GeoPoint(60, 8)).limit(2)  # noqa: E731
    cases = [
        ("or_", Query.or_(Query("_Installation").equal_to("level", 1),
                          Query("_Installation").equal_to("channels", "Giants")),
         lambda f: f["level"] == 1 or "Giants" in f["channels"]),
        ("or_ of three, and more", Query.or_(
            Query("_Installation").equal_to("level", 1), Query("_Installation").exists("none"),
            Query("_Installation").less_than("n", 3)).equal_to("channels", "Mets"),
         lambda f: (f["level"] == 1 or "none" in f or f["n"] < 3) and "Mets" in f["channels"]),
        ("and_", Query.and_(Query("_Installation").equal_to("channels", "Mets"),
                            Query("_Installation").equal_to("channels", "Giants")),
         lambda f: {"Mets", "Giants"} <= set(f["channels"])),
        ("and_ of or_", Query.and_(
            Query.or_(Query("_Installation").equal_to("level", 1),
                      Query("_Installation").equal_to("level", 2)),
            Query.or_(Query("_Installation").equal_to("channels", "Mets"),
                      Query("_Installation").equal_to("channels", "Giants"))),
         lambda f: f["level"] in (1, 2) and bool({"Mets", "Giants"} & set(f["channels"]))),
        ("matches_query", Installation.query.matches_query("owner", in_oslo()),
         owned(lambda u: u == 0)),
        ("does_not_match_query", Installation.query.does_not_match_query("owner", in_oslo()),
         unowned(lambda u: u == 0)),
        ("matches_query by a number", Installation.query.matches_query("owner", adults()),
         owned(lambda u: 20 + 10 * u >= 30 and u < 4)),
        ("matches_query with order and limit", Installation.query.matches_query(
            "owner", User.query.exists("age").descending("age").limit(2)),
         owned(lambda u: u in (2, 3))),
        ("matches_query with skip", Installation.query.matches_query(
            "owner", User.query.exists("age").ascending("age").skip(1).limit(2)),
         owned(lambda u: u in (1, 2))),
        ("matches_query by a place", Installation.query.matches_query("owner", in_world()),
         owned(lambda u: u in (0, 1))),
        ("matches_key_in_query", Installation.query.matches_key_in_query(
            "profile.city", "city", User.query.equal_to("team", "t1")),
         lambda f: f["profile"]["city"] in ("Bergen", "Sydney")),
        ("does_not_match_key_in_query", Installation.query.does_not_match_key_in_query(
            "profile.city", "city", User.query.equal_to("team", "t1")),
         lambda f: f["profile"]["city"] not in ("Bergen", "Sydney")),
        ("matches_key_in_query of installations", Installation.query.matches_key_in_query(
            "level", "profile.stats.wins", Query("_Installation").limit(1000)),
         lambda f: f["level"] in (0, 1, 2, 3)),
        ("within_geo_box", Installation.query.within_geo_box(
            "place", GeoPoint(48, 2), GeoPoint(61, 11)),
         lambda f: "place" in f and 48 <= f["place"].latitude <= 61
         and 2 <= f["place"].longitude <= 11),
        ("createdAt", Installation.query.greater_than(
            "createdAt", datetime(2020, 1, 1, tzinfo=timezone.utc)), lambda f: True),
        ("updatedAt", Installation.query.less_than(
            "updatedAt", datetime(2020, 1, 1, tzinfo=timezone.utc)), lambda f: False),
    ]
    return cases


def names(found):
    return sorted(one.get("n") for one in found)


def queries():
    as_master()
    users = people()
    records = [record(number, users) for number in range(60)]
    made = [phone(**fields) for fields in records]
    Installation.save_all(made)
    check("the data set is there", Query(Installation).count(), 60)

    checked = 0
    for title, build, holds in field_cases(users):
        wanted = [fields["n"] for fields in records if holds(fields)]
        query = build(Query(Installation).limit(1000))
        try:
            check(title, names(query.find()), wanted)
            check("count of " + title, build(Query(Installation)).count(), len(wanted))
        except LeanCloudError as error:
            check(title, str(error), wanted)
        checked += 1
    for title, query, holds in query_cases(users):
        wanted = [fields["n"] for fields in records if holds(fields)]
        try:
            check(title, names(query.limit(1000).find()), wanted)
            check("count of " + title, query.count(), len(wanted))
        except LeanCloudError as error:
            check(title, str(error), wanted)
        checked += 1
    found = client.get("/classes/_Installation", {"where": json.dumps(
        [{"level": 1}, {"channels": "Mets"}]), "limit": 1000}).json()["results"]
    check("an array of conditions", sorted(one["n"] for one in found),
          [f["n"] for f in records if f["level"] == 1 and "Mets" in f["channels"]])
    # The original short form: the class is that of the pointer.
    short = client.get("/classes/_Installation", {"where": {
        "owner": {"$inQuery": {"location": {
            "$nearSphere": GeoPoint(59.91, 10.75).dump(), "$maxDistanceInMiles": 300.0}}}},
        "limit": 1000}).json()["results"]
    check("the seed's short $inQuery", sorted(one["n"] for one in short),
          [f["n"] for f in records if "owner" in f and users.index(f["owner"]) in (0, 1)])
    near_cases(records)
    shape_cases(records, made)
    refused("an operator that is none", lambda: client.get(
        "/classes/_Installation", {"where": {"level": {"$above": 1}}}), 102, naming="$above")
    refused("a where that is no JSON", lambda: client.get(
        "/classes/_Installation", {"where": "{"}), 107)
    refused("a pattern that is none", lambda: Query(Installation).matched("label", "(").find())
    refused("a class that is not kept", lambda: Installation.query.matches_query(
        "owner", Query("Team").equal_to("a", 1)).find())
    as_client()
    refused("a query with the app key", lambda: Query(Installation).find(), 119)
    refused("a count with the app key", lambda: Query(Installation).count(), 119)
    check("a read by id with the app key", Query(Installation).get(made[5].id).get("n"), 5)
    return {"queries": checked}


def near_cases(records):
    oslo = GeoPoint(59.91, 10.75)
    placed = [f for f in records if "place" in f]

    def by_distance(fields):
        return oslo.radians_to(fields["place"])

    def within(low, high):
        return [f["n"] for f in sorted(placed, key=by_distance) if low <= by_distance(f) <= high]

    miles, kilometres = 3958.8, 6371.0
    for title, query, wanted in [
            ("near", Query(Installation).near("place", oslo), within(0, math.pi)),
            ("within_radians", Query(Installation).within_radians("place", oslo, 0.06),
             within(0, 0.06)),
            ("within_radians from", Query(Installation).within_radians("place", oslo, 0.5, 0.06),
             within(0.06, 0.5)),
            ("within_miles", Query(Installation).within_miles("place", oslo, 250),
             within(0, 250 / miles)),
            ("within_miles from", Query(Installation).within_miles("place", oslo, 900, 250),
             within(250 / miles, 900 / miles)),
            ("within_kilometers", Query(Installation).within_kilometers("place", oslo, 500.0),
             within(0, 500 / kilometres)),
            ("within_kilometers from",
             Query(Installation).within_kilometers("place", oslo, 1600, 500),
             within(500 / kilometres, 1600 / kilometres))]:
        found = [one.get("n") for one in query.limit(1000).find()]
        check(title + ", nearest first", found, wanted)
        check(title + " is more than nothing", len(wanted) > 0)
    ordered = Query(Installation).near("place", oslo).descending("n").limit(1000).find()
    check("near, but in an order", [one.get("n") for one in ordered],
          sorted((f["n"] for f in placed), reverse=True))


def shape_cases(records, made):
    """Order, pages, keys and single objects."""
    numbers = lambda query: [one.get("n") for one in query.find()]  # noqa: E731

    def ordered(*keys):
        return [f["n"] for f in sorted(records, key=lambda f: [key(f) for key in keys])]

    check("ascending", numbers(Query(Installation).ascending("n")), list(range(60)))
    check("descending", numbers(Query(Installation).descending("label")), list(range(59, -1, -1)))
    check("two keys", numbers(Query(Installation).ascending("level").add_descending("n")),
          ordered(lambda f: f["level"], lambda f: -f["n"]))
    check("three keys", numbers(Query(Installation).descending("profile.city").add_ascending(
        "level").add_ascending("n")),
        [f["n"] for f in sorted(sorted(records, key=lambda f: (f["level"], f["n"])),
                                key=lambda f: f["profile"]["city"], reverse=True)])
    pages = [numbers(Query(Installation).ascending("n").skip(at).limit(25)) for at in (0, 25, 50)]
    check("pages", pages, [list(range(25)), list(range(25, 50)), list(range(50, 60))])
    check("a page past the end", numbers(Query(Installation).ascending("n").skip(100)), [])
    check("a limit of 0 is the default", len(Query(Installation).limit(0).find()), 60)
    by_id = Query(Installation).ascending("objectId").limit(1000).find()
    ids = [one.id for one in by_id]
    check("ids have one order", ids, sorted(one.id for one in made))
    walked, last = [], ""
    while True:
        page = Query(Installation).ascending("objectId").greater_than("objectId", last).limit(
            17).find()
        if not page:
            break
        walked += [one.id for one in page]
        last = page[-1].id
    check("and it is that of $gt", walked, ids)

    first = Query(Installation).equal_to("channels", "Giants").descending("n").first()
    check("first", first.get("n"), 57)
    refused("first of nothing", lambda: Query(Installation).equal_to("n", -1).first(), 101)
    check("get", Query(Installation).get(made[11].id).get("label"), "Player 11")
    some_keys = Query(Installation).select("label", "profile.city").equal_to("n", 4).first()
    check("select", (some_keys.get("label"), some_keys.get("profile")),
          ("Player 04", {"city": "Suva"}))
    check("select: the rest is not there", (some_keys.has("n"), some_keys.has("channels")),
          (False, False))
    check("select: id and times always are", (some_keys.id is not None,
                                              some_keys.created_at is not None), (True, True))
    but_one = Query(Installation).select("-label").equal_to("n", 4).first()
    check("a key left out", (but_one.has("label"), but_one.get("n")), (False, 4))
    got = Query(Installation).select("level").get(made[9].id)
    check("select and get", (got.get("level"), got.has("label")), (2, False))
    with_owner = Query(Installation).include("owner").equal_to("n", 3).first()
    check("include", (with_owner.get("owner").get("city"), with_owner.get("n")), ("Sydney", 3))
    with_acl = Query(Installation).include_acl().equal_to("n", 3).first()
    check("include_acl", with_acl.get("n"), 3)
    both = client.get("/classes/_Installation", {
        "where": {"level": 2}, "count": 1, "limit": 3, "order": "n"}).json()
    check("results and count at once", ([one["n"] for one in both["results"]], both["count"]),
          ([2, 9, 16], sum(f["level"] == 2 for f in records)))


def scans():
    as_master()
    made = [phone(n=number, even=number % 2 == 0) for number in range(43)]
    Installation.save_all(made)
    check("a scan finds each once", sorted(
        one.get("n") for one in Query(Installation).scan(batch_size=5)), list(range(43)))
    check("a scan by its default page", len(list(Query(Installation).scan())), 43)
    check("a scan of some", sorted(
        one.get("n") for one in Query(Installation).equal_to("even", True).scan(batch_size=3)),
        list(range(0, 43, 2)))
    check("a scan by a key", sorted(one.get("n") for one in Query(Installation).less_than(
        "n", 20).scan(batch_size=7, scan_key="objectId")), list(range(20)))
    check("a scan of nothing", list(Query(Installation).equal_to("n", -1).scan()), [])
    # Objects that are deleted or added meanwhile neither stop the scan nor appear twice.
    seen = []
    for one in Query(Installation).scan(batch_size=10):
        seen.append(one.get("n"))
        if len(seen) == 15:
            made[42].destroy()
    check("a scan while others write", len(seen) == len(set(seen)) and len(seen) >= 42)
    refused("a scan with a limit", lambda: Query(Installation).limit(3).scan(), 1)
    refused("a cursor that is none", lambda: client.get(
        "/scan/classes/_Installation", {"cursor": "nonsense"}))
    refused("a scan of another class", lambda: list(Query("Team").scan()))
    as_client()
    refused("a scan with the app key", lambda: list(Query(Installation).scan()))


def cloud_queries():
    as_master()
    users = people()
    records = [record(number, users) for number in range(40)]
    Installation.save_all([phone(**fields) for fields in records])

    def selects(cql, holds, *values):
        result = Query.do_cloud_query(cql, *values)
        check("class of " + cql, result.class_name, "_Installation")
        check(cql, names(result.results), [f["n"] for f in records if holds(f)])

    selects("select * from _Installation", lambda f: True)
    selects("select * from _Installation where level = 3", lambda f: f["level"] == 3)
    selects("select * from _Installation where level != 3 and n >= 20",
            lambda f: f["level"] != 3 and f["n"] >= 20)
    selects("select * from _Installation where level = ? or label = ?",
            lambda f: f["level"] == 2 or f["n"] == 7, 2, "Player 07")
    selects("select * from _Installation where level = ? and n < ?",
            lambda f: f["level"] == 2 and f["n"] < 20, [2, 20])
    selects("select * from _Installation where (level <= 1 or level > 4) and n <> 1",
            lambda f: (f["level"] <= 1 or f["level"] > 4) and f["n"] != 1)
    selects("select * from _Installation where level in (1, 3)", lambda f: f["level"] in (1, 3))
    selects("select * from _Installation where level not in (?, ?)",
            lambda f: f["level"] not in (1, 3), 1, 3)
    selects("select * from _Installation where flag is exists", lambda f: "flag" in f)
    selects("select * from _Installation where flag is not exists", lambda f: "flag" not in f)
    selects("select * from _Installation where flag = true", lambda f: f.get("flag") is True)
    selects("select * from _Installation where label like 'Player 1%'",
            lambda f: f["label"].startswith("Player 1"))
    selects("select * from _Installation where label regexp '[37]$'",
            lambda f: f["label"][-1] in "37")
    selects("select * from _Installation where channels all ('Mets', 'Giants')",
            lambda f: {"Mets", "Giants"} <= set(f["channels"]))
    selects("select * from _Installation where size(channels) = 2",
            lambda f: len(f["channels"]) == 2)
    selects("select * from _Installation where channels = 'Yanks-9'",
            lambda f: "Yanks-9" in f["channels"])
    selects("select * from _Installation where born > date('2020-01-20T00:00:00.000Z')",
            lambda f: "born" in f and f["born"] > START + timedelta(days=19))
    selects("select * from _Installation where owner = pointer('_User', '%s')" % users[1].id,
            lambda f: f.get("owner") is users[1])
    counted = Query.do_cloud_query("select count(*) from _Installation where level = 1")
    check("count(*)", (counted.count, counted.results),
          (sum(f["level"] == 1 for f in records), []))
    page = Query.do_cloud_query(
        "select n, label from _Installation where n > 3 limit 2, 3 order by n desc")
    check("columns, a page and an order", [(one.get("n"), one.get("label"), one.has("level"))
                                           for one in page.results],
          [(n, "Player %02d" % n, False) for n in (37, 36, 35)])
    ordered = Query.do_cloud_query(
        "select * from _Installation order by level asc, n desc limit 3")
    check("order before limit", [one.get("n") for one in ordered.results], [35, 28, 21])
    persons = Query.do_cloud_query("select * from _User where age >= 30 order by age limit 2")
    check("another class", (persons.class_name, [one.get("city") for one in persons.results]),
          ("_User", ["Bergen", "Paris"]))
    refused("CQL that is none", lambda: Query.do_cloud_query("selct *"), 300)
    refused("too few values", lambda: Query.do_cloud_query(
        "select * from _Installation where n = ?"), 300)
    refused("CQL that is not built", lambda: Query.do_cloud_query(
        "select * from _Installation where place near geopoint(1, 2)"), 300, naming="near")
    as_client()
    refused("CQL with the app key", lambda: Query.do_cloud_query("select * from _Installation"),
            119)


# ── Identities ──────────────────────────────────────────────────────────────────────────────────


def identities():
    as_master()
    ann = User(username="ann", city="Oslo", age=31)
    ann.set("location", GeoPoint(59.9, 10.7))
    ann.save()
    check("an identity gets an id", isinstance(ann.id, str) and ann.created_at is not None)
    read = User.create_without_data(ann.id)
    read.fetch()
    check("and can be read", (read.get_username(), read.get("city"), read.get("location")),
          ("ann", "Oslo", GeoPoint(59.9, 10.7)))
    ann.increment("age").add_unique("teams", "Mets").set("profile", {"a": 1})
    ann.save()
    read.fetch()
    check("and changed", (read.get("age"), read.get("teams"), read.get("profile")),
          (32, ["Mets"], {"a": 1}))
    bob = User(username="bob", city="Bergen")
    User.save_all([bob])
    check("find", sorted(one.get_username() for one in User.query.exists("city").find()),
          ["ann", "bob"])
    check("count", User.query.equal_to("city", "Oslo").count(), 1)
    check("first", User.query.descending("username").first().id, bob.id)
    check("get", User.query.get(bob.id).get("city"), "Bergen")
    check("scan", sorted(one.id for one in User.query.scan(batch_size=1)),
          sorted([ann.id, bob.id]))
    reached = User()
    reached.set_username("cy")
    reached.set_email("cy@example.com")
    reached.set_mobile_phone_number("+4790000001")
    reached.save()
    read = User.query.equal_to("email", "cy@example.com").first()
    check("how to reach a user", (read.id, read.get_username(), read.get_email(),
                                  read.get_mobile_phone_number()),
          (reached.id, "cy", "cy@example.com", "+4790000001"))
    twin = User(username="dee")
    twin.set_email("cy@example.com")
    refused("an address that another has", twin.save, 203)
    check("nobody's session", (read.get_session_token(), read.is_authenticated(), read.is_current),
          (None, False, False))
    as_client()
    seen = User.create_without_data(reached.id)
    seen.fetch()
    check("the app key does not show how", (seen.get_username(), seen.get_email()), ("cy", None))
    refused("an identity with the app key", User(username="fay").save, 119)
    as_master()
    reached.destroy()
    secret = User(username="eve", password="hunter2")
    refused("a password, kept in the clear or dropped", secret.save)
    refused("a sign-up", lambda: User().sign_up("eve", "hunter2"))
    refused("a login", lambda: User().login("ann", "x"))
    refused("another service's login", lambda: User.login_with("weixin", {"openid": "1"}))
    refused("a link to it", lambda: ann.link_with("weixin", {"openid": "1"}))
    check("nobody is logged in", User.get_current(), None)
    check("and none of them is there", User.query.equal_to("username", "eve").count(), 0)
    bob.destroy()
    refused("an identity that is gone", lambda: User.create_without_data(bob.id).fetch(), 101)


# ── Pushes ──────────────────────────────────────────────────────────────────────────────────────


def pushes():
    """Sends by every parameter; answers which device must have heard what."""
    as_master()
    ann = User(username="ann", city="Oslo")
    ann.save()
    fields = {
        "mets": {"channels": ["Mets"], "level": 1}, "giants": {"channels": ["Giants"], "level": 2},
        "both": {"channels": ["Mets", "Giants"], "level": 3, "owner": ann},
        "none": {"channels": [], "level": 4, "locale": "fr_FR"}}
    phones = {name: phone(**each) for name, each in fields.items()}
    # It does not name the environment of its token: the push does.
    phones["any"] = Installation(deviceType="ios", deviceToken=secrets.token_hex(32),
                                 apnsTopic=TOPIC, level=5)
    Installation.save_all(list(phones.values()))
    droid = Installation(deviceType="android", registrationId="droid-" + secrets.token_hex(20),
                         vendor="fcm", level=6, channels=["Droids"])
    droid.save()
    muted = phone(channels=["Mets"], valid=False, level=7)
    muted.save()
    devices = dict(phones, droid=droid)
    heard = []

    def token(name):
        return devices[name].get("deviceToken") or devices[name].get("registrationId")

    def sent(what, hearers, environment="production", **parameters):
        """Sends, waits until it is done, and checks its record."""
        text = "%s %s" % (what, secrets.token_hex(3))
        data = dict(parameters.pop("data", {}), alert=text)
        notification = push.send(data, **parameters)
        check(what + ": an id", isinstance(notification.id, str) and len(notification.id) > 0)

        def done():
            notification.fetch()
            return notification if notification.get("status") == "done" else None
        until(what, done)
        count = len(hearers)
        check(what + ": its record", [notification.get(key) for key in (
            "devices", "successes", "targeted", "delivered", "pending")],
            [count, count, count, count, 0])
        for name in hearers:
            heard.append({"token": token(name), "text": text, "environment": environment})
        return notification

    everyone = list(phones) + ["droid"]
    sent("to everyone", everyone)
    first = sent("to a channel", ["mets", "both"], channels=["Mets"])
    sent("to two channels", ["mets", "giants", "both"], channels=["Mets", "Giants"])
    sent("by where", ["giants", "both"], where=Query(Installation).greater_than(
        "level", 1).less_than("level", 4))
    sent("by where and channel", ["both"], where=Query(Installation).equal_to("level", 3),
         channels=["Mets"])
    sent("by an owner", ["both"], where=Query(Installation).matches_query(
        "owner", User.query.equal_to("city", "Oslo")))
    sent("by a where of nobody", [], where=Query(Installation).equal_to("level", 99))
    sent("by an empty where", everyone, where=Query(Installation))
    sent("by CQL", ["giants"], cql="select * from _Installation where level = 2")
    sent("soon", ["giants"], channels=["Giants"], where=Query(Installation).equal_to("level", 2),
         push_time=datetime.now(timezone.utc) + timedelta(seconds=2))
    sent("at a time past", ["giants"], where=Query(Installation).equal_to("level", 2),
         push_time=datetime(2020, 1, 1))
    sent("until a time", ["giants"], where=Query(Installation).equal_to("level", 2),
         expiration_time=datetime.now() + timedelta(hours=1))
    sent("for a while", ["giants"], where=Query(Installation).equal_to("level", 2),
         expiration_interval=3600)
    sent("at a pace", ["mets", "both"], channels=["Mets"], flow_control=0)
    sent("at another pace", ["mets", "both"], channels=["Mets"], flow_control=5000)
    sent("to the sandbox", ["any"], environment="sandbox", prod="dev",
         where=Query(Installation).equal_to("level", 5))
    sent("to production", ["any"], prod="prod", where=Query(Installation).equal_to("level", 5))
    leancloud.use_production(False)
    sent("from a stage", ["any"], environment="sandbox",
         where=Query(Installation).equal_to("level", 5))
    leancloud.use_production(True)
    badge = {"badge": "Increment", "sound": "cheering.caf", "game": 7}
    sent("a badge", ["mets", "both"], channels=["Mets"], data=badge)
    sent("a badge again", ["mets"], where=Query(Installation).equal_to("level", 1), data=badge)
    check("badges are counted", [again(phones[name]).get("badge") for name in ("mets", "both")],
          [2, 1])
    sent("to Android", ["droid"], channels=["Droids"], data={"title": "Ding", "ios": {"badge": 1}})

    # A scheduled push can be read and cancelled, by the package's own requests.
    later = push.send({"alert": "never"}, channels=["Mets"],
                      push_time=datetime.now(timezone.utc) + timedelta(hours=5))
    waiting = client.get("/scheduledPushMessages").json()["results"]
    check("what waits is listed", [one["push_msg"]["id"] for one in waiting], [later.id])
    later.fetch()
    check("and its record says so", later.get("status"), "scheduled")
    client.delete("/scheduledPushMessages/%s" % waiting[0]["id"])
    check("and taken back", client.get("/scheduledPushMessages").json()["results"], [])

    # Each is refused at once.
    refused("both ends", lambda: client.post("/push", {
        "data": {"alert": "x"}, "expiration_interval": 5,
        "expiration_time": "2040-01-01T00:00:00.000Z"}), naming="expiration")
    refused("where beside cql", lambda: push.send(
        {"alert": "x"}, where=Query(Installation).equal_to("level", 1),
        cql="select * from _Installation"))
    refused("a where that cannot run", lambda: client.post("/push", {
        "data": {"alert": "x"}, "where": {"level": {"$above": 1}}}), naming="$above")
    refused("CQL that is none", lambda: push.send({"alert": "x"}, cql="select"), naming="cql")
    refused("a channel that is none", lambda: push.send({"alert": "x"}, channels=["a b"]), 112)
    refused("no data", lambda: client.post("/push", {"channels": ["Mets"]}), naming="data")
    try:
        push.send({"alert": "x"}, expiration_time=datetime.now(), expiration_interval=1)
        check("the package itself refuses both ends", False)
    except TypeError:
        pass
    as_client()
    refused("a push with the app key", lambda: push.send({"alert": "x"}), 119)
    as_master()
    refused("a record that is none", push.Notification.create_without_data("nothing").fetch, 101)
    refused("a record is not saved", first.save, 1)
    records(first, later)
    return {"heard": heard, "silent": [muted.get("deviceToken")]}


def records(first, cancelled):
    """The records of what was sent, as a class."""
    notifications = Query("_Notification")
    check("records: get", notifications.get(first.id).get("status"), "done")
    found = Query("_Notification").limit(1000).descending("createdAt").find()
    check("records: find", {first.id, cancelled.id} <= {one.id for one in found})
    times = [one.created_at for one in found]
    check("records: latest first", times, sorted(times, reverse=True))
    check("records: count", Query("_Notification").count(), len(found))
    check("records: by id", [one.id for one in Query("_Notification").equal_to(
        "objectId", first.id).find()], [first.id])
    done = Query("_Notification").equal_to("status", "done").limit(1000)
    check("records: by status", len(done.find()),
          sum(one.get("status") == "done" for one in found))
    check("records: first", Query("_Notification").ascending("createdAt").first().id,
          found[-1].id)
    page = Query("_Notification").descending("createdAt").skip(2).limit(3).find()
    check("records: a page", [one.id for one in page], [one.id for one in found[2:5]])
    listed = client.get("/notifications").json()
    check("records: the other list", first.id in json.dumps(listed))
    as_client()
    refused("records with the app key", Query("_Notification").find)
    as_master()


# ── The rest of the client ──────────────────────────────────────────────────────────────────────


def other_calls():
    as_client()
    server_time = leancloud.client.get_server_time()
    check("the server's time", abs(
        (server_time - datetime.now(timezone.utc)).total_seconds()) < 600)
    leancloud.init(os.environ["APP_ID"], "not the key")
    leancloud.use_master_key(False)
    refused("a wrong key", phone().save, 401)
    leancloud.init("nobody-" + secrets.token_hex(4), os.environ["APP_KEY"])
    refused("an unknown app", phone().save, 401)
    as_client()
    # The package's calls for other services: each is refused, and none is ignored.
    as_master()
    ann = User(username="ann")
    ann.save()
    related = phone()
    related.save()
    Relation(related, "friends").add(ann)
    refused("a relation", related.save, naming="Relation")
    for what, call in [
            ("a function", lambda: cloud.run("hello", name="x")),
            ("a procedure", lambda: cloud.rpc("hello", name="x")),
            ("a login", lambda: User().login("ann", "x")),
            ("a session", lambda: User.become("token")),
            ("a password's reset", lambda: User.request_password_reset("a@example.com")),
            ("a text message", lambda: cloud.request_sms_code("+4790000000")),
            ("a friend", lambda: ann.follow("somebody")),
            ("no friend", lambda: ann.unfollow("somebody")),
            ("followees", lambda: User.create_followee_query("somebody").find()),
            ("a user's roles", ann.get_roles),
            ("a new session", ann.refresh_session_token),
            ("another password", lambda: ann.update_password("a", "b")),
            ("a login by telephone", lambda: User.login_with_mobile_phone("+4790000000", "x")),
            ("a sign-up by telephone",
             lambda: User.signup_or_login_with_mobile_phone("+4790000000", "123456")),
            ("an address's proof", lambda: User.request_email_verify("a@example.com")),
            ("a number's proof", lambda: User.request_mobile_phone_verify("+4790000000")),
            ("the proof itself",
             lambda: User.verify_mobile_phone_number("123456", "+4790000000")),
            ("a code to log in", lambda: User.request_login_sms_code("+4790000000")),
            ("a reset by telephone",
             lambda: User.request_password_reset_by_sms_code("+4790000000")),
            ("the reset itself",
             lambda: User.reset_password_by_sms_code("123456", "x", "+4790000000")),
            ("another number", lambda: User.request_change_phone_number("+4790000000")),
            ("the other number itself",
             lambda: User.change_phone_number("123456", "+4790000000")),
            ("a captcha", cloud.request_captcha),
            ("a code's proof", lambda: cloud.verify_sms_code("+4790000000", "123456")),
            ("followers", lambda: User.create_follower_query("somebody").find()),
            ("roles", lambda: Query("_Role").find()),
            ("statuses", lambda: Query("_Status").find()),
            ("files", lambda: Query("_File").find()),
            ("another class", lambda: Object.create("Team", name="Mets").save()),
            ("a query for another class", lambda: Query("Team").find()),
            ("a relation's query", Relation(related, "friends").query.find),
            ("a path that is none", lambda: client.get("/nothing/here"))]:
        refused(what, call)


SCENARIOS = {
    "installations": installations, "batches": batches, "queries": queries, "scans": scans,
    "cloud-queries": cloud_queries, "identities": identities, "pushes": pushes,
    "other-calls": other_calls,
}


def main():
    result = None
    try:
        result = SCENARIOS[sys.argv[1]]()
    except Exception:
        problems.append("the scenario went on")
        traceback.print_exc()
    print(json.dumps(result or {}))
    sys.exit(1 if problems else 0)


main()

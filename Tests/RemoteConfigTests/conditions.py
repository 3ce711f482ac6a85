"""Condition expressions beside those of PyPI's firebase-remote-config.

usage: conditions.py write COUNT SEED FILE   writes random ones by its builder, a line each: `+` or
                                             `-` (it has an element that needs Google), a blank, and
                                             the text
       conditions.py read FILE               parses each line by its parser; prints those of which
                                             it makes another text, or none, and how many it read
"""

import random
import sys
from datetime import datetime

import pytz
from firebase_remote_config.conditions import ConditionBuilder, ConditionParser

ZONES = [None, "Europe/Berlin", "America/Los_Angeles", "Asia/Kathmandu", "Australia/Lord_Howe",
         "Pacific/Apia", "Etc/GMT+5", "GMT", "UTC", "America/Argentina/Buenos_Aires", "EST"]
PATTERNS = ["^2025\\.", "a|b", "(?i)beta$", "[0-9]+", "\\d{1,3}", "(?P<n>x)+", "\\pL", "^$", ".*",
            "[[:alpha:]]", "\\Qa.b\\E", "(a+)+$", "é"]
LETTERS = "abcdefghijklmnopqrstuvwxyzABCXYZ0123456789 _-.:/()[]{}\"&|,<>=!äßλ中é́😀"
COUNTRIES = ["US", "DE", "GB", "BR", "JP"]
LANGUAGES = ["en", "en-US", "de-DE", "pt-BR", "zh-Hans-CN"]


def word(rng, longest=12):
    return "".join(rng.choices(LETTERS, k=rng.randint(1, longest)))


def words(rng):
    return [word(rng) for _ in range(rng.randint(1, 4))]


def version(rng):
    return ".".join(str(rng.choice([0, 1, 2, 10, 99, 2025])) for _ in range(rng.randint(1, 4)))


def number(rng):
    if rng.random() < 0.5:
        return rng.randint(-10**6, 10**12)
    return round(rng.uniform(-1000, 1000), 3) or 0.5


def time(rng):
    value = datetime(rng.randint(1980, 2090), rng.randint(1, 12), rng.randint(1, 28),
                     rng.randint(0, 23), rng.randint(0, 59), rng.randint(0, 59))
    zone = rng.choice(ZONES)
    return pytz.timezone(zone).localize(value) if zone else value


def seed(rng):
    if rng.random() < 0.5:
        return None
    return "".join(rng.choices("-_.0123456789abcXYZ", k=rng.randint(1, 32)))


def texts(rng, at):
    name = rng.choice(["CONTAINS", "DOES_NOT_CONTAIN", "EXACTLY_MATCHES", "CONTAINS_REGEX"])
    values = rng.choices(PATTERNS, k=rng.randint(1, 3)) if name == "CONTAINS_REGEX" else words(rng)
    getattr(at, name)(values)


def app_version(rng, builder):
    at = rng.choice([builder.CONDITION().APP_VERSION, builder.CONDITION().APP_BUILD])()
    if rng.random() < 0.5:
        return texts(rng, at)
    getattr(at, rng.choice(["EQ", "NEQ", "LT", "LTE", "GT", "GTE"]))(version(rng))


def property_of(rng, builder):
    of = rng.choice([builder.CONDITION().APP_USER_PROPERTY, builder.CONDITION().APP_CUSTOM_SIGNAL])
    at = of(word(rng))
    if rng.random() < 0.5:
        return texts(rng, at)
    getattr(at, rng.choice(["EQ", "NEQ", "LT", "LTE", "GT", "GTE"]))(number(rng))


def percent(rng, builder):
    at = builder.PERCENT()
    kind = rng.randrange(3)
    if kind == 0:
        at.LTE(rng.randint(1, 100), seed(rng))
    elif kind == 1:
        at.GT(rng.randint(1, 100), seed(rng))
    else:
        low = rng.randint(0, 100)
        at.BETWEEN(low, rng.randint(low, 100), seed(rng))


def audience(rng, builder):
    of = rng.choice([builder.CONDITION().APP_AUDIENCES,
                     builder.CONDITION().APP_IMPORTED_SEGMENTS])()
    getattr(of, rng.choice(["IN_AT_LEAST_ONE", "NOT_IN_AT_LEAST_ONE", "IN_ALL", "NOT_IN_ALL"]))(
        words(rng))


ELEMENTS = [
    app_version, app_version, property_of, property_of, percent,
    lambda rng, b: b.TRUE(),
    lambda rng, b: b.FALSE(),
    lambda rng, b: b.CONDITION().APP_ID().EQ(word(rng)),
    lambda rng, b: b.CONDITION().APP_FIRST_OPEN_TIMESTAMP().GT(time(rng)),
    lambda rng, b: b.CONDITION().APP_FIRST_OPEN_TIMESTAMP().LTE(time(rng)),
    lambda rng, b: b.CONDITION().DEVICE_DATETIME().LT(time(rng)),
    lambda rng, b: b.CONDITION().DEVICE_DATETIME().GTE(time(rng)),
    lambda rng, b: b.CONDITION().APP_FIREBASE_INSTALLATION_ID().IN(words(rng)),
    lambda rng, b: b.CONDITION().DEVICE_COUNTRY().IN(rng.sample(COUNTRIES, rng.randint(1, 4))),
    lambda rng, b: b.CONDITION().DEVICE_LANGUAGE().IN(rng.sample(LANGUAGES, rng.randint(1, 4))),
    lambda rng, b: b.CONDITION().DEVICE_OS().EQ(rng.choice(["ios", "android"])),
    lambda rng, b: b.CONDITION().DEVICE_OS().NEQ(rng.choice(["ios", "android"])),
]


def write(count, start, path):
    rng = random.Random(start)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            builder = ConditionBuilder()
            for _ in range(rng.choice([1, 1, 2, 3])):
                rng.choice(ELEMENTS)(rng, builder)
            taken = "+"
            if rng.random() < 0.05:
                audience(rng, builder)
                taken = "-"
            file.write(f"{taken} {builder.build()!r}\n")


def reading(line):
    """What is wrong with this line; None where nothing is."""
    try:
        # It uses its own escaping, as its parser reads \t and similar text as escapes.
        text = repr(ConditionParser().parse(line))
    except Exception as error:
        return f"{line}: {type(error).__name__} {str(error)[:200]}"
    if "\\" not in line and text != line:
        return f"{line}: read as {text}"
    return None


def read(path):
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for line in lines:
        wrong = reading(line)
        if wrong:
            print("WRONG", wrong)
    print("READ", len(lines))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        read(sys.argv[2])

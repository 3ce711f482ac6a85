"""Random schemas and values, and what PyPI's jsonschema says of them.

usage: schemas.py COUNT SEED FILE   writes COUNT lines, each a list: schema, value, whether it is valid
"""

import json
import random
import sys
from fractions import Fraction

from jsonschema import Draft202012Validator
from jsonschema.validators import extend

TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]
KEYS = ["a", "b", "c", "é", "e\u0301", "a/b", "~"]
TEXTS = ["", "a", "ab", "abc", "é", "e\u0301", "😀", "😀😀", "aaa", "A1", "2024-02-29", "x" * 20]
FORMATS = {
    "date-time": ["2024-02-29T12:00:00Z", "2023-02-29T12:00:00Z", "2024-01-01T00:00:00.123+05:30",
                  "2024-01-01 00:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01T00:00:00", "x"],
    "date": ["2024-02-29", "2023-02-29", "2024-1-1", "2024-13-01", "20240101", ""],
    "time": ["12:00:00Z", "12:00:00+01:00", "25:00:00Z", "12:00:00", "12:60:00Z", "12:00:00.5Z"],
    "uuid": ["2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2EB8AA08-AA98-11EA-B4AA-73B441D16380",
             "2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4aa-73b441d1638g", ""],
    "email": ["a@example.com", "a.b@example.com", "example.com", ""],
    "uri": ["http://example.com/a?b#c", "urn:a:b", "//example.com/a", "/a", "http://a b/", "a"],
}
PATTERNS = ["^a", "b$", "a+", "^.{2}$", "[0-9]", "^$", "a|é", "^(ab)*$", "😀"]
NUMBERS = [0, 1, -1, 2, 3, 1.0, 1.5, 0.1, 0.3, 19.99, 4.35, -2.5, 1e3, 1e20, 100000000000000000000,
           2**53, 2**53 + 1, 2**63, 2**63 - 1, -2**63, 2**64 + 1, 12345678901234567890123, 0.01, -0.0]


def number(rng):
    if rng.random() < 0.7:
        return rng.choice(NUMBERS)
    return rng.choice([rng.randint(-5, 5), rng.randint(-500, 500) / 100, rng.randint(-10, 10) / 2])


def value(rng, depth=0):
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind in (1, 2, 3):
        return number(rng)
    if kind == 4:
        return rng.choice(TEXTS)
    if kind == 5:
        return rng.choice(rng.choice(list(FORMATS.values())))
    if kind == 6:
        return [value(rng, depth + 1) for _ in range(rng.randint(0, 4))]
    return {key: value(rng, depth + 1) for key in rng.sample(KEYS, rng.randint(0, 4))}


def bounds(rng, result, name, number_of):
    if rng.random() < 0.6:
        result["min" + name] = number_of()
    if rng.random() < 0.6:
        result["max" + name] = number_of()


def schema(rng, depth, names):
    if rng.random() < 0.08:
        return rng.random() < 0.7
    result = {}
    if rng.random() < 0.4:
        many = rng.random() < 0.4
        result["type"] = rng.sample(TYPES, rng.randint(1, 4)) if many else rng.choice(TYPES)
    for _ in range(rng.randint(1, 3)):
        kind = rng.randrange(15 if depth < 3 else 8)
        if kind == 0:
            result["enum"] = [value(rng, 1) for _ in range(rng.randint(1, 12))]
        elif kind == 1:
            result["const"] = value(rng, 1)
        elif kind == 2:
            bounds(rng, result, "imum", lambda: number(rng))
        elif kind == 3:
            result[rng.choice(["exclusiveMinimum", "exclusiveMaximum"])] = number(rng)
        elif kind == 4:
            result["multipleOf"] = rng.choice([1, 2, 3, 0.5, 0.25, 0.1, 0.01, 1.5, 1e10])
        elif kind == 5:
            bounds(rng, result, "Length", lambda: rng.randint(0, 4))
        elif kind == 6:
            result["pattern"] = rng.choice(PATTERNS)
        elif kind == 7:
            result["format"] = rng.choice(list(FORMATS))
        elif kind == 8:
            bounds(rng, result, rng.choice(["Items", "Properties"]), lambda: rng.randint(0, 4))
        elif kind == 9:
            result["uniqueItems"] = rng.random() < 0.9
        elif kind == 10:
            result["items"] = schema(rng, depth + 1, names)
            if rng.random() < 0.5:
                result["prefixItems"] = [schema(rng, depth + 1, names)
                                         for _ in range(rng.randint(1, 3))]
        elif kind == 11:
            result["properties"] = {key: schema(rng, depth + 1, names)
                                    for key in rng.sample(KEYS, rng.randint(1, 4))}
            if rng.random() < 0.5:
                result["additionalProperties"] = schema(rng, depth + 1, names)
        elif kind == 12:
            result["required"] = rng.sample(KEYS, rng.randint(0, 3))
        elif kind == 13:
            result[rng.choice(["allOf", "anyOf", "oneOf"])] = [
                schema(rng, depth + 1, names) for _ in range(rng.randint(1, 3))]
        elif rng.random() < 0.5 or not names:
            result["not"] = schema(rng, depth + 1, names)
        else:
            result["$ref"] = "#/$defs/" + rng.choice(names)
    return result


class Unclear(Exception):
    pass


def multiple_of(validator, divisor, instance, _):
    """By decimals, as numbers are written; its own divides doubles, by which 4.35 is no multiple
    of 0.01. Those of which both say the same are by its own."""
    if not validator.is_type(instance, "number"):
        return
    own = list(Draft202012Validator.VALIDATORS["multipleOf"](validator, divisor, instance, {}))
    exact = Fraction(repr(instance)) % Fraction(repr(divisor)) != 0
    if exact != bool(own):
        raise Unclear
    yield from own


def main(count, seed, file):
    validator_class = extend(Draft202012Validator, {"multipleOf": multiple_of})
    rng = random.Random(seed)
    checker = Draft202012Validator.FORMAT_CHECKER
    done = 0
    while done < count:
        names = ["d0", "d1"]
        top = schema(rng, 0, names)
        if isinstance(top, dict):
            top["$defs"] = {"d0": schema(rng, 2, ["d1"]), "d1": schema(rng, 3, [])}
        Draft202012Validator.check_schema(top)
        validator = validator_class(top, format_checker=checker)
        for _ in range(5):
            own = value(rng)
            try:
                valid = validator.is_valid(own)
            except (Unclear, OverflowError):
                continue
            print(json.dumps([top, own, valid]), file=file)
            done += 1
            if done == count:
                return


with open(sys.argv[3], "w") as output:
    main(int(sys.argv[1]), int(sys.argv[2]), output)

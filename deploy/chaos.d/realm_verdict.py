"""Compares what Realm's clients wrote with what is stored.

usage: realm_verdict.py RECORD STORED LETTERS

RECORD is that of realm_clients.py. STORED has the ids in Postgres, LETTERS those of the dead letters, one a
line, as often as they are there. Prints one JSON object: `lost` and `twice`: objects that are not in Postgres,
or more often; `strange`: those that no client wrote; `refusedLost`: refused objects without a dead letter;
`refusedStored`: those in Postgres; `lettersStrange`: dead letters of other objects; `torn`: interrupted
writes of which not the first transactions are there as a whole; `letters`: how many there are.
"""

import collections
import json
import sys

RECORD, STORED, LETTERS = sys.argv[1:]


def ids(path):
    with open(path) as file:
        return collections.Counter(line.strip() for line in file)


def is_torn(flags, per):
    """Whether these are not the first transactions, each as a whole; the last one may be shorter."""
    count = sum(flags)
    return any(flags[count:]) or count % per != 0 and count != len(flags)


stored, letters = ids(STORED), ids(LETTERS)
verdict = collections.Counter(lost=0, refusedLost=0, refusedStored=0, torn=0)
accepted, refused = set(), set()
with open(RECORD) as file:
    for part in map(json.loads, file):
        written = ["%s%08x" % (part["prefix"], part["first"] + n) for n in range(part["count"])]
        kept = letters if part["isRefused"] else stored
        (refused if part["isRefused"] else accepted).update(written)
        if not part["isCertain"]:
            verdict["torn"] += is_torn([one in kept for one in written], part["per"])
        else:
            verdict["refusedLost" if part["isRefused"] else "lost"] += sum(one not in kept for one in written)
verdict["twice"] = sum(count > 1 for count in stored.values())
verdict["strange"] = sum(one not in accepted and one not in refused for one in stored)
verdict["refusedStored"] = sum(one in refused for one in stored)
verdict["lettersStrange"] = sum(one not in refused for one in letters)
verdict["stored"], verdict["letters"] = sum(stored.values()), sum(letters.values())
print(json.dumps(verdict))

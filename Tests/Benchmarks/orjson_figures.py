"""What `carillon-bench json FILE` measures, of orjson: CPU nanoseconds a call, medians."""

import json
import statistics
import sys
import time

import orjson


def median_nanoseconds(body, argument, batches=15, batch=20_000_000):
    def spent(calls):
        start = time.thread_time_ns()
        for _ in range(calls):
            body(argument)
        return time.thread_time_ns() - start

    calls = 1
    while (took := spent(calls)) < batch / 2:
        calls *= 2
    calls = max(1, int(calls * batch / took))
    return statistics.median(spent(calls) / calls for _ in range(batches))


with open(sys.argv[1], "rb") as file:
    record = file.read()
print(
    json.dumps(
        {
            "bytes": len(record),
            "read_ns": median_nanoseconds(orjson.loads, record),
            "write_ns": median_nanoseconds(orjson.dumps, orjson.loads(record)),
        }
    )
)

"""Runs Schemathesis with one thread at a time in Python's parser.

CPython 3.11 counts the parser's depth once for all threads: where a finalizer lets another thread parse
meanwhile, one of the two ends with "AST constructor recursion depth mismatch". Schemathesis parses the
source of lambdas for its texts, in each of its workers.
"""

import ast
import sys
import threading

parse = ast.parse
turn = threading.RLock()


def parse_alone(*arguments, **options):
    with turn:
        return parse(*arguments, **options)


ast.parse = parse_alone

from schemathesis.cli import schemathesis  # noqa: E402

sys.exit(schemathesis())

"""Runs Schemathesis with one thread at a time in Python's parser.

CPython 3.11 counts the parser's depth once for all threads: where a finalizer lets another thread parse
meanwhile, one of the two ends with "AST constructor recursion depth mismatch". Schemathesis parses the
source of lambdas for its texts in each of its workers, and imports modules there, which are parsed too.
"""

import builtins
import sys
import threading

compile_now = builtins.compile
turn = threading.RLock()


def compile_alone(*arguments, **options):
    with turn:
        return compile_now(*arguments, **options)


# `ast.parse` and imports call it.
builtins.compile = compile_alone

from schemathesis.cli import schemathesis  # noqa: E402

sys.exit(schemathesis())

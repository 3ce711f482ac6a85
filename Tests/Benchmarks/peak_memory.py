"""Runs a command and writes its peak memory in KiB to a file: peak_memory.py FILE COMMAND…"""

import resource
import subprocess
import sys

code = subprocess.call(sys.argv[2:])
with open(sys.argv[1], "w", encoding="ascii") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)

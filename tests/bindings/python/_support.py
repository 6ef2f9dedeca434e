"""Helpers that the tests of the Python package share."""

import logging
import os
import subprocess
import sys
import textwrap
import threading
import unittest

os.environ.setdefault("LOAM_CONTROL", "0")

POLICY = """
local plain   = loam.host { name = "plain" }
local aligned = loam.host { name = "aligned", align = 4096 }
local denied  = loam.deny { name = "denied" }
return loam.policy { name = "test", pick = function(req)
  if req.tag:under("aligned") then return aligned end
  if req.tag:under("denied") then return denied end
  return plain
end }
"""


def run_child(script, *, code=0, **environment):
    """Runs a script in a new Python, which must exit with `code`. Returns its output and errors."""
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script)],
                          env={**os.environ, **environment}, capture_output=True, text=True,
                          timeout=300)
    if done.returncode != code:
        raise AssertionError(f"exit status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def drop_in_threads(items):
    """Drops the last references to the items, in four threads at the same time."""
    def drop():
        while items:
            items.pop()
    threads = [threading.Thread(target=drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Case(unittest.TestCase):
    """Keeps the log quiet. Tests that read the log use assertLogs."""

    @classmethod
    def setUpClass(cls):
        logging.getLogger("loam").setLevel(logging.CRITICAL)


def main():
    """Runs the tests of the file. Exits with 77 if all of them were skipped."""
    program = unittest.main(exit=False, verbosity=2)
    result = program.result
    for test, why in result.skipped:
        print(f"skipped: {test}: {why}")
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.skipped and len(result.skipped) == result.testsRun else 0)

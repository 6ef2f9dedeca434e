"""Runs loam's command: `python -m loam check prod.lua` does what `loam check prod.lua` does.

pip also installs this as the program `loam`. The process of the interpreter becomes the command, so
nothing stands between the command and whoever waits for its exit status or sends it a signal.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from typing import NoReturn

__all__ = ["find_command", "main"]

_NOT_FOUND = 127


def find_command() -> str | None:
    """Returns the path of the command: the one in this package, or else the one of the system.

    A package of Debian does not contain the command, because another package installs it.
    """
    folder = os.path.dirname(os.path.abspath(__file__))
    own = os.path.join(folder, "bin", "loam")
    if os.access(own, os.X_OK):
        return own
    # This function may run as a program that is also named loam, in any folder of PATH.
    return shutil.which("loam", path="/usr/local/bin:/usr/bin")


def main() -> NoReturn:
    """Replaces this process by the command, with the arguments of this process."""
    path = find_command()
    if path is None:
        print("loam: the command was not found: neither in this package, nor in /usr/local/bin or "
              "/usr/bin (apt-get install loam)", file=sys.stderr)
        sys.exit(_NOT_FOUND)
    # Python ignores these two signals, and a process keeps ignoring them after exec. Then the
    # command would complain, rather than end, when a reader such as head(1) ends.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execv(path, ["loam", *sys.argv[1:]])


if __name__ == "__main__":
    main()

"""The exceptions of loam: Error, and a subclass for each failure that a program may handle."""

from __future__ import annotations

import errno
import re

from . import _loam

__all__ = ["Error", "FileError", "InvalidError", "NoMemoryError", "PolicyError", "StateError"]


# "FILE:LINE: CLASS: REASON"; ":LINE" may be missing.
_PLACE = re.compile(r"(?P<file>[^\n]*?)(?::(?P<line>\d+))?: "
                    r"(?P<kind>[a-z][a-z -]*): (?P<reason>.*)")

# The numbers of the system's errors, by the words with which loam's texts end.
_NUMBERS = {_loam.error_words(number): number for number in errno.errorcode}


class Error(Exception):
    """A call failed. The text describes the error; `status` is the loam_status of loam.h."""

    status: int = -9


class InvalidError(Error, ValueError):
    """An argument is not valid."""

    status = -1


class NoMemoryError(Error, MemoryError):
    """There is no memory, or the policy denies the request."""

    status = -2


class PolicyError(Error):
    """A policy was refused; the live policy stays.

    `file` and `line` are the place of the fault, `kind` is its class ("syntax", "field", ...) and
    `reason` describes it. If the refusal has no place, `file`, `line` and `kind` are None and
    `reason` is the whole text. A policy that takes too much time or memory has the kind "budget".
    """

    status = -3

    def __init__(self, words: str) -> None:
        super().__init__(words)
        place = _PLACE.match(words)
        self.file: str | None = place["file"] if place else None
        self.line: int | None = int(place["line"]) if place and place["line"] else None
        self.kind: str | None = place["kind"] if place else None
        self.reason: str = place["reason"] if place else words


class FileError(Error, OSError):
    """A file or a socket could not be used.

    `errno` is the system's number of the error, such as errno.ENOENT; None if loam itself refused.
    """

    status = -4

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.errno = _NUMBERS.get(words.rpartition(": ")[2])  # type: ignore[assignment]


class StateError(Error, RuntimeError):
    """The call is not possible at this moment, or not on this machine."""

    status = -5


_KINDS: tuple[type[Error], ...] = (InvalidError, NoMemoryError, PolicyError, FileError, StateError)
_UNSUPPORTED, _BUDGET = -7, -8


def of_status(status: int, words: str) -> Error:
    """Returns the exception for a loam_status and its words. The C extension calls it."""
    for kind in _KINDS:
        if kind.status == status:
            return kind(words)
    kind = {_UNSUPPORTED: StateError, _BUDGET: PolicyError}.get(status, Error)
    error = kind(words)
    error.status = status
    return error

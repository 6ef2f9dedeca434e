"""What loam's functions raise: one class, and under it what a program may want to tell apart."""

from __future__ import annotations

import re

__all__ = ["Error", "FileError", "InvalidError", "NoMemoryError", "PolicyError", "StateError"]


# "FILE:LINE: CLASS: REASON", the line where there is one.
_PLACE = re.compile(r"(?P<file>[^\n]*?)(?::(?P<line>\d+))?: "
                    r"(?P<kind>[a-z][a-z -]*): (?P<reason>.*)")


class Error(Exception):
    """A call that failed; its text says what was wrong, and `status` is loam.h's number."""

    status: int = -9


class InvalidError(Error, ValueError):
    """An argument is not valid."""

    status = -1


class NoMemoryError(Error, MemoryError):
    """There is no memory for it, or the policy denies it."""

    status = -2


class PolicyError(Error):
    """A policy was refused; the live one stays.

    `file` and `line` say where, `kind` is the class of the fault ("syntax", "field", ...) and
    `reason` the words after it. They are None where the refusal has no such place.
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
    """A file could not be read."""

    status = -4


class StateError(Error, RuntimeError):
    """Not possible at this moment, or not on this machine."""

    status = -5


_KINDS: tuple[type[Error], ...] = (InvalidError, NoMemoryError, PolicyError, FileError, StateError)
_UNSUPPORTED = -7


def of_status(status: int, words: str) -> Error:
    """The exception of a failure of loam.h; for the extension."""
    for kind in _KINDS:
        if kind.status == status:
            return kind(words)
    error = StateError(words) if status == _UNSUPPORTED else Error(words)
    error.status = status
    return error

"""Policies: which memory a tag and a size get. One Lua file, loaded, followed, asked."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Iterable, Union

from . import _loam, events
from .errors import PolicyError

__all__ = ["Check", "Explanation", "Info", "Problem", "check", "explain", "info", "load",
           "unwatch", "watch"]

_Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Info:
    """The live policy, and what became of the attempts to change it."""

    generation: int
    name: str
    path: str
    hash: str
    loaded_at: float
    loads: int
    refused: int
    last_error: str
    tags_refused: int
    plans: int
    sites: int
    watching: bool


def info() -> Info:
    """The live policy; generation 0 is the built-in default."""
    return Info(**_loam.policy_info())


def load(path: _Path | None = None, *, text: str | None = None, name: str = "policy") -> Info:
    """Makes a policy live, for all threads at once: a file's, or `text` under a `name`.

    PolicyError says where and why one is refused; then the live one stays. FileError if the file
    cannot be read.
    """
    if (path is None) == (text is None):
        raise TypeError("load() takes a path or a text, one of them")
    events.start()
    try:
        if text is None:
            _loam.policy_load(path)
        else:
            _loam.policy_load_text(name, text if text.endswith("\n") else text + "\n")
    finally:
        events.deliver()
    return info()


def watch(path: _Path) -> Info:
    """Loads a file and then follows its edits, in place, by rename or by symbolic link.

    The failure of the first load is raised, and the file is followed all the same. Later ones are
    events (see loam.events), and the live policy stays.
    """
    events.start()
    try:
        _loam.policy_watch(path)
    finally:
        events.deliver()
    return info()


def unwatch() -> None:
    """Follows no file any more; the live policy stays."""
    _loam.policy_watch(None)


# ---- Asking a policy that is not live


@dataclass(frozen=True)
class Problem:
    """One fault of a policy, or one warning."""

    file: str
    line: int | None
    kind: str
    reason: str
    source: str | None
    suggestion: str | None

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        hint = f" ({self.suggestion})" if self.suggestion else ""
        return f"{where}: {self.kind}: {self.reason}{hint}"


@dataclass(frozen=True)
class Check:
    """What `loam check` finds; true if the policy would be taken. `answer` is all of it."""

    ok: bool
    errors: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    answer: dict[str, Any]

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True)
class Explanation:
    """Which strategy serves a request, and the lines that decided; `answer` is all of it."""

    tag: str
    size: int
    strategy: str
    kind: str
    options: dict[str, Any]
    line: int | None
    path: tuple[tuple[int, str, bool], ...]
    answer: dict[str, Any]


def _problems(answer: dict[str, Any], key: str) -> tuple[Problem, ...]:
    return tuple(
        Problem(str(one.get("file", "")), one.get("line"), str(one.get("class", "")),
                str(one.get("reason", "")), one.get("source"), one.get("suggestion"))
        for one in answer.get(key) or ())


def _ask(path: _Path, verb: str, asked: Iterable[tuple[str, object]]) -> dict[str, Any]:
    lines = [f"verb {verb}"]
    for key, value in asked:
        if "\n" in str(value):
            raise ValueError(f"{key} {value!r}: it holds the end of a line")
        lines.append(f"{key} {value}")
    answer: dict[str, Any] = json.loads(_loam.policy_inspect(path, "\n".join(lines) + "\n"))
    return answer


def check(path: _Path, tags: Iterable[str] = ()) -> Check:
    """Everything that a load would do with the file, for its own tags and `tags`, and no more."""
    answer = _ask(path, "check", [("tag", tag) for tag in tags])
    errors, warnings = _problems(answer, "errors"), _problems(answer, "warnings")
    return Check(not errors and answer.get("ok", True), errors, warnings, answer)


def explain(path: _Path, tag: str, size: int, *, align: int | None = None, zero: bool = False,
            node: int | None = None, live: int | None = None, device: int | None = None,
            file: str | None = None, func: str | None = None, module: str | None = None,
            line: int | None = None) -> Explanation:
    """What the file decides for a request, and why. PolicyError if it would be refused."""
    given = {"align": align, "node": node, "live": live, "device": device, "file": file,
             "func": func, "module": module, "line": line}
    asked: list[tuple[str, object]] = [("tag", tag), ("size", size), ("zero", int(zero))]
    asked += [(key, value) for key, value in given.items() if value is not None]
    answer = _ask(path, "explain", asked)
    errors = _problems(answer, "errors")
    if errors:
        raise PolicyError(str(errors[0]))
    options = dict(answer["strategy"])
    steps = tuple((step["line"], step["condition"], step["holds"]) for step in answer["path"])
    return Explanation(answer["tag"], answer["size"], options.pop("name"), options.pop("kind"),
                       options, answer.get("line"), steps, answer)

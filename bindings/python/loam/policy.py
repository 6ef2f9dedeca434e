"""Policies: Lua files that say which memory each tag and size gets.

load() and watch() make a policy live, info() describes the live policy, check() and explain()
inspect a file without making it live.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Union

from . import _loam, children, events
from .errors import PolicyError

__all__ = ["Check", "Explanation", "Info", "Problem", "check", "explain", "info", "load",
           "unwatch", "watch"]

_Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Info:
    """The live policy, and the attempts to change it.

    generation: number of the live policy; 0 is the built-in default.
    name, path, hash: the policy's name, its file ("" if loaded from text), a hash of its text.
    loaded_at: Unix time when it went live, in seconds; 0 for the built-in default.
    loads, refused, last_error: attempts so far, failed attempts, and the error of the last attempt
        ("" if it succeeded).
    tags_refused: new sites for whose plan there was no memory.
    plans, sites: distinct plans of the policy, and known call-sites.
    watching: whether a file is followed.
    """

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
    """Returns the live policy and the last attempt to change it."""
    return Info(**_loam.policy_info())


def load(path: _Path | None = None, *, text: str | None = None, name: str = "policy") -> Info:
    """Makes a policy live, for all threads in one step.

    Takes either the path of a file, or `text`; error messages show `name` for a text. Raises
    PolicyError, which says where and why the policy was refused, and FileError if the file cannot
    be read. The live policy then stays.
    """
    if (path is None) == (text is None):
        raise TypeError("load() takes either a path or a text")
    if not isinstance(text, (str, type(None))):
        raise TypeError(f"the text of a policy is a str, not {type(text).__name__}")
    with events.reporting():
        if text is None:
            _loam.policy_load(path)
        else:
            _loam.policy_load_text(name, text)
    if text is None:
        children.note_live()
    else:
        children.note_text(name, text)
    return info()


def watch(path: _Path) -> Info:
    """Loads a policy file and loads it again whenever it changes.

    It notices saves in place, files that replace it by a rename, and symbolic links that are
    switched. If the first load fails, its exception is raised and the file is followed
    nevertheless. Later failures are events (see loam.events), and the live policy stays.
    """
    if path is None:
        raise TypeError("watch() takes a path; unwatch() stops following")
    children.prepare()
    with events.reporting():
        _loam.policy_watch(path)
    children.note_live()
    return info()


def unwatch() -> None:
    """Stops following a file; the live policy stays."""
    _loam.policy_watch(None)


# ---- Inspecting a policy that is not live


@dataclass(frozen=True)
class Problem:
    """A fault of a policy, or a warning: its place, class and description.

    `source` is the line of the file; `suggestion` is what to write instead. `line`, `source` and
    `suggestion` may be None.
    """

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
    """The result of check(); it is true if the policy would be accepted.

    `answer` is the whole JSON object of `loam check --json`.
    """

    ok: bool
    errors: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    answer: dict[str, Any]

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True)
class Explanation:
    """The result of explain(): the strategy that serves a request, and why.

    `path` has the decisions, as tuples of a line, a condition and whether it holds; `line` is the
    line that chose the strategy. `answer` is the whole JSON object of `loam explain --json`.
    """

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
        if key == "tag" and not isinstance(value, str):
            raise TypeError(f"a tag is a string, not {type(value).__name__}")
        text = str(value)
        if "\0" in text:
            raise ValueError(f"{key} {text!r}: it contains a NUL")
        if "\n" in text:  # such texts are written in hexadecimal digits
            key, text = f"hex {key}", f"h{text.encode().hex()}"
        lines.append(f"{key} {text}")
    found = _loam.policy_inspect(os.fspath(path), "\n".join(lines) + "\n")
    answer: dict[str, Any] = json.loads(found)
    return answer


def check(path: _Path, tags: Iterable[str] = ()) -> Check:
    """Checks a policy file as a load would, without making it live.

    The file is compiled for the tags that the policy itself names, and for `tags`. Raises FileError
    if the file cannot be read.
    """
    asked = (tags,) if isinstance(tags, str) else tags
    answer = _ask(path, "check", [("tag", tag) for tag in asked])
    errors, warnings = _problems(answer, "errors"), _problems(answer, "warnings")
    return Check(not errors and answer.get("ok", True), errors, warnings, answer)


def explain(path: _Path, tag: str, size: int, *, align: int | None = None, zero: bool = False,
            node: int | None = None, live: int | None = None, device: int | None = None,
            file: str | None = None, func: str | None = None, module: str | None = None,
            line: int | None = None, pressure: int | None = None,
            node_free: Mapping[int, int] | None = None,
            device_free: Mapping[int, int] | None = None) -> Explanation:
    """Returns what a policy file decides for a request, and why.

    The arguments after `size` describe the request: its alignment, whether it is zeroed, the NUMA
    node, the live bytes of the tag, the device, and the place in the program. Those behind `line`
    describe the machine: the memory pressure in percent, and the free bytes of nodes and devices by
    their numbers. Raises PolicyError if a load would refuse the file, and FileError if the file
    cannot be read.
    """
    given = {"align": align, "node": node, "live": live, "device": device, "file": file,
             "func": func, "module": module, "line": line, "pressure": pressure}
    asked: list[tuple[str, object]] = [("tag", tag), ("size", size), ("zero", int(zero))]
    asked += [(key, value) for key, value in given.items() if value is not None]
    for key, free in (("nodefree", node_free), ("devicefree", device_free)):
        asked += [(key, f"{number} {size}") for number, size in (free or {}).items()]
    answer = _ask(path, "explain", asked)
    errors = _problems(answer, "errors")
    if errors:
        raise PolicyError(str(errors[0]))
    options = dict(answer["strategy"])
    steps = tuple((step["line"], step["condition"], step["holds"]) for step in answer["path"])
    return Explanation(answer["tag"], answer["size"], options.pop("name"), options.pop("kind"),
                       options, answer.get("line"), steps, answer)

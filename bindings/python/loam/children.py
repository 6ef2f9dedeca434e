"""Children of multiprocessing obey the policy of their parent, by each start method.

A forked child goes on with the policy of its parent, because it is a copy of the parent. The start
methods "spawn" and "forkserver" start a new interpreter instead. This module makes such a child
obey too: before the child runs its function, it takes over the settings of loam.start(), the
policy, loam.numpy.install() and the tags that hold when the parent starts the child.

A policy goes to the child as the text that the parent obeys. If the parent follows a file, then the
child follows this file. A policy under which the child runs already, as all programs under
`loam run` do, is not loaded again. If a child cannot obey, it logs an error and goes on without.

It works through a dictionary that multiprocessing copies into each Process and pickles with it.
Functions of a program (loam.on_event, loam.on_memory, loam.on_block, handlers) do not go to a
child, and neither do loam.cupy.install(), loam.torch.install() and Numba's Manager: they belong to
a device, and each process that uses the device calls them itself.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Callable

from . import _loam, events, tags
from .errors import Error
from .events import logger, reporting
from .tags import _current, _everywhere, tag

__all__ = ["prepare", "note_live", "note_settings", "note_text"]

_MAX_TEXT = 1 << 20  # bytes: loam accepts no longer text


@dataclass(frozen=True)
class _Policy:
    """A live policy.

    path: the file that is followed or was loaded; "" for a text.
    name: the name of a text, for error messages.
    text: the policy itself; None if only the file is known.
    hash: of the live policy's text.
    is_followed: whether the parent follows the file.
    """

    path: str
    name: str
    text: str | None
    hash: str
    is_followed: bool


@dataclass(frozen=True)
class _State:
    """The state that a child takes over from its parent.

    settings: the arguments of loam.start(), None if it was not called.
    policy: the live policy, None if it is the built-in default.
    numpy: the arguments of loam.numpy.install(), None if it is not installed.
    tags: the names of the tags that the child enters, each with whether it holds everywhere.
    """

    settings: tuple[Any, ...] | None
    policy: _Policy | None
    numpy: dict[str, bool] | None
    tags: tuple[tuple[str, bool], ...]


_settings: tuple[Any, ...] | None = None
_texts: dict[str, tuple[str, str | None]] = {}  # of the last load only: hash to name and text


def note_settings(*settings: Any) -> None:
    """Keeps the arguments of _loam.start for children, except `policy` and `watch`."""
    global _settings
    _settings = settings
    prepare()


def note_text(name: str, text: str) -> None:
    """Keeps the text of the policy that has just been loaded, and prepares children."""
    _texts.clear()
    _texts[_loam.policy_info()["hash"]] = (name, text)
    prepare()


def note_live() -> None:
    """Keeps the text of the file that has just gone live, and prepares children.

    A later edit of the file may be refused. A child then needs the text before that edit.
    """
    _note_file()
    prepare()


def _note_file() -> None:
    info = _loam.policy_info()
    if info["path"] and info["hash"] not in _texts:
        _texts.clear()
        _texts[info["hash"]] = (info["path"], _read(info["path"]))


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(_MAX_TEXT)
    except (OSError, ValueError):
        return None  # the file is gone, or it is a compiled image and no text


events._on_live = _note_file


# ---- In the parent


class _PickledState:
    """Pickles as a call of _take_over with the state of that moment."""

    def __reduce__(self) -> tuple[Callable[[_State], _PickledState], tuple[_State]]:
        return _take_over, (_state(),)


def prepare() -> None:
    """Makes the children that this process starts from now on take over its state."""
    if sys.is_finalizing():
        return  # this process starts no more children, and can import nothing
    tags._on_first = None
    import multiprocessing.process as process
    config = getattr(process.current_process(), "_config", None)
    if isinstance(config, dict):
        config.setdefault("loam", _PickledState())


tags._on_first = prepare


def _state() -> _State:
    entered = [(one.name, True) for one in list(_everywhere.values())]
    own = _current.get()
    if own is not None:
        entered.append((own, False))
    return _State(_settings, _live_policy(), _numpy_arguments(), tuple(entered))


def _live_policy() -> _Policy | None:
    info = _loam.policy_info()
    if not info["generation"]:
        return None
    path = info["path"]
    name, text = _texts.get(info["hash"], (path, None))
    if text is None and path:
        text = _read(path)
    return _Policy(path, name, text, info["hash"], bool(info["watching"]))


def _numpy_arguments() -> dict[str, bool] | None:
    module = sys.modules.get(f"{__package__}.numpy")
    return module._arguments() if module is not None else None


# ---- In the child


def _take_over(state: _State) -> _PickledState:
    """Makes this process obey. Unpickling a Process calls it, before the child's function runs."""
    steps: list[Callable[[], Any]] = [lambda: _start(state.settings),
                                      lambda: _take(state.policy), lambda: _install(state.numpy)]
    for step in steps:
        try:
            step()
        except (Error, ImportError) as error:
            logger.error("this child does not obey as its parent does: %s", error)
    for name, everywhere in state.tags:
        tag(name, everywhere=everywhere).__enter__()  # until the child ends
    return _PickledState()


def _start(settings: tuple[Any, ...] | None) -> None:
    if settings is None:
        return
    try:
        _loam.start(None, False, *settings)
    except Error:
        return  # it has started: by the preload library, or by the program's main module
    note_settings(*settings)


def _take(policy: _Policy | None) -> None:
    if policy is None:
        return
    info = _loam.policy_info()
    if info["hash"] == policy.hash and info["generation"]:
        return
    if policy.is_followed:
        if not info["watching"]:
            _follow(policy)
    elif policy.path and (policy.text is None or policy.text == _read(policy.path)):
        with reporting():
            _loam.policy_load(policy.path)
        note_live()
    elif policy.text is not None:
        _load_text(policy)


def _follow(policy: _Policy) -> None:
    """Follows the file. If it is refused at present, the policy that the parent obeys is loaded."""
    try:
        with reporting():
            _loam.policy_watch(policy.path)
    except Error as error:
        if policy.text is None:
            raise
        logger.warning("%s", error)
        _load_text(policy)
    else:
        note_live()


def _load_text(policy: _Policy) -> None:
    assert policy.text is not None
    with reporting():
        _loam.policy_load_text(policy.name, policy.text)
    note_text(policy.name, policy.text)


def _install(arguments: dict[str, bool] | None) -> None:
    if arguments is not None:
        from . import numpy
        numpy.install(**arguments)

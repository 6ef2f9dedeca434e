"""One policy for all workers of a Dask cluster.

    fleet = loam.dask.Fleet(client)
    fleet.load("prod.lua")                 # checked here, shipped, and obeyed by all workers
    fleet.load("next.lua", share=0.25)     # on trial: a quarter of the workers obeys it
    fleet.rollback()                       # all workers obey prod.lua again
    fleet.figures()                        # live and total bytes by worker, tag and strategy

The policy goes through the scheduler, which keeps it: a worker that comes later, or comes back
after it was killed, gets the policy before its first task. From then on, loam allocates the arrays
of NumPy in the worker (loam.numpy.install). Each worker compiles the policy for its own machine.

Either all workers obey a new policy or none does: if one refuses it, the workers that took it go
back to the policy before. A worker without loam refuses each policy; it works on, and workers() has
the reason. Workers may have other versions of loam than the client.

To govern all memory of a worker and not only NumPy's, start it by `loam run --policy FILE --
dask-worker ...`.
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass, field
from typing import Any, Iterable, Union

from . import policy as _policy
from .errors import PolicyError

try:
    from distributed.diagnostics.plugin import WorkerPlugin
except ImportError as error:
    raise ImportError("loam.dask needs Dask's distributed: apt-get install python3-distributed, or "
                      "pip install distributed") from error

__all__ = ["Fleet", "Worker"]

_Path = Union[str, "os.PathLike[str]"]
_NAME = "loam"  # of the plug-in: a later one takes the place of the one before
_POLL_S = 0.05


@dataclass(frozen=True)
class Worker:
    """A worker, and the policy that it obeys.

    address, name: of the worker, as Dask has them.
    policy, generation: the name of the live policy, and its number in this worker.
    is_trial: whether the worker tries a policy on trial.
    error: why the worker refused the last policy, with file and line, or why it cannot obey at all;
        "" if it obeys.
    answers: whether the worker answered. A worker that was killed is listed with False until Dask
        forgets it.
    """

    address: str
    name: str
    policy: str
    generation: int
    is_trial: bool
    error: str
    answers: bool = True


@dataclass(frozen=True)
class _Text:
    """The text of a policy file. Error messages show `name`, the path of the file."""

    name: str
    text: str


@dataclass
class _Orders:
    """What workers have to obey: `base`, or `trial` if they are among those that try it."""

    base: _Text
    trial: _Text | None = None
    share: float = 0.0
    names: frozenset[str] = field(default_factory=frozenset)  # the workers that try it


# ---- What runs in workers
#
# A worker may lack loam, or have another version of it. If an object of this module were sent by
# its name, such a worker could not import it: Dask would end the worker, and the client would wait
# for its answer for good. So the plug-in and the functions below are made in functions: cloudpickle
# sends such an object with its code. They hold plain values, and use nothing but distributed and
# the public interface of loam.

_UNTOLD = "it has no policy of the fleet"


def _plugin(orders: _Orders) -> WorkerPlugin:
    """Returns the plug-in that makes a worker obey the orders."""
    name = _NAME
    base = (orders.base.name, orders.base.text)
    trial = None if orders.trial is None else (orders.trial.name, orders.trial.text)
    names = tuple(orders.names)

    class Plugin(WorkerPlugin):
        """Dask calls setup in each worker, also in one that starts later."""

        def __init__(self) -> None:
            self.name, self.base, self.trial, self.names = name, base, trial, names
            self.error = ""

        def tries(self, worker: Any) -> bool:
            return self.trial is not None and str(worker.name) in self.names

        def setup(self, worker: Any) -> None:
            """Loads the policy. A failure is kept for _state: an exception would end the worker."""
            file, text = self.trial if self.trial and self.tries(worker) else self.base
            try:
                import loam.numpy
            except Exception as error:  # the package, its library, LuaJIT or NumPy is missing
                self.error = f"this worker has no loam: {error}"
                return
            try:
                loam.numpy.install()
                loam.policy.load(text=text, name=file)
            except Exception as error:
                self.error = str(error)

    return Plugin()


def _state_function() -> Any:
    """Returns a function that returns the fields of a Worker, except `address` and `answers`."""
    name, untold = _NAME, _UNTOLD

    def state(dask_worker: Any) -> dict[str, Any]:
        plugin = dask_worker.plugins.get(name)
        found = {"name": str(dask_worker.name), "policy": "", "generation": 0,
                 "is_trial": plugin is not None and plugin.tries(dask_worker),
                 "error": plugin.error if plugin is not None else untold}
        try:
            import loam
        except Exception as error:
            found["error"] = f"this worker has no loam: {error}"
            return found
        info = loam.policy.info()
        found.update(policy=info.name, generation=info.generation)
        return found
    return state


def _forget_function() -> Any:
    """Returns a function that replaces the policy by one that decides like the default."""
    plain = _PLAIN

    def forget() -> None:
        import loam
        if loam.policy.info().generation:
            loam.policy.load(text=plain, name="no policy of the fleet")
    return forget


def _rows_function() -> Any:
    """Returns a function that returns the figures of a worker."""
    def rows(by: list[str]) -> list[dict[str, Any]]:
        import loam
        return loam.stats(by)
    return rows


_PLAIN = """
local plain = loam.host {}
return loam.policy { pick = function(req) return plain end }
"""


def _chosen(names: Iterable[str], share: float) -> frozenset[str]:
    """Returns the workers that try a policy: always the same ones, and at least one."""
    ranked = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    return frozenset(ranked[:max(1, round(share * len(ranked)))])


def _read(path: _Path) -> _Text:
    with open(path, encoding="utf-8") as file:
        return _Text(os.fspath(path), file.read())


class Fleet:
    """The workers of a Dask cluster, as a fleet that obeys one policy.

    client: the distributed.Client, which is not asynchronous. Several fleets of one cluster are
        one: the policy that was loaded last is in force.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._orders: _Orders | None = None

    def load(self, path: _Path, *, share: float = 1.0, timeout: float = 30) -> list[Worker]:
        """Makes all workers, or a share of them, obey a policy file; returns what each obeys.

        The file is checked first. Waits until the workers obey, for `timeout` seconds at most. With
        a share below 1, that part of the workers tries the policy, at least one; the others, and
        workers that come later, obey the policy that was loaded before for all. To end the trial,
        load() the file without a share, or call rollback().

        Raises FileError or OSError if the file cannot be read. Raises PolicyError, with file and
        line, if this process or a worker refuses the policy; then all workers obey the policy that
        they obeyed before. Raises TimeoutError if a worker does not answer in time. After a TimeoutError, some workers may
        obey the new policy already; a further load() puts all workers under one policy again.
        """
        if not 0 < share <= 1:
            raise ValueError(f"share {share!r}: it is above 0 and at most 1")
        text = _read(path)
        checked = _policy.check(path)
        if not checked:
            raise PolicyError(str(checked.errors[0]))
        if share == 1:
            return self._order(_Orders(text), timeout)
        if self._orders is None:
            raise ValueError(f"share {share!r}: load a policy for all workers first; they go back "
                             "to it after the trial")
        names = _chosen((worker.name for worker in self.workers()), share)
        return self._order(_Orders(self._orders.base, text, share, names), timeout)

    def rollback(self, *, timeout: float = 30) -> list[Worker]:
        """Ends a trial: all workers obey the policy that was loaded last for all of them.

        Raises ValueError if no policy was loaded, and TimeoutError.
        """
        if self._orders is None:
            raise ValueError("rollback: no policy was loaded")
        return self._order(_Orders(self._orders.base), timeout)

    def workers(self) -> list[Worker]:
        """Returns what each worker obeys now, ordered by name."""
        found = []
        for address, state in self._client.run(_state_function(), on_error="return").items():
            if isinstance(state, dict):
                found.append(Worker(address, **state))
            else:
                found.append(Worker(address, address, "", 0, False, str(state), answers=False))
        return sorted(found, key=lambda worker: (len(worker.name), worker.name))

    def figures(self, by: Iterable[str] = ("worker", "tag", "strategy")) -> list[dict[str, Any]]:
        """Returns the figures of all workers in one table, as loam.stats() does for one process.

        by: the columns to group by: "worker" (its address), "tag", "strategy". Without "worker",
            the rows of all workers are added up. The row with most live bytes comes first. A worker
            that does not answer has no rows.
        """
        keys = [by] if isinstance(by, str) else list(by)
        sums: dict[tuple[Any, ...], dict[str, Any]] = {}
        columns = [key for key in keys if key != "worker"]
        answers = self._client.run(_rows_function(), columns, on_error="return")
        for address, rows in answers.items():
            for row in rows if isinstance(rows, list) else []:
                named = {"worker": address, **row} if "worker" in keys else row
                _add(sums, tuple(named[key] for key in keys), named)
        return sorted(sums.values(), key=lambda row: -int(row["live_bytes"]))

    # ---- Orders

    def _order(self, orders: _Orders, timeout: float) -> list[Worker]:
        """Gives orders to all workers. If one cannot obey, gives the orders before again."""
        workers = self._send(orders, timeout)
        refused = [worker for worker in workers if worker.error]
        if not refused:
            self._orders = orders
            return workers
        if self._orders is not None:
            self._send(self._orders, timeout)
        else:
            self._client.unregister_worker_plugin(_NAME)
            self._client.run(_forget_function(), on_error="return")
        raise PolicyError(_refusal(refused, len(workers)))

    def _send(self, orders: _Orders, timeout: float) -> list[Worker]:
        """Registers the plug-in and waits until it has run in each worker."""
        self._client.register_worker_plugin(_plugin(orders), name=_NAME)
        deadline = time.monotonic() + timeout
        while True:
            workers = self.workers()
            waiting = [one for one in workers if not one.answers or one.error == _UNTOLD]
            if workers and not waiting:
                return workers
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(waiting)} of {len(workers)} workers do not obey after "
                                   f"{timeout} s: {', '.join(one.address for one in waiting)}")
            time.sleep(_POLL_S)


def _refusal(refused: list[Worker], all_workers: int) -> str:
    """Returns one message for all refusals; the first error is whole, as it names file and line."""
    if len(refused) == 1 and all_workers == 1:
        return refused[0].error
    names = ", ".join(worker.name for worker in refused)
    return f"{refused[0].error} (refused by {len(refused)} of {all_workers} workers: {names})"


def _add(sums: dict[tuple[Any, ...], dict[str, Any]], key: tuple[Any, ...],
         row: dict[str, Any]) -> None:
    """Adds a row to the sum with its key: counts are added, everything else is kept."""
    into = sums.setdefault(key, {name: 0 if _is_count(name) else value
                                 for name, value in row.items()})
    for name, value in row.items():
        if _is_count(name):
            into[name] += value


def _is_count(name: str) -> bool:
    return name.endswith(("_bytes", "_blocks"))

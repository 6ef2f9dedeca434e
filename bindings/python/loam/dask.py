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
back to the policy before. A worker that does not answer, because it is stopped or its machine is
gone, holds up no call for longer than the call's `timeout`: the others obey, and the call names
that worker, which obeys as soon as it runs again. A worker without loam refuses each policy; it
works on, and workers() has the reason. Workers may have other versions of loam than the client.

To govern all memory of a worker and not only NumPy's, start it by `loam run --policy FILE --
dask-worker ...`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Union

from . import policy as _policy
from .errors import PolicyError

try:
    from distributed.diagnostics.plugin import WorkerPlugin
except ImportError as error:
    raise ImportError("loam.dask needs Dask's distributed: apt-get install python3-distributed, or "
                      "pip install distributed") from error

__all__ = ["Fleet", "Worker"]

_logger = logging.getLogger("loam")

_Path = Union[str, "os.PathLike[str]"]
_NAME = "loam"  # of the plug-in: a later one takes the place of the one before
_POLL_S = 0.05
_TIMEOUT_S = 10.0  # of calls that only ask
_JOINT_S = 1.0  # the longest time of one request to all workers; then each gets its own request


@dataclass(frozen=True)
class Worker:
    """A worker, and the policy that it obeys.

    address, name: of the worker, as Dask has them.
    policy, generation: the name of the live policy, and its number in this worker.
    is_trial: whether the worker tries a policy on trial.
    error: why the worker refused the last policy, with file and line, or why it cannot obey at all,
        or that it did not answer; "" if it obeys.
    answers: whether the worker answered. A worker that was killed is listed with False until Dask
        forgets it. Of a worker that did not answer, only the address is known.
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
class _Rollout:
    """What workers have to obey: `base`, or `trial` if they are among those that try it."""

    base: _Text
    trial: _Text | None = None
    share: float = 0.0
    names: frozenset[str] = field(default_factory=frozenset)  # the workers that try it
    number: str = field(default_factory=lambda: uuid.uuid4().hex)  # no other rollout has it


# ---- What runs in workers
#
# A worker may lack loam, or have another version of it. If an object of this module were sent by
# its name, such a worker could not import it: Dask would end the worker, and the client would wait
# for its answer for good. So the plug-in and the functions below are made in functions: cloudpickle
# sends such an object with its code. They hold plain values, and use nothing but distributed and
# the public interface of loam.

_NO_POLICY = "it has no policy of the fleet"


def _plugin(rollout: _Rollout) -> WorkerPlugin:
    """Returns the plug-in that makes a worker obey the policy of a rollout."""
    name = _NAME
    base = (rollout.base.name, rollout.base.text)
    trial = None if rollout.trial is None else (rollout.trial.name, rollout.trial.text)
    names = tuple(rollout.names)
    number = rollout.number

    class Plugin(WorkerPlugin):
        """Dask calls setup in each worker, also in one that starts later."""

        def __init__(self) -> None:
            self.name, self.base, self.trial, self.names = name, base, trial, names
            self.number = number
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
    """Returns a function that returns the fields of a Worker, except `address` and `answers`.

    It also returns `number`: of the rollout that the worker has.
    """
    name, no_policy = _NAME, _NO_POLICY

    def state(dask_worker: Any) -> dict[str, Any]:
        plugin = dask_worker.plugins.get(name)
        found = {"name": str(dask_worker.name), "policy": "", "generation": 0,
                 "number": getattr(plugin, "number", ""),  # a plug-in of an older client has none
                 "is_trial": plugin is not None and plugin.tries(dask_worker),
                 "error": plugin.error if plugin is not None else no_policy}
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
        self._rollout: _Rollout | None = None

    def load(self, path: _Path, *, share: float = 1.0, timeout: float = 30) -> list[Worker]:
        """Makes all workers, or a share of them, obey a policy file; returns what each obeys.

        The file is checked first. Each worker has `timeout` seconds to obey. With a share below 1,
        that part of the workers tries the policy, at least one; the others, and workers that come
        later, obey the policy that was loaded before for all. To end the trial, load() the file
        without a share, or call rollback().

        Raises FileError or OSError if the file cannot be read. Raises PolicyError, with file and
        line, if this process or a worker refuses the policy; then all workers obey the policy that
        they obeyed before. Raises TimeoutError, which names them, if workers do not answer in time.
        Then the policy is in force: the others obey it, and a worker that runs again obeys it too
        or, if it refuses, says so in workers().
        """
        if not 0 < share <= 1:
            raise ValueError(f"share {share!r}: it is above 0 and at most 1")
        text = _read(path)
        checked = _policy.check(path)
        if not checked:
            raise PolicyError(str(checked.errors[0]))
        if share == 1:
            return self._roll_out(_Rollout(text), timeout)
        if self._rollout is None:
            raise ValueError(f"share {share!r}: load a policy for all workers first; they go back "
                             "to it after the trial")
        names = _chosen((one.name for one in self.workers() if one.answers), share)
        return self._roll_out(_Rollout(self._rollout.base, text, share, names), timeout)

    def rollback(self, *, timeout: float = 30) -> list[Worker]:
        """Ends a trial: all workers obey the policy that was loaded last for all of them.

        Raises ValueError if no policy was loaded, and TimeoutError as load() does.
        """
        if self._rollout is None:
            raise ValueError("rollback: no policy was loaded")
        return self._roll_out(_Rollout(self._rollout.base), timeout)

    def workers(self, *, timeout: float = _TIMEOUT_S) -> list[Worker]:
        """Returns what each worker obeys now, ordered by name.

        Each worker has `timeout` seconds to answer. Raises TimeoutError if the scheduler itself
        does not answer.
        """
        return [worker for worker, _ in self._look(timeout)]

    def figures(self, by: Iterable[str] = ("worker", "tag", "strategy"), *,
                timeout: float = _TIMEOUT_S) -> list[dict[str, Any]]:
        """Returns the figures of all workers in one table, as loam.stats() does for one process.

        by: the columns to group by: "worker" (its address), "tag", "strategy". Without "worker",
            the rows of all workers are added up. The row with most live bytes comes first.

        Each worker has `timeout` seconds to answer. One that does not has no rows, and the logger
        `loam` gets a warning. Raises TimeoutError if the scheduler itself does not answer.
        """
        keys = [by] if isinstance(by, str) else list(by)
        sums: dict[tuple[Any, ...], dict[str, Any]] = {}
        columns = [key for key in keys if key != "worker"]
        for address, rows in self._ask(timeout, _rows_function(), columns).items():
            if not isinstance(rows, list):
                _logger.warning("figures: no rows of %s: %s", address, rows)
                continue
            for row in rows:
                named = {"worker": address, **row} if "worker" in keys else row
                _add(sums, tuple(named[key] for key in keys), named)
        return sorted(sums.values(), key=lambda row: -int(row["live_bytes"]))

    # ---- Requests
    #
    # Dask's client has no timeouts: its answer to a request is that of the slowest worker. These
    # functions run in the event loop of the client, where its methods return awaitable objects.

    def _ask(self, timeout: float, function: Callable[..., Any], *given: Any,
             absent: frozenset[str] = frozenset()) -> dict[str, Any]:
        """Runs a function in each worker that is not absent; returns the results by address.

        In place of a result there may be an exception: of the function, or a TimeoutError.
        """
        found: dict[str, Any] = self._client.sync(self._ask_each, timeout, function, given, absent)
        return found

    async def _ask_each(self, timeout: float, function: Callable[..., Any], given: tuple[Any, ...],
                        absent: frozenset[str]) -> dict[str, Any]:
        """Asks all workers in one request and, if one holds it up, each worker in its own."""
        deadline = time.monotonic() + timeout
        if not absent:
            try:
                joint = self._client.run(function, *given, on_error="return")
                found: dict[str, Any] = await asyncio.wait_for(joint, min(_JOINT_S, timeout / 2))
                return found
            except asyncio.TimeoutError:
                pass
        try:
            left = deadline - time.monotonic()
            all_workers = await asyncio.wait_for(self._client.nthreads(), left)
        except asyncio.TimeoutError:
            raise TimeoutError(f"the scheduler did not answer within {timeout:g} s") from None
        addresses = [address for address in all_workers if address not in absent]
        left = deadline - time.monotonic()

        async def ask(address: str) -> Any:
            try:
                own = self._client.run(function, *given, workers=[address], on_error="return")
                return (await asyncio.wait_for(own, left))[address]
            except asyncio.TimeoutError:
                return TimeoutError(f"it did not answer within {timeout:g} s")
        answers = await asyncio.gather(*(ask(address) for address in addresses))
        return dict(zip(addresses, answers))

    def _tell(self, timeout: float, request: Callable[[], Any]) -> None:
        """Makes a request to all workers, and goes on without those that do not answer in time.

        They get the request when they run again. Raises what the request raises.
        """
        async def tell() -> None:
            task = asyncio.ensure_future(request())
            done, _ = await asyncio.wait({task}, timeout=timeout)
            if done:
                task.result()
            else:  # asyncio would report an exception that is never read
                task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        self._client.sync(tell)

    def _look(self, timeout: float,
              absent: frozenset[str] = frozenset()) -> list[tuple[Worker, str]]:
        """Returns what each worker obeys, with the number of its rollout, ordered by name."""
        found = []
        for address, state in self._ask(timeout, _state_function(), absent=absent).items():
            if isinstance(state, dict):
                number = state.pop("number")
                found.append((Worker(address, **state), number))
            else:
                worker = Worker(address, address, "", 0, False, str(state), answers=False)
                found.append((worker, ""))
        return sorted(found, key=lambda each: (len(each[0].name), each[0].name))

    # ---- Rollouts

    def _roll_out(self, rollout: _Rollout, timeout: float) -> list[Worker]:
        """Gives a rollout to all workers. If one cannot obey, gives the last one again."""
        workers, late = self._send(rollout, timeout)
        refused = [worker for worker in workers if worker.error and worker not in late]
        if refused:
            self._restore(timeout, frozenset(worker.address for worker in late))
            raise PolicyError(_refusal(refused, len(workers)))
        self._rollout = rollout
        if late:
            raise TimeoutError(_lateness(late, len(workers), timeout))
        return workers

    def _restore(self, timeout: float, absent: frozenset[str]) -> None:
        """Gives the last rollout again, and does not wait for workers that are absent."""
        if self._rollout is not None:
            self._send(self._rollout, timeout, absent)
            return
        self._tell(min(_JOINT_S, timeout), lambda: self._client.unregister_worker_plugin(_NAME))
        self._ask(timeout, _forget_function(), absent=absent)

    def _send(self, rollout: _Rollout, timeout: float,
              absent: frozenset[str] = frozenset()) -> tuple[list[Worker], list[Worker]]:
        """Registers the plug-in and waits until it has run in each worker that is not absent.

        Returns these workers, and those of them in which it has not run in time.
        """
        deadline = time.monotonic() + timeout
        # The scheduler keeps the plug-in, whether or not all workers answer.
        self._tell(min(_JOINT_S, timeout), lambda: self._client.register_worker_plugin(
            _plugin(rollout), name=_NAME))
        while True:
            left = max(deadline - time.monotonic(), _POLL_S)
            found = self._look(min(left, _TIMEOUT_S), absent)
            workers = [worker for worker, _ in found]
            late = [worker for worker, number in found if number != rollout.number]
            is_over = time.monotonic() >= deadline
            if is_over and not workers:
                raise TimeoutError(f"the cluster has no worker after {timeout:g} s")
            if is_over or (workers and not late):
                return workers, late
            time.sleep(_POLL_S)


def _refusal(refused: list[Worker], all_workers: int) -> str:
    """Returns one message for all refusals; the first error is whole, as it names file and line."""
    if len(refused) == 1 and all_workers == 1:
        return refused[0].error
    names = ", ".join(worker.name for worker in refused)
    return f"{refused[0].error} (refused by {len(refused)} of {all_workers} workers: {names})"


def _lateness(late: list[Worker], all_workers: int, timeout: float) -> str:
    addresses = ", ".join(worker.address for worker in late)
    return (f"{len(late)} of {all_workers} workers did not answer within {timeout:g} s: "
            f"{addresses}. The others obey the policy; a worker obeys it as soon as it runs again")


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

"""One policy for all workers of a Dask cluster: LocalCluster, with real processes and arrays."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from _support import Case, main

try:
    import distributed
except ImportError:
    distributed = None

WORKERS = 8

FIRST = """
local rows = loam.host { name = "rows", align = 64 }
return loam.policy { name = "first", pick = function(req) return rows end }
"""
NEXT = FIRST.replace("first", "next").replace("rows", "columns")
BAD = """
local rows = loam.host { name = "rows", algin = 64 }
return loam.policy { name = "bad", pick = function(req) return rows end }
"""
PICKY = NEXT.replace("name = \"next\"", "name = \"picky\"")


def total(n):
    import numpy
    return float(numpy.ones(n).sum())


def refuse():
    """Runs in a worker: makes its next load fail, as on a machine that cannot obey."""
    from loam import policy
    from loam.errors import PolicyError

    def load(**given):
        raise PolicyError("picky.lua:2: machine: this machine has no node 7")
    policy.load = load


def accept():
    """Runs in a worker: ends what refuse() has begun."""
    import importlib
    from loam import policy
    importlib.reload(policy)


def keep(n):
    """Runs in a worker: keeps an array."""
    import numpy
    import builtins
    builtins.kept_by_test = numpy.ones(n)


def identity():
    return os.getpid()


def live_policy():
    import loam
    return loam.policy.info().name


class Cluster(Case):
    """A cluster of `count` workers on this machine."""

    count = 0

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        import dask
        dask.config.set({"distributed.logging.distributed": "critical"})
        cls.folder = tempfile.TemporaryDirectory()
        cls.cluster = distributed.LocalCluster(n_workers=cls.count, threads_per_worker=1,
                                               dashboard_address=None)
        cls.client = distributed.Client(cls.cluster)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.cluster.close()
        cls.folder.cleanup()

    def write(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def policies(self, fleet):
        return sorted(worker.policy for worker in fleet.workers())


@unittest.skipIf(distributed is None, "Dask's distributed is not installed")
class Dask(Cluster):
    count = WORKERS

    def wait_for_workers(self, gone):
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            answers = self.client.run(identity, on_error="return")
            now = {at: pid for at, pid in answers.items() if isinstance(pid, int)}
            if len(now) == WORKERS and gone not in now.values():
                return
            time.sleep(0.1)
        self.fail("the killed worker did not come back")

    def test_a_fleet_obeys(self):
        import loam.dask
        fleet = loam.dask.Fleet(self.client)
        with self.assertRaises(ValueError):
            fleet.rollback()
        with self.assertRaises(ValueError):
            fleet.load(self.write("first.lua", FIRST), share=0.5)

        # If one worker refuses the first policy, the others forget it.
        picky = list(self.client.run(identity))[-1]
        self.client.run(refuse, workers=[picky])
        with self.assertRaises(loam.PolicyError):
            fleet.load(self.write("first.lua", FIRST))
        self.assertNotIn("first", self.policies(fleet))
        self.client.run(accept, workers=[picky])

        # All workers obey, and work on arrays that the policy governs.
        workers = fleet.load(self.write("first.lua", FIRST))
        self.assertEqual([worker.policy for worker in workers], ["first"] * WORKERS)
        results = self.client.gather(self.client.map(total, range(1000, 1000 + 4 * WORKERS)))
        self.assertEqual(results, [float(n) for n in range(1000, 1000 + 4 * WORKERS)])

        # One table of all figures.
        self.client.run(keep, 1 << 17)
        rows = [row for row in fleet.figures() if row["strategy"] == "rows"
                and row["tag"] == "numpy.data"]
        self.assertEqual(len({row["worker"] for row in rows}), WORKERS)
        self.assertTrue(all(row["live_bytes"] >= 8 << 17 for row in rows))
        [row] = [row for row in fleet.figures(by=["tag", "strategy"])
                 if row["strategy"] == "rows" and row["tag"] == "numpy.data"]
        self.assertEqual(row["live_bytes"], sum(one["live_bytes"] for one in rows))

        # A share tries another policy, and goes back.
        workers = fleet.load(self.write("next.lua", NEXT), share=0.25)
        self.assertEqual(self.policies(fleet), ["first"] * 6 + ["next"] * 2)
        self.assertEqual(sum(worker.is_trial for worker in workers), 2)
        fleet.rollback()
        self.assertEqual(self.policies(fleet), ["first"] * WORKERS)
        fleet.load(self.write("next.lua", NEXT), share=0.25)
        fleet.load(self.write("next.lua", NEXT))
        self.assertEqual(self.policies(fleet), ["next"] * WORKERS)

        # A bad policy is refused with its line, and nothing changes.
        with self.assertRaises(loam.PolicyError) as caught:
            fleet.load(self.write("bad.lua", BAD))
        self.assertEqual(caught.exception.line, 2)
        self.assertIn("algin", str(caught.exception))
        self.assertEqual(self.policies(fleet), ["next"] * WORKERS)

        # A worker that is killed comes back and obeys.
        pid = next(iter(self.client.run(identity).values()))
        os.kill(pid, signal.SIGKILL)
        self.wait_for_workers(pid)
        self.assertEqual(self.policies(fleet), ["next"] * WORKERS)

        # If one worker refuses, none obeys.
        last = list(self.client.run(identity))[-1]
        self.client.run(refuse, workers=[last])
        with self.assertRaises(loam.PolicyError) as caught:
            fleet.load(self.write("picky.lua", PICKY))
        self.assertIn("no node 7", str(caught.exception))
        self.assertIn(f"1 of {WORKERS}", str(caught.exception))
        self.assertEqual(self.policies(fleet), ["next"] * WORKERS)


@unittest.skipIf(distributed is None, "Dask's distributed is not installed")
class OtherWorkers(Cluster):
    count = 2

    def add_worker(self, name, path):
        """Starts a worker whose Python finds packages in `path`."""
        before = len(self.client.scheduler_info()["workers"])
        log = os.path.join(self.folder.name, name + ".log")
        with open(log, "wb") as file:
            worker = subprocess.Popen(
                [sys.executable, "-m", "distributed.cli.dask_worker", "--name", name, "--no-nanny",
                 "--nthreads", "1", "--no-dashboard", "--local-directory", self.folder.name,
                 self.cluster.scheduler_address],
                env={**os.environ, "PYTHONPATH": path}, stdout=file, stderr=file)

        def end():
            worker.terminate()
            worker.wait()
        self.addCleanup(end)
        deadline = time.monotonic() + 120
        while len(self.client.scheduler_info()["workers"]) == before:
            if worker.poll() is not None or time.monotonic() > deadline:
                with open(log, encoding="utf-8") as file:
                    self.fail(f"worker {name} did not start: {file.read()}")
            time.sleep(0.1)
        return end

    def wait_until(self, words, condition):
        deadline = time.monotonic() + 120
        while not condition():
            if time.monotonic() > deadline:
                self.fail(words)
            time.sleep(0.1)

    def test_a_worker_without_loam_is_named_and_works_on(self):
        import loam.dask
        fleet = loam.dask.Fleet(self.client)
        fleet.load(self.write("first.lua", FIRST))
        nothing = os.path.join(self.folder.name, "nothing")
        os.mkdir(nothing)
        end = self.add_worker("bare", nothing)

        [bare] = [worker for worker in fleet.workers() if worker.name == "bare"]
        self.assertEqual(bare.error, "this worker has no loam: No module named 'loam'")
        with self.assertRaises(loam.PolicyError) as caught:
            fleet.load(self.write("next.lua", NEXT))
        self.assertEqual(str(caught.exception),
                         "this worker has no loam: No module named 'loam' "
                         f"(refused by 1 of {self.count + 1} workers: bare)")
        self.assertEqual(self.policies(fleet), [""] + ["first"] * self.count)
        self.assertTrue(fleet.figures())
        self.assertEqual(self.client.submit(total, 10, workers=["bare"]).result(60), 10.0)

        # Without it, the fleet obeys again.
        end()
        self.wait_until("Dask does not forget a worker",
                        lambda: len(self.client.scheduler_info()["workers"]) == self.count)
        fleet.load(self.write("next.lua", NEXT))
        self.assertEqual(self.policies(fleet), ["next"] * self.count)

    def test_a_stopped_worker_is_named_and_the_others_obey(self):
        import loam.dask
        fleet = loam.dask.Fleet(self.client)
        fleet.load(self.write("first.lua", FIRST))
        stopped, pid = next(iter(self.client.run(identity).items()))
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)

        silent = [one for one in fleet.workers(timeout=0.5) if not one.answers]
        self.assertIn((stopped, "it did not answer within 0.5 s"),
                      [(one.address, one.error) for one in silent])
        with self.assertLogs("loam", "WARNING") as logged:
            rows = fleet.figures(timeout=0.5)
        self.assertIn(f"WARNING:loam:figures: no rows of {stopped}: it did not answer within 0.5 s",
                      logged.output)
        self.assertNotIn(stopped, [row["worker"] for row in rows])

        # One bad worker does not keep the others from a policy, nor from going back to the old one.
        with self.assertRaises(TimeoutError) as caught:
            fleet.load(self.write("next.lua", NEXT), timeout=3)
        self.assertEqual(str(caught.exception),
                         f"1 of {self.count} workers did not answer within 3 s: {stopped}. The "
                         "others obey the policy; a worker obeys it as soon as it runs again")
        [other] = [at for at in self.client.nthreads() if at != stopped]
        self.assertEqual(self.client.run(live_policy, workers=[other]), {other: "next"})
        self.client.run(refuse, workers=[other])
        with self.assertRaises(loam.PolicyError):
            fleet.load(self.write("picky.lua", PICKY), timeout=3)
        self.assertEqual(self.client.run(live_policy, workers=[other]), {other: "next"})
        self.client.run(accept, workers=[other])

        os.kill(pid, signal.SIGCONT)
        self.wait_until("the worker that goes on does not obey",
                        lambda: self.policies(fleet) == ["next"] * self.count)

    def test_a_worker_with_another_version_of_loam_obeys(self):
        import loam.dask
        fleet = loam.dask.Fleet(self.client)
        fleet.load(self.write("first.lua", FIRST))
        # An older package: it has no module for Dask yet.
        old = os.path.join(self.folder.name, "old")
        shutil.copytree(os.path.dirname(loam.__file__), os.path.join(old, "loam"))
        os.remove(os.path.join(old, "loam", "dask.py"))
        end = self.add_worker("old", old)
        fleet.load(self.write("next.lua", NEXT))
        self.assertEqual(self.policies(fleet), ["next"] * (self.count + 1))
        end()


if __name__ == "__main__":
    main()

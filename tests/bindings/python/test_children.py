"""test_children - children of multiprocessing obey as their parent does, by every start method."""

import concurrent.futures
import multiprocessing
import os
import subprocess
import sys
import tempfile

import loam

import _children
from _support import POLICY, Case, main, run_child

METHODS = ("fork", "spawn", "forkserver")
OTHER = POLICY.replace('"test"', '"other"')


def ask(method, target=_children.put, *arguments):
    """Starts a child that puts one answer into a queue, and returns the answer."""
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=target, args=(queue, *arguments))
    child.start()
    answer = queue.get(timeout=300)
    child.join(300)
    assert child.exitcode == 0, child.exitcode
    assert answer["pid"] != os.getpid()
    return answer


class Children(Case):
    """The parent loads a policy and installs loam for NumPy."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "policy.lua")
        self.write(POLICY)
        self.addCleanup(loam.policy.unwatch)
        loam.numpy.install()
        self.addCleanup(loam.numpy.uninstall)

    def write(self, text):
        with open(self.path + ".new", "w") as file:
            file.write(text)
        os.replace(self.path + ".new", self.path)

    def test_they_obey_a_policy_that_was_loaded_from_text(self):
        loam.policy.load(text=POLICY)
        for method in METHODS:
            with self.subTest(method):
                got = ask(method)
                self.assertEqual((got["policy"], got["tag"], got["strategy"]),
                                 ("test", "numpy.data", "plain"))

    def test_they_obey_the_live_policy_and_not_a_later_edit_of_its_file(self):
        loam.policy.load(self.path)
        for text in (POLICY, OTHER, "no policy"):
            self.write(text)
            for method in METHODS:
                with self.subTest(method):
                    self.assertEqual(ask(method)["policy"], "test")

    def test_they_obey_when_the_file_is_gone(self):
        loam.policy.load(self.path)
        os.remove(self.path)
        for method in METHODS:
            with self.subTest(method):
                self.assertEqual(ask(method)["policy"], "test")

    def test_they_are_in_the_tag_in_which_they_are_started(self):
        loam.policy.load(text=POLICY)
        loam.numpy.install(sites=True)
        for method in METHODS:
            with self.subTest(method), loam.tag("aligned.part"):
                got = ask(method)
                self.assertEqual((got["tag"], got["strategy"], got["function"]),
                                 ("aligned.part", "aligned", "tell"))

    def test_they_are_in_a_tag_also_where_nothing_else_of_loam_is_used(self):
        here = os.path.dirname(os.path.abspath(__file__))
        path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
        for method in ("spawn", "forkserver"):
            out, _ = run_child(f"""
                import loam
                with loam.tag("alone"):
                    import multiprocessing, _children
                    context = multiprocessing.get_context("{method}")
                    queue = context.Queue()
                    child = context.Process(target=_children.put, args=(queue,))
                    child.start()
                    print(queue.get(timeout=300)["entered"])
                    child.join(300)
                """, PYTHONPATH=path)
            self.assertEqual((method, out), (method, "alone\n"))

    def test_their_own_children_obey_too(self):
        loam.policy.load(text=POLICY)
        for method in ("spawn", "forkserver"):
            with self.subTest(method):
                self.assertEqual(ask(method, _children.put_of_grandchild, method)["policy"], "test")

    def test_workers_of_pools_obey(self):
        loam.policy.load(text=POLICY)
        for method in ("spawn", "forkserver"):
            context = multiprocessing.get_context(method)
            with self.subTest(method), context.Pool(1) as pool:
                self.assertEqual(pool.apply(_children.tell)["strategy"], "plain")
        spawn = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:
            self.assertEqual(pool.submit(_children.tell).result(300)["strategy"], "plain")

    def test_they_follow_the_file_that_their_parent_follows(self):
        loam.policy.watch(self.path)
        context = multiprocessing.get_context("spawn")
        queue, edited = context.Queue(), context.Event()
        child = context.Process(target=_children.put_after_edit, args=(queue, edited, "other"))
        child.start()
        self.assertEqual(queue.get(timeout=300)["policy"], "test")
        self.write(OTHER)
        edited.set()
        got = queue.get(timeout=300)
        child.join(300)
        self.assertEqual((got["policy"], got["watching"]), ("other", True))

    def test_they_obey_the_last_good_policy_when_the_followed_file_is_refused(self):
        loam.policy.watch(self.path)
        self.write("return nonsense")
        with self.assertRaises(loam.PolicyError):
            loam.policy.load(self.path)
        got = ask("spawn")
        self.assertEqual((got["policy"], got["watching"]), ("test", True))

    def test_without_numpy_installed_they_have_numpys_allocator(self):
        loam.policy.load(text=POLICY)
        loam.numpy.uninstall()
        got = ask("spawn")
        self.assertEqual((got["policy"], got["tag"]), ("test", None))
        loam.numpy.install()


class Forks(Case):
    def test_a_fork_beside_threads_that_enter_tags_has_tags(self):
        run_child("""
            import loam, os, signal, threading
            def enter():
                while True:
                    with loam.tag("others", everywhere=True):
                        pass
            for _ in range(3):
                threading.Thread(target=enter, daemon=True).start()
            for _ in range(5):
                child = os.fork()
                if not child:
                    signal.alarm(60)
                    with loam.tag("own", everywhere=True):
                        os._exit(loam.current_tag() != "own")
                assert os.waitpid(child, 0)[1] == 0
            os._exit(0)
            """)

    def test_a_fork_beside_a_thread_that_installs_can_install(self):
        run_child("""
            import loam, numpy, os, signal, threading
            def install():
                while True:
                    loam.numpy.install()
            loam.numpy.install()
            threading.Thread(target=install, daemon=True).start()
            for _ in range(20):
                child = os.fork()
                if not child:
                    signal.alarm(60)
                    loam.numpy.install(sites=True)
                    made = loam.owner(numpy.ones(5)).tag
                    loam.numpy.uninstall()
                    os._exit((made, loam.owner(numpy.ones(5))) != ("numpy.__main__.module", None))
                assert os.waitpid(child, 0)[1] == 0
            os._exit(0)
            """)


UNDER_RUN = """
import multiprocessing, loam
from _children import put
if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        child = context.Process(target=put, args=(queue,))
        child.start()
        got = queue.get(timeout=300)
        child.join(300)
        print(method, got["policy"], got["path"] == loam.policy.info().path)
"""


class UnderRun(Case):
    def test_they_obey_the_policy_of_loam_run(self):
        command = os.environ.get("LOAM")
        if not command:
            self.skipTest("LOAM names no command")
        with tempfile.TemporaryDirectory() as folder:
            policy, script = os.path.join(folder, "policy.lua"), os.path.join(folder, "script.py")
            for path, text in ((policy, POLICY), (script, UNDER_RUN)):
                with open(path, "w") as file:
                    file.write(text)
            here = os.path.dirname(os.path.abspath(__file__))
            path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
            done = subprocess.run([command, "run", "--policy", policy, "--",
                                   sys.executable, script],
                                  env={**os.environ, "PYTHONPATH": path}, capture_output=True,
                                  text=True, timeout=300)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            self.assertEqual(done.stdout.splitlines(),
                             [f"{method} test True" for method in METHODS])


if __name__ == "__main__":
    main()

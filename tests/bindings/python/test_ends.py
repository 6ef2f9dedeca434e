"""test_ends - the interpreter's end with live arrays, forks, and further interpreters."""

import multiprocessing
import tempfile
import threading

import numpy

import loam

from _support import POLICY, Case, main, run_child

START = """
import atexit, sys, threading, numpy, loam
loam.numpy.install()
"""


def quiet(script, **environment):
    """Runs a script. It must succeed and write nothing to standard error. Returns its output."""
    out, errors = run_child(START + script, **environment)
    if errors:
        raise AssertionError(errors)
    return out


class Exits(Case):
    def test_arrays_may_be_alive_anywhere(self):
        for environment in ({}, {"PYTHONMALLOC": "debug"}, {"PYTHONDEVMODE": "1"}):
            quiet("a = numpy.ones(100_000)\n"
                  "sys.array = numpy.ones(10)\n"
                  "numpy.kept = numpy.ones(10)\n"
                  "loam.kept = [numpy.ones(n) for n in range(1000)]\n"
                  "class Last:\n"
                  "    array = numpy.ones(5)\n"
                  "    def __del__(self): self.array.resize(5000, refcheck=False)\n"
                  "sys.last = Last()\n"
                  "cycle = [numpy.ones(7)]; cycle.append(cycle)\n", **environment)

    def test_the_package_may_go_first(self):
        quiet("a = numpy.ones(1000)\n"
              "for name in [n for n in sys.modules if n.startswith('loam')]:\n"
              "    del sys.modules[name]\n"
              "del loam\n"
              "import gc; gc.collect()\n"
              "a.resize(100_000); del a\n"
              "b = numpy.ones(10)\n")

    def test_numpy_is_given_back_at_any_moment(self):
        quiet("a = numpy.ones(1000)\n"
              "atexit.register(loam.numpy.uninstall)\n"
              "atexit.register(lambda: numpy.ones(1000))\n")
        quiet("a = numpy.ones(1000); loam.numpy.uninstall(); b = numpy.ones(1000)\n")

    def test_memory_of_others_hooks_and_traces_may_be_alive(self):
        quiet("import tracemalloc; tracemalloc.start()\n"
              "loam.on_memory(lambda *call: None); loam.on_block(lambda *call: None)\n"
              "sys.kept = [loam.Array.from_buffer(numpy.ones(5)), loam.Block.wrap(b'abc')[1:],\n"
              "            loam.Array('2 * var * int8', [[1], []])[0], loam.Arena().alloc(5),\n"
              "            numpy.asarray(loam.Array.from_buffer(bytearray(9))),\n"
              "            loam.Array.from_buffer(numpy.ones(5)).__dlpack__(),\n"
              "            loam.Array('3 * int32').__arrow_c_array__()]\n")

    def test_a_tag_may_be_open(self):
        quiet("tag = loam.tag('open'); tag.__enter__(); a = numpy.ones(1000)\n")

    def test_sites_may_be_named_to_the_end(self):
        quiet("loam.numpy.install(sites=True)\n"
              "class Last:\n"
              "    def __del__(self): self.array = numpy.ones(1000)\n"
              "sys.last, kept = Last(), Last()\n")

    def test_threads_may_be_at_work(self):
        quiet("def work():\n"
              "    while True: numpy.ones(1000).sum()\n"
              "for _ in range(3): threading.Thread(target=work, daemon=True).start()\n"
              "import time; time.sleep(0.1)\n")

    def test_a_callback_may_wait_for_ever(self):
        quiet("""
import ctypes, logging
from loam import _loam
logging.getLogger("loam").addHandler(logging.NullHandler())
loam.events._LAST_S = 0.1
runs = threading.Event()
def wait(event):
    runs.set()
    threading.Event().wait()
loam.on_event(wait)
ctypes.CDLL(_loam.__file__).loam_free(ctypes.c_void_p(16))
assert runs.wait(60)
""")

    def test_a_finalizer_may_load_a_policy(self):
        waits = """
import ctypes, logging, threading
from loam import _loam
logging.getLogger("loam").addHandler(logging.NullHandler())
loam.events._LAST_S = 0.1
names = {"runs": threading.Event(), "ever": threading.Event()}
exec("def wait(event): runs.set(); ever.wait()", names)  # holds no name of the main module
loam.on_event(names["wait"])
ctypes.CDLL(_loam.__file__).loam_free(ctypes.c_void_p(16))
assert names["runs"].wait(60)
"""
        for before in ("", "loam.start()", waits):
            out, errors = run_child("import os, loam\n" + before + f"""
class Last:
    def __del__(self, load=loam.policy.load, write=os.write):
        load(text={POLICY!r})
        write(1, b"loaded")
last = Last()
""")
            self.assertEqual((out, errors), ("loaded", ""))

    def test_an_exit_in_the_middle_leaves_quietly(self):
        quiet("a = numpy.ones(1000)\nimport os\nos._exit(0)\n")
        run_child(START + "a = numpy.ones(1000)\nraise SystemExit(3)\n", code=3)

    def test_a_policy_may_be_followed(self):
        out = quiet("import tempfile\n"
                    "file = tempfile.NamedTemporaryFile('w', suffix='.lua')\n"
                    f"file.write({POLICY!r}); file.flush()\n"
                    "print(loam.policy.watch(file.name).watching)\n"
                    "a = numpy.ones(1000)\n")
        self.assertEqual(out, "True\n")

    def test_arrays_of_a_thread_outlive_it(self):
        quiet("made = []\n"
              "def work():\n"
              "    with loam.tag('thread'): made.extend(numpy.ones(n) for n in range(1, 500))\n"
              "t = threading.Thread(target=work); t.start(); t.join()\n"
              "assert sum(a.sum() for a in made) == 499 * 250\n"
              "assert loam.owner(made[0]).tag == 'thread'\n")


def in_a_child(answers, array):
    """Runs in a child: allocates, tags, frees an array of the parent, and loads a policy."""
    total = array.sum()
    del array
    with loam.tag("child"):
        tag = loam.owner(numpy.ones(1000)).tag
    loam.policy.load(text=POLICY.replace('"test"', '"of the child"'))
    answers.put((float(total), tag, loam.policy.info().name))


class Told(Case):
    """The messages that come when no logger is left."""

    def test_leaks_at_exit_are_lines_on_standard_error(self):
        _, errors = run_child(START + "import ctypes; block = loam.Block(100, 'leaked.here')\n"
                              "ctypes.pythonapi.Py_IncRef(ctypes.py_object(block))",
                              LOAM_LEAKS="1")
        self.assertRegex(errors, "^loam: .*leaked.here")
        _, errors = run_child("import loam; loam.start(leaks=True)\n"
                              "import ctypes; block = loam.Block(100, 'leaked.too')\n"
                              "ctypes.pythonapi.Py_IncRef(ctypes.py_object(block))")
        self.assertRegex(errors, "^loam: .*leaked.too")
        _, errors = run_child(START + "loam.kept = loam.Block(100, 'freed.here')\n",
                              LOAM_LEAKS="1")
        self.assertEqual(errors, "")

    def test_the_report_at_exit_is_lines_on_standard_error(self):
        _, errors = run_child(START + "loam.kept = loam.Block(100, 'kept.here')\n",
                              LOAM_REPORT="stderr")
        self.assertRegex(errors, "(?m)^loam: at exit: tag 'kept.here'")
        folder = tempfile.mkdtemp()
        _, errors = run_child(START + f"import shutil; shutil.rmtree({folder!r})",
                              LOAM_REPORT=f"{folder}/report")
        self.assertRegex(errors, f"^loam: LOAM_REPORT={folder}/report: No such file")

    def test_an_overrun_of_a_guarded_array_says_whose_it_is(self):
        guarded = """
local guarded = loam.host { name = "guarded", guard = true }
return loam.policy { name = "guarded", pick = function(_) return guarded end }
"""
        _, errors = run_child(f"""
import loam
loam.start(guard_report=True)
import ctypes, numpy
loam.policy.load(text={guarded!r})
loam.numpy.install(touch=True)
with loam.tag("overrun"):
    array = numpy.zeros(4096, "u1")
ctypes.memset(array.ctypes.data + 4096, 1, 1)
""", code=-11)
        self.assertRegex(errors, "loam: .*overrun")


class Forks(Case):
    def setUp(self):
        loam.policy.load(text=POLICY)
        loam.numpy.install()
        self.addCleanup(loam.numpy.uninstall)

    def test_children_of_multiprocessing_go_on(self):
        context = multiprocessing.get_context("fork")
        answers = context.Queue()
        stop = threading.Event()
        self.addCleanup(stop.set)

        def work():
            while not stop.is_set():
                numpy.ones(3000).sum()
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        children = [context.Process(target=in_a_child, args=(answers, numpy.ones(n)))
                    for n in (10, 1000, 100_000)]
        for child in children:
            child.start()
        got = sorted(answers.get(timeout=300) for _ in children)
        for child in children:
            child.join(300)
            self.assertEqual(child.exitcode, 0)
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(got, [(n, "child", "of the child") for n in (10, 1000, 100_000)])
        self.assertEqual(loam.policy.info().name, "test")

    def test_a_pool_sends_arrays_to_and_fro(self):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            sums = pool.map(numpy.sum, [numpy.ones(n) for n in range(0, 20_000, 1000)])
        self.assertEqual(sums, list(range(0, 20_000, 1000)))

    def test_a_child_of_a_thread_ends_with_its_thread(self):
        out = quiet("""
import os, signal, time
def fork():
    pid = os.fork()
    if pid == 0:
        sys.exit(0)  # ends the thread, which is all that the child has of the program
    until, ended = time.monotonic() + 60, 0
    while not ended and time.monotonic() < until:
        time.sleep(0.01)
        ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        os.kill(pid, signal.SIGKILL)
    print(bool(ended))
thread = threading.Thread(target=fork)
thread.start()
thread.join()
""")
        self.assertEqual(out, "True\n")

    def test_a_child_logs_its_own_events_alone(self):
        out = quiet("""
import ctypes, logging, os, time
from loam import _loam, events
class Note(logging.Handler):
    noted = 0
    def emit(self, record): Note.noted += 1
logging.getLogger("loam").addHandler(Note())
library = ctypes.CDLL(_loam.__file__)
def fail():
    library.loam_free(ctypes.c_void_p(16))
def wait():
    for _ in range(6000):
        if Note.noted: break
        time.sleep(0.01)
    time.sleep(0.1)
    print(Note.noted, flush=True)
with events._delivering:  # so that the parent's is on its way when it forks
    fail()
    pid = os.fork()
    if pid == 0:
        fail()
        wait()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
wait()
""")
        self.assertEqual(out, "1\n1\n")


class Interpreters(Case):
    def test_a_subinterpreter_is_refused_in_words(self):
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            self.skipTest("this Python has no _xxsubinterpreters")
        for before in ("", "import loam; loam.trim()"):
            out, _ = run_child(f"""
                {before}
                import _xxsubinterpreters as interpreters
                one = interpreters.create()
                interpreters.run_string(one, '''
                try:
                    import loam
                except ImportError as error:
                    print(error)
                '''.replace(" " * 16, ""))
                interpreters.destroy(one)
                """)
            self.assertIn("not a subinterpreter", out)


if __name__ == "__main__":
    main()

"""Runs CuPy itself with loam.cupy as its allocator, on the stand-in for CUDA's driver.

    _cupy_tests.py [--own FOLDER] [TEST...]

TESTs are named as in unittest. LOAM_STANDIN names the stand-in; the stand-in for CUDA's runtime
lies beside it (tests/standin/runtime.h). It has no kernels, so arrays are only copied and filled
with zeros. --own takes the `tests` folder of a checkout of the installed CuPy, and runs its tests
of memory and streams with plain CuPy and under loam: each test must end in the same way. Exit
status 77: CuPy cannot run here, and the last line gives the reason.
"""

import argparse
import ctypes
import gc
import os
import re
import subprocess
import sys
import tempfile
import threading
import weakref

STANDIN = os.environ.get("LOAM_STANDIN", "")
RUNTIME = os.path.join(os.path.dirname(STANDIN), "libstandin_runtime.so")
OWN = ["test_memory.py", "test_memory_hook.py", "test_pinned_memory.py", "test_stream.py",
       "test_device.py", "test_runtime.py"]
MIB = 1 << 20


def environment(**more):
    """Returns the environment of a process that runs CuPy on the stand-in."""
    return {**os.environ, "LD_PRELOAD": RUNTIME, "LD_LIBRARY_PATH": os.path.dirname(STANDIN),
            "LOAM_CUDA_DRIVER": STANDIN, "STANDIN_MEMORY": "64M", "STANDIN_LOG": os.devnull,
            "STANDIN_DEVICES": "1", "LOAM_CONTROL": "0", "LOAM_CUPY_INSIDE": "1",
            "PYTHONDONTWRITEBYTECODE": "1", **more}


def run(script, **more):
    with tempfile.TemporaryDirectory() as folder:  # empty: Python imports from its folder
        return subprocess.run([sys.executable, "-c", script], env=environment(**more), text=True,
                              capture_output=True, timeout=300, cwd=folder)


LOOK = """
import cupy
print(cupy.__version__)
print(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
"""


def why_not():
    """Returns why CuPy cannot run on the stand-in here, or None if it can."""
    if not os.path.exists(RUNTIME):
        return f"no stand-in for CUDA's runtime: {RUNTIME or 'LOAM_STANDIN names no stand-in'}"
    done = run(LOOK)
    said, last = done.stdout.split("\n"), (done.stderr.strip().split("\n") or [""])[-1]
    if not said[0]:
        return f"no CuPy for {sys.executable}: {last}"
    if not said[1:] or not said[1].startswith("Stand-in"):
        return (f"CuPy {said[0]} has CUDA's runtime inside it (as its wheels have), in place of "
                f"which no stand-in can be put; tests/gpu/run tests it on a GPU: {last}")
    print(f"CuPy {said[0]}, Python {sys.version.split()[0]}, on {said[1]}", flush=True)
    return None


if os.environ.get("LOAM_CUPY_INSIDE"):
    import cupy
    import numpy
    import loam
    from loam import _loam

    from _support import Case, drop_in_threads

    driver = ctypes.CDLL(STANDIN)
    driver.standin_violation.restype = ctypes.c_char_p
    driver.standin_calls.restype = ctypes.c_ulong
    loam.cupy.install()

    DEVICE = """local any = loam.device { name = "device" }
                return loam.policy { pick = function() return any end }"""

    def write(stream, array, byte):
        """Queues a write of the array on a stream; the stand-in executes it later."""
        driver.standin_write(ctypes.c_void_p(stream.ptr), ctypes.c_ulonglong(array.data.ptr), byte,
                             ctypes.c_size_t(array.nbytes))

    class OnTheStandIn(Case):
        """Each test must end with no live block and no violation."""

        def setUp(self):
            loam.policy.load(text=DEVICE)
            self.assertTrue(loam.cupy.is_installed())

        def tearDown(self):
            driver.standin_release()
            cupy.cuda.Device().synchronize()
            loam.policy.load(text=DEVICE)
            cupy.cuda.alloc_pinned_memory(1)  # here CuPy checks which copies have ended
            gc.collect()
            _loam.device_trim(0)  # frees deferred blocks
            violations, last = driver.standin_violations(), driver.standin_violation()
            driver.standin_forgive()  # each test counts its own violations
            self.assertEqual(violations, 0, last)
            self.assertEqual([row for row in loam.stats() if row["live_blocks"]], [])

        def live(self, tag):
            return sum(row["live_blocks"] for row in loam.stats("tag") if row["tag"] == tag)

    class Arrays(OnTheStandIn):
        def test_are_loams_and_have_the_tag_in_force(self):
            with loam.tag("model.weights"):
                weights = cupy.empty((100, 100), cupy.float32)
            other = cupy.empty(100)
            owner = loam.owner(weights.data.ptr + 100)
            self.assertEqual((owner.tag, owner.strategy, owner.device, owner.address),
                             ("model.weights", "device", 0, weights.data.ptr))
            self.assertEqual((self.live("model.weights"), self.live("cupy.data")), (1, 1))
            self.assertEqual(weights.data.mem.size, 40_000)
            del weights, other

        def test_are_copied_whole_to_and_from_the_host(self):
            for count in (1, 1000, 3 * MIB):
                host = numpy.arange(count, dtype=numpy.int64)
                array = cupy.array(host)
                self.assertTrue((cupy.asnumpy(array) == host).all())
                array.set(host[::-1].copy())
                self.assertTrue((array.get() == host[::-1]).all())
                del array
            self.assertEqual(cupy.zeros(100).get().sum(), 0)

        def test_views_keep_the_memory(self):
            view = cupy.array(numpy.arange(1000))[10:20]
            gc.collect()
            self.assertEqual(self.live("cupy.data"), 1)
            self.assertEqual(view.get().sum(), 145)
            del view

        def test_of_no_elements_are_no_memory(self):
            before = sum(row["live_blocks"] for row in loam.stats("tag"))
            array, memory = cupy.empty((0, 10)), cupy.cuda.alloc(0)
            self.assertEqual((array.get().size, memory.ptr), (0, 0))
            self.assertEqual(sum(row["live_blocks"] for row in loam.stats("tag")), before)

        def test_of_cupys_pool_and_loams_are_used_together(self):
            ours = cupy.array(numpy.arange(10))
            loam.cupy.uninstall()
            try:
                theirs = cupy.array(numpy.arange(10))
                self.assertIsNone(loam.owner(theirs.data.ptr))
                with cupy.cuda.using_allocator(loam.cupy.allocator):
                    again = cupy.empty_like(ours)
                again.data.copy_from_device(ours.data, ours.nbytes)
                theirs.data.copy_from_device(again.data, again.nbytes)
            finally:
                loam.cupy.install()
            self.assertEqual(theirs.get().sum(), 45)
            self.assertEqual(loam.owner(again.data.ptr).tag, "cupy.data")
            del ours, theirs, again
            cupy.get_default_memory_pool().free_all_blocks()
            cupy.get_default_pinned_memory_pool().free_all_blocks()

        def test_that_others_lend_are_seen_by_their_interfaces(self):
            array = cupy.array(numpy.arange(10.0))
            same = cupy.from_dlpack(array)
            self.assertEqual(same.data.ptr, array.data.ptr)
            del array
            gc.collect()
            self.assertEqual((same.get().sum(), self.live("cupy.data")), (45, 1))
            del same

        def test_may_be_dropped_in_any_thread(self):
            drop_in_threads([cupy.empty(1000) for _ in range(200)])

    class Tags(OnTheStandIn):
        def made_in_a_thread(self):
            made = []
            thread = threading.Thread(target=lambda: made.append(cupy.empty(10)))
            thread.start()
            thread.join()
            return loam.owner(made[0].data.ptr).tag

        def test_hold_in_their_thread_or_everywhere(self):
            with loam.tag("mine"):
                self.assertEqual(self.made_in_a_thread(), "cupy.data")
            with loam.tag("step", everywhere=True):
                self.assertEqual(self.made_in_a_thread(), "step")
            self.assertEqual(self.made_in_a_thread(), "cupy.data")

    class Streams(OnTheStandIn):
        def test_freed_memory_is_used_again_at_once_on_its_stream_alone(self):
            driver.standin_hold()
            one, two = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
            with one:
                array = cupy.empty(MIB, cupy.uint8)
                write(one, array, 1)
                address = array.data.ptr
                del array
            with two:
                other = cupy.empty(MIB, cupy.uint8)
                write(two, other, 2)  # a violation if the first may still write
            with one:
                again = cupy.empty(MIB, cupy.uint8)
                write(one, again, 3)
            self.assertEqual(again.data.ptr, address)
            self.assertNotEqual(other.data.ptr, address)
            self.assertEqual(driver.standin_pending(ctypes.c_void_p(one.ptr)), 2)
            del other, again

        def test_an_array_outlives_the_stream_it_was_made_on(self):
            for pool in ("cache", "chunks", "driver", "none"):
                with self.subTest(pool=pool):
                    loam.policy.load(text=DEVICE.replace('name = "device"', f'pool = "{pool}"'))
                    arrays = []
                    for _ in range(3):
                        stream = cupy.cuda.Stream(non_blocking=True)
                        with stream:
                            arrays.append(cupy.array(numpy.arange(1000)))
                        stream.synchronize()
                        del stream
                    gc.collect()
                    self.assertEqual(arrays[-1].get().sum(), 499_500)
                    del arrays
                    with cupy.cuda.Stream(non_blocking=True):
                        other = cupy.empty(40 * MIB, cupy.uint8)
                    del other
                    whole = cupy.empty(50 * MIB, cupy.uint8)  # reuses their memory
                    del whole

        def test_one_waits_for_memory_while_a_callback_runs_in_python(self):
            # Earlier work of the device may need the interpreter.
            stream, told = cupy.cuda.Stream(non_blocking=True), threading.Event()
            with stream:
                array = cupy.empty(50 * MIB, cupy.uint8)
            thread_did = threading.Event()
            library = ctypes.CDLL(None)
            semaphore = ctypes.create_string_buffer(64)
            library.sem_init(semaphore, 0, 0)
            driver.standin_call_before(b"cuCtxSynchronize",
                                       ctypes.cast(library.sem_wait, ctypes.c_void_p), semaphore)

            def post():
                told.wait()
                library.sem_post(semaphore)
                thread_did.set()
            thread = threading.Thread(target=post)
            thread.start()
            del array
            told.set()
            other = cupy.empty(50 * MIB, cupy.uint8)
            thread.join()
            self.assertTrue(thread_did.is_set())
            del other

        def test_each_threads_own_default_stream_has_memory_of_its_own(self):
            done = run(PER_THREAD, CUPY_CUDA_PER_THREAD_DEFAULT_STREAM="1", STANDIN_LOG="",
                       PYTHONPATH=os.pathsep.join(sys.path))
            self.assertEqual((done.stdout, done.returncode), ("[1, 1]\n", 0), done.stderr)

    PER_THREAD = """
import ctypes, os, threading
import cupy, loam
loam.cupy.install()
driver = ctypes.CDLL(os.environ["LOAM_STANDIN"])
PER_THREAD = ctypes.c_void_p(2)
addresses, turn = [], threading.Barrier(2)
cupy.empty(1)
def work(byte):
    for _ in range(10):
        turn.wait()
        array = cupy.empty(1 << 20, cupy.uint8)
        driver.standin_write(PER_THREAD, ctypes.c_ulonglong(array.data.ptr), byte,
                             ctypes.c_size_t(array.nbytes))
        addresses.append((byte, array.data.ptr))
        turn.wait()
        del array
driver.standin_hold()
threads = [threading.Thread(target=work, args=(byte,)) for byte in (1, 2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
driver.standin_release()
print([len({at for of, at in addresses if of == byte}) for byte in (1, 2)])
"""

    class Pinned(OnTheStandIn):
        def test_memory_is_loams_and_is_used_again(self):
            with loam.tag("staging"):
                memory = cupy.cuda.alloc_pinned_memory(100_000)
            owner = loam.owner(memory.ptr)
            self.assertEqual((owner.tag, owner.address), ("staging", memory.ptr))
            self.assertGreaterEqual(memory.size(), 100_000)
            host = numpy.frombuffer(memory, numpy.uint8, 100_000)
            host[:] = 7
            array = cupy.empty(100_000, numpy.uint8)
            array.set(host)
            self.assertEqual(int(array.get().astype(numpy.int64).sum()), 700_000)
            del memory
            gc.collect()
            self.assertEqual(self.live("staging"), 1)  # the array of the host still has it
            del host, array

        def test_copies_that_cupy_makes_pass_through_it(self):
            before = self.total("cupy.pinned")
            stream = cupy.cuda.Stream(non_blocking=True)
            driver.standin_hold()
            with stream:
                arrays = [cupy.array(numpy.full(1000, i), blocking=False) for i in range(20)]
            self.assertGreater(self.total("cupy.pinned"), before)
            driver.standin_release()
            stream.synchronize()
            self.assertEqual([int(array[0:1].get()[0]) for array in arrays], list(range(20)))
            del arrays

        def total(self, tag):
            return sum(row["total_blocks"] for row in loam.stats("tag") if row["tag"] == tag)

        def test_where_there_is_none_cupy_goes_on_without(self):
            loam.policy.load(text="""local device = loam.device { name = "device" }
                local none = loam.deny { name = "none" }
                return loam.policy { pick = function(req)
                  if req.tag:under("cupy.pinned") then return none end
                  return device
                end }""")
            array = cupy.array(numpy.arange(10))
            self.assertEqual(array.get().sum(), 45)
            with self.assertRaises(cupy.cuda.runtime.CUDARuntimeError) as caught:
                cupy.cuda.alloc_pinned_memory(10)
            self.assertEqual(caught.exception.status, 2)
            del array

    class Wanting(OnTheStandIn):
        def test_memory_is_cupys_own_error_with_loams_words(self):
            error = cupy.cuda.memory.OutOfMemoryError
            with self.assertRaisesRegex(error, "1,099,511,627,776") as one:
                cupy.empty(1 << 40, cupy.uint8)
            self.assertIsInstance(one.exception.__cause__, loam.NoMemoryError)
            self.assertIn("device 0", str(one.exception.__cause__))

        def test_memory_takes_that_of_other_streams(self):
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                array = cupy.empty(50 * MIB, cupy.uint8)
                write(stream, array, 1)
                del array
            array = cupy.empty(50 * MIB, cupy.uint8)
            del array

        def test_memory_takes_that_of_arrays_in_cycles(self):
            class Holder:
                pass
            holder = Holder()
            holder.array, holder.itself = cupy.empty(50 * MIB, cupy.uint8), holder
            gone = weakref.ref(holder)
            gc.disable()
            try:
                del holder
                self.assertIsNotNone(gone())
                array = cupy.empty(50 * MIB, cupy.uint8)
            finally:
                gc.enable()
            self.assertIsNone(gone())
            del array

    class Policies(OnTheStandIn):
        def test_change_while_there_are_arrays(self):
            first = cupy.array(numpy.arange(1000))
            loam.policy.load(text="""
                local managed = loam.managed { name = "managed" }
                local denied  = loam.deny { name = "denied" }
                local device  = loam.device { name = "device" }
                return loam.policy { pick = function(req)
                  if req.tag:under("denied") then return denied end
                  if req.size >= loam.MiB then return managed end
                  return device
                end }""")
            big = cupy.array(numpy.arange(MIB))
            self.assertEqual(loam.owner(big.data.ptr).strategy, "managed")
            self.assertEqual((first.get().sum(), int(big.get()[-1])), (499_500, MIB - 1))
            with loam.tag("denied"), self.assertRaises(cupy.cuda.memory.OutOfMemoryError) as caught:
                cupy.empty(10)
            self.assertIn("den", str(caught.exception.__cause__))
            loam.policy.load(text=DEVICE)
            self.assertEqual(first.get().sum(), 499_500)
            del first, big

    class Devices(Case):
        SCRIPT = """
import cupy, loam, numpy
loam.cupy.install()
made = []
for device in (0, 1, 0):
    with cupy.cuda.Device(device), cupy.cuda.Stream(non_blocking=True) as stream:
        array = cupy.array(numpy.arange(100))
        stream.synchronize()
        made.append((array, loam.owner(array.data.ptr).device, int(array.get().sum())))
print([row[1:] for row in made])
del made, array
print(sum(row["live_blocks"] for row in loam.stats()))
"""

        def test_each_has_its_own_memory(self):
            done = run(self.SCRIPT, STANDIN_DEVICES="2", PYTHONPATH=os.pathsep.join(sys.path))
            self.assertEqual(done.stdout, "[(0, 4950), (1, 4950), (0, 4950)]\n0\n", done.stderr)
            self.assertEqual((done.stderr, done.returncode), ("", 0))

    class Ends(Case):
        def test_a_program_may_end_with_arrays_streams_and_threads(self):
            script = """
import threading, time
import cupy, loam, numpy
loam.cupy.install()
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    made = [cupy.array(numpy.arange(1000)) for _ in range(10)]
cycle = [cupy.empty(1000)]
cycle.append(cycle)
memory = cupy.cuda.alloc_pinned_memory(1000)
started = threading.Event()
def hold(array=cupy.empty(10)):
    started.set()
    time.sleep(100)
threading.Thread(target=hold, daemon=True).start()
started.wait()
print("ends")
"""
            done = run(script, PYTHONPATH=os.pathsep.join(sys.path), STANDIN_LOG="")
            said = [line for line in done.stderr.split("\n") if "violation: " in line]
            self.assertEqual((done.stdout, done.returncode, said), ("ends\n", 0, []), done.stderr)


# ---- CuPy's own tests

_RESULT = re.compile(r"^(\S+::\S.*?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b", re.M)
UNDER = "import loam.cupy; loam.cupy.install()"


def own_results(folder, install):
    """Returns the results of CuPy's tests by name, the stand-in's violations, and the process."""
    files = [os.path.join("cupy_tests", "cuda_tests", name) for name in OWN]
    files = [name for name in files if os.path.exists(os.path.join(folder, name))]
    script = (f"{install}\nimport sys, pytest\n"
              f"sys.exit(pytest.main(['-v', '-p', 'no:cacheprovider', '-W', 'ignore', "
              f"'--tb=line', '-o', 'addopts=', *{files!r}]))")
    with tempfile.TemporaryDirectory() as temporary:
        log = os.path.join(temporary, "log")
        done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True,
                              cwd=folder, timeout=900,
                              env=environment(STANDIN_LOG=log, STANDIN_MEMORY="1G",
                                              STANDIN_DEVICES="2"))
        with open(log) as lines:
            violations = [line.strip() for line in lines if " violation: " in line]
    return dict(_RESULT.findall(done.stdout)), violations, done


def compare_own(folder):
    """Returns complaints as text, none if all results agree. Prints how many tests passed."""
    (plain, broken, _), (under, violations, done) = (own_results(folder, install)
                                                     for install in ("", UNDER))
    complaints = [f"{test}: {plain.get(test)}, and under loam {under.get(test)}"
                  for test in sorted(plain.keys() | under.keys())
                  if plain.get(test) != under.get(test)]
    complaints += [line for line in violations if line.split("violation: ")[1] not in
                   {other.split("violation: ")[1] for other in broken}]
    passed = list(under.values()).count("PASSED")
    if not passed:
        complaints.append("no test of CuPy's own could run: "
                          f"{done.stdout[-2000:]}{done.stderr[-500:]}")
    print(f"CuPy's own tests: {list(plain.values()).count('PASSED')} of {len(plain)} passed as it "
          f"is, {passed} of {len(under)} under loam", flush=True)
    return complaints


def main():
    parser = argparse.ArgumentParser(prog="_cupy_tests.py")
    parser.add_argument("--own", metavar="FOLDER", default=os.environ.get("LOAM_CUPY_TESTS"))
    parser.add_argument("tests", nargs="*", metavar="TEST")
    given = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        return 77
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "-v", *(given.tests or ["_cupy_tests"])],
        env=environment(), cwd=os.path.dirname(os.path.abspath(__file__)))
    complaints = [] if done.returncode == 0 else ["the tests above"]
    if given.own:
        complaints += compare_own(given.own)
    else:
        print("not run: CuPy's own tests, which its packages lack; --own names those of a checkout")
    print("\n".join(complaints))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())

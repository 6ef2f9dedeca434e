"""test_entries - the C functions that CuPy and PyTorch call, on the stand-in for CUDA's driver."""

import asyncio
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import types
from unittest import mock

STANDIN = os.environ.get("LOAM_STANDIN", "")
os.environ.update(LOAM_CUDA_DRIVER=STANDIN, STANDIN_MEMORY="64M", STANDIN_DEVICES="2",
                  STANDIN_LOG=os.devnull)

import numpy

import loam
from loam import _loam, tags

from _support import Case, main, run_child

POLICY = """
local device = loam.device { name = "device" }
local denied = loam.deny { name = "denied" }
local weights = loam.device { name = "weights", pool = "sleep" }
return loam.policy { pick = function(req)
  if req.tag:under("denied") then return denied end
  if req.tag:under("model") then return weights end
  return device
end }"""

driver = ctypes.CDLL(STANDIN)
driver.standin_violation.restype = ctypes.c_char_p
driver.standin_used.restype = ctypes.c_size_t
pointer, size, number = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int


class Called(Case):
    """`held` calls with the interpreter's lock; `free` calls without it, as PyTorch does."""

    free = ctypes.CDLL(_loam.__file__)
    held = ctypes.PyDLL(_loam.__file__)
    for library in (free, held):
        library.loam_torch_alloc.restype = pointer
        library.loam_torch_alloc.argtypes = [size, number, pointer]
        library.loam_torch_record.restype = None
        library.loam_torch_record.argtypes = [pointer, pointer]
        library.loam_torch_free.restype = None
        library.loam_torch_free.argtypes = [pointer, size, number, pointer]
        library.loam_cupy_malloc.restype = pointer
        library.loam_cupy_malloc.argtypes = [pointer, ctypes.c_size_t, number]
        library.loam_cupy_free.restype = None
        library.loam_cupy_free.argtypes = [pointer, pointer, number]

    def setUp(self):
        loam.policy.load(text=POLICY)
        tags.tell_entries()

    def tearDown(self):
        violations, last = driver.standin_violations(), driver.standin_violation()
        driver.standin_forgive()  # each test counts its own violations
        self.assertEqual(violations, 0, last)
        self.assertEqual([row for row in loam.stats() if row["live_blocks"]], [])

    def tag_of(self, library, make="torch"):
        if make == "torch":
            block = library.loam_torch_alloc(1000, 0, None)
            tag = loam.owner(block).tag
            library.loam_torch_free(block, 1000, 0, None)
        else:
            block = library.loam_cupy_malloc(None, 1000, 0)
            tag = loam.owner(block).tag
            library.loam_cupy_free(None, block, 0)
        return tag


def in_thread(function):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(function()))
    thread.start()
    thread.join()
    return answers[0]


class Tags(Called):
    def test_outside_any_it_is_the_librarys(self):
        for library in (self.free, self.held):
            self.assertEqual(self.tag_of(library), "torch.data")
            self.assertEqual(self.tag_of(library, "cupy"), "cupy.data")

    def test_are_those_in_force_with_the_lock_and_without(self):
        for library in (self.free, self.held):
            with loam.tag("outer"):
                with loam.tag("inner"):
                    self.assertEqual(self.tag_of(library), "inner")
                    self.assertEqual(self.tag_of(library, "cupy"), "inner")
                self.assertEqual(self.tag_of(library), "outer")
            self.assertEqual(self.tag_of(library), "torch.data")

    def test_of_another_thread_are_not_seen(self):
        with loam.tag("mine"):
            for library in (self.free, self.held):
                self.assertEqual(in_thread(lambda: self.tag_of(library)), "torch.data")

    def test_in_force_everywhere_are_seen_where_there_is_none(self):
        def own():
            with loam.tag("own"):
                return self.tag_of(self.free)
        with loam.tag("step", everywhere=True):
            for library in (self.free, self.held):
                self.assertEqual(in_thread(lambda: self.tag_of(library)), "step")
            self.assertEqual(in_thread(own), "own")
            with loam.tag("later", everywhere=True):
                self.assertEqual(in_thread(lambda: self.tag_of(self.free)), "later")
            self.assertEqual(in_thread(lambda: self.tag_of(self.free)), "step")
        self.assertEqual(in_thread(lambda: self.tag_of(self.free)), "torch.data")

    def test_need_no_lock_where_subinterpreters_were(self):
        out, _ = run_child(f"""
            import ctypes, threading
            try:
                import _interpreters as interpreters
            except ImportError:
                import _xxsubinterpreters as interpreters
            import loam
            from loam import _loam, tags
            tags.tell_entries()
            interpreters.destroy(interpreters.create())
            libraries = ctypes.PyDLL(_loam.__file__), ctypes.CDLL(_loam.__file__)
            def use():
                for library in libraries:  # with the lock and without
                    for make in library.loam_torch_alloc, library.loam_cupy_malloc:
                        make.restype = ctypes.c_void_p
                    block = library.loam_torch_alloc(ctypes.c_ssize_t(1000), 0, None)
                    print(loam.owner(block).tag)
                    library.loam_torch_free(ctypes.c_void_p(block), ctypes.c_ssize_t(1000), 0, None)
                    block = library.loam_cupy_malloc(None, ctypes.c_size_t(1000), 0)
                    library.loam_cupy_free(None, ctypes.c_void_p(block), 0)
            thread = threading.Thread(target=use)
            thread.start()
            thread.join()
            with loam.tag("mine"):
                use()
            """)
        self.assertEqual(out.split(), ["torch.data"] * 2 + ["mine"] * 2)

    def test_everywhere_end_in_any_order(self):
        first, second = (loam.tag(name, everywhere=True) for name in ("first", "second"))
        with first:
            thread_says = threading.Event()
            thread_may_end = threading.Event()

            def hold():
                with second:
                    thread_says.set()
                    thread_may_end.wait()
            thread = threading.Thread(target=hold)
            thread.start()
            thread_says.wait()
            self.assertEqual(in_thread(lambda: self.tag_of(self.free)), "second")
        self.assertEqual(in_thread(lambda: self.tag_of(self.free)), "second")
        thread_may_end.set()
        thread.join()
        self.assertEqual(in_thread(lambda: self.tag_of(self.free)), "torch.data")

    def test_with_the_lock_follow_tasks(self):
        async def task(name):
            with loam.tag(name):
                await asyncio.sleep(0.001)
                tag = self.tag_of(self.held)
                await asyncio.sleep(0.001)
                return tag

        async def both():
            return await asyncio.gather(task("one"), task("two"))
        self.assertEqual(asyncio.run(both()), ["one", "two"])
        self.assertEqual(self.tag_of(self.free), "torch.data")

    def test_a_block_keeps_its_own_whichever_thread_frees_it(self):
        with loam.tag("weights"):
            block = self.free.loam_torch_alloc(1000, 0, None)
        self.assertEqual(loam.owner(block).tag, "weights")
        in_thread(lambda: self.free.loam_torch_free(block, 1000, 0, None))


class Memory(Called):
    def test_is_of_the_stream_that_is_named(self):
        driver.cuInit(0)
        context, stream, other = pointer(), pointer(), pointer()
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        driver.cuCtxSetCurrent(context)
        driver.cuStreamCreate(ctypes.byref(stream), 1)
        driver.cuStreamCreate(ctypes.byref(other), 1)
        driver.standin_hold()
        block = self.free.loam_torch_alloc(1 << 20, 0, stream)
        driver.standin_write(stream, ctypes.c_ulonglong(block), 1, ctypes.c_size_t(1 << 20))
        self.free.loam_torch_free(block, 1 << 20, 0, stream)
        # A block may be reused on its own stream at once, and on another stream only after its work
        # has ended.
        again = self.free.loam_torch_alloc(1 << 20, 0, stream)
        driver.standin_write(stream, ctypes.c_ulonglong(again), 2, ctypes.c_size_t(1 << 20))
        self.free.loam_torch_free(again, 1 << 20, 0, stream)
        third = self.free.loam_torch_alloc(1 << 20, 0, other)
        driver.standin_write(other, ctypes.c_ulonglong(third), 3, ctypes.c_size_t(1 << 20))
        self.free.loam_torch_free(third, 1 << 20, 0, other)
        driver.standin_release()
        driver.cuCtxSynchronize()

    def streams(self, count):
        """Returns new streams of device 0, whose context becomes current."""
        context, made = pointer(), [pointer() for _ in range(count)]
        driver.cuInit(0)
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        driver.cuCtxSetCurrent(context)
        for stream in made:
            driver.cuStreamCreate(ctypes.byref(stream), 1)
        return made

    def test_of_no_bytes_is_not_counted(self):
        # PyTorch frees the NULL that an empty tensor got, and may record a stream for it.
        before = _loam.torch_figures(0)
        self.assertIsNone(self.free.loam_torch_alloc(0, 0, None))
        self.free.loam_torch_record(None, None)
        self.free.loam_torch_free(None, 0, 0, None)
        self.free.loam_torch_free(None, 1000, 0, None)
        self.assertEqual(_loam.torch_figures(0), before)

    def test_recorded_on_its_own_stream_alone_is_reused_there_without_a_wait(self):
        stream, = self.streams(1)
        driver.standin_hold()
        addresses = set()
        for _ in range(3):
            block = self.free.loam_torch_alloc(5000, 0, stream)
            addresses.add(block)
            driver.standin_write(stream, ctypes.c_ulonglong(block), 1, ctypes.c_size_t(5000))
            self.free.loam_torch_record(block, stream)
            self.free.loam_torch_free(block, 5000, 0, stream)
        driver.standin_release()
        self.assertEqual(len(addresses), 1)

    def test_figures_of_a_number_that_is_no_device_are_refused(self):
        for number in (-1, 1 << 32, -(1 << 32)):
            with self.assertRaisesRegex(ValueError, str(number)):
                _loam.torch_figures(number)
            with self.assertRaisesRegex(ValueError, str(number)):
                _loam.torch_reset_peaks(number)

    def test_that_another_stream_uses_too_waits_for_the_device(self):
        stream, other = self.streams(2)
        driver.standin_hold()
        for _ in range(30):
            block = self.free.loam_torch_alloc(5000, 0, stream)
            driver.standin_write(stream, ctypes.c_ulonglong(block), 1, ctypes.c_size_t(5000))
            driver.cuStreamSynchronize(stream)
            driver.standin_write(other, ctypes.c_ulonglong(block), 2, ctypes.c_size_t(5000))
            self.free.loam_torch_record(block, other)
            self.free.loam_torch_free(block, 5000, 0, stream)
        driver.standin_release()
        _loam.defer_limit(0, 0)
        _loam.defer_enter()
        _loam.defer_leave()
        _loam.defer_limit(10, 0.2)

    def test_is_of_the_device_that_is_named(self):
        context = pointer()
        driver.cuInit(0)
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        driver.cuCtxSetCurrent(context)
        for device in (0, 1):
            block = self.free.loam_torch_alloc(1000, device, None)
            self.assertEqual(loam.owner(block).device, device)
            self.free.loam_torch_free(block, 1000, device, None)
            block = self.held.loam_cupy_malloc(None, 1000, device)
            self.assertEqual(loam.owner(block).device, device)
            self.held.loam_cupy_free(None, block, device)

    def test_is_none_where_cupy_does_not_know_its_stream(self):
        # Later versions of CuPy return -1 with an exception set, and check for it afterwards.
        cannot = ctypes.PYFUNCTYPE(ctypes.c_ssize_t)(lambda: -1)
        self.assertIsNone(self.held.loam_cupy_malloc(ctypes.cast(cannot, pointer), 1000, 0))

    def test_is_waited_for_without_the_interpreters_lock(self):
        # Earlier work of the device may need the interpreter.
        script = """
            import ctypes, os, threading, loam
            from loam import _loam
            library, c = ctypes.PyDLL(_loam.__file__), ctypes.CDLL(None)
            driver = ctypes.CDLL(os.environ["LOAM_CUDA_DRIVER"])
            library.loam_cupy_malloc.restype = ctypes.c_void_p
            loam.policy.load(text='local d = loam.device { pool = "none" } return loam.policy { '
                                  'pick = function() return d end }')
            waits = ctypes.create_string_buffer(64)
            c.sem_init(waits, 0, 0)
            def with_another(function, call):
                wait = ctypes.cast(c.sem_wait, ctypes.c_void_p)
                driver.standin_call_before(function, wait, waits)
                threading.Timer(0.2, c.sem_post, [waits]).start()
                return call()
            block = with_another(b"cuMemAlloc",
                lambda: library.loam_cupy_malloc(None, ctypes.c_size_t(1 << 20), 0))
            with_another(b"cuMemFree",
                lambda: library.loam_cupy_free(None, ctypes.c_void_p(block), 0))
            print("done")
            """
        self.assertEqual(run_child(script)[0], "done\n")

    def test_wanting_is_null_where_no_cxx_runs(self):
        script = """
            import os, ctypes, loam
            from loam import _loam
            library = ctypes.CDLL(_loam.__file__)
            library.loam_torch_alloc.restype = ctypes.c_void_p
            loam.policy.load(text='local no = loam.deny{} return loam.policy { '
                                  'pick = function() return no end }')
            assert "libstdc++" not in open("/proc/self/maps").read()
            print(library.loam_torch_alloc(ctypes.c_ssize_t(10), 0, None))
            """
        self.assertEqual(run_child(script)[0], "None\n")

    def compile_catching(self, folder, before, kind):
        """Compiles a library whose `caught` tells if an exception has that kind, and its text."""
        source = before + """
            #include <dlfcn.h>
            #include <string.h>
            extern "C" int caught(const char *path, char *words, size_t size) {
              auto alloc = (void *(*)(ssize_t, int, void *))dlsym(dlopen(path, RTLD_LAZY),
                                                                 "loam_torch_alloc");
              try { alloc(1000, 0, nullptr); return 0; }
              catch (const """ + kind + """ &error) {
                strncpy(words, error.what(), size - 1);
                return 1;
              }
            }"""
        library = os.path.join(folder, "host.so")
        compiler = os.environ.get("CXX", "c++")
        subprocess.run([compiler, "-shared", "-fPIC", "-x", "c++", "-", "-o", library],
                       input=source, text=True, check=True)
        return library

    def test_wanting_is_an_exception_of_cxx_where_it_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            host = ctypes.CDLL(self.compile_catching(folder, "#include <stdexcept>",
                                                     "std::runtime_error"))
            words = ctypes.create_string_buffer(200)
            with loam.tag("denied"):
                self.assertEqual(host.caught(_loam.__file__.encode(), words, 200), 1)
            self.assertIn("CUDA out of memory. Tried to allocate 1000 bytes on device 0. ",
                          words.value.decode())

    def test_wanting_is_pytorchs_own_exception_where_it_runs(self):
        declared = """
            #include <stdint.h>
            #include <exception>
            #include <string>
            namespace c10 {
              struct SourceLocation { const char *function, *file; uint32_t line; };
              class Error : public std::exception {
                std::string words; char more[200] = {};
              public:
                Error(SourceLocation, std::string);
                const char *what() const noexcept override { return words.c_str(); }
              };
              Error::Error(SourceLocation, std::string words) : words(std::move(words)) {}
              class OutOfMemoryError : public Error { using Error::Error; };
            }
            void used() { throw c10::OutOfMemoryError({"", "", 0}, ""); }
            """
        script = """
            import ctypes, os, loam
            from loam import _loam
            host = ctypes.CDLL(os.environ["HOST"])
            _loam.torch_entries(os.environ["HOST"])
            loam.policy.load(text='local no = loam.deny{} return loam.policy { '
                                  'pick = function() return no end }')
            words = ctypes.create_string_buffer(200)
            for _ in range(100):
                assert host.caught(_loam.__file__.encode(), words, 200) == 1
            print(words.value.decode())
            """
        with tempfile.TemporaryDirectory() as folder:
            library = self.compile_catching(folder, declared, "c10::OutOfMemoryError")
            self.assertIn("CUDA out of memory. Tried to allocate 1000 bytes",
                          run_child(script, HOST=library)[0])

    def test_figures_are_of_what_pytorch_asked_for(self):
        _loam.torch_reset_peaks(1)
        before, failures = _loam.torch_figures(1), _loam.torch_figures(0)[6]
        blocks = [self.free.loam_torch_alloc(size, 1, None) for size in (1000, 5000)]
        self.free.loam_torch_free(blocks[1], 5000, 1, None)
        with loam.tag("denied"), tempfile.TemporaryDirectory() as folder:
            host = ctypes.CDLL(self.compile_catching(folder, "#include <stdexcept>",
                                                     "std::runtime_error"))
            host.caught(_loam.__file__.encode(), ctypes.create_string_buffer(200), 200)
        after = [now - then for now, then in zip(_loam.torch_figures(1), before)]
        self.assertEqual(after, [1000, 6000, 6000, 1, 2, 2, 0])
        self.assertEqual(_loam.torch_figures(0)[6], failures + 1)
        _loam.torch_reset_peaks(1)
        self.assertEqual(_loam.torch_figures(1)[1], 1000)
        self.free.loam_torch_free(blocks[0], 1000, 1, None)
        self.assertEqual(_loam.torch_figures(1)[0], before[0])


class Devices(Called):
    SIZE, KEPT = 3 << 20, 64 << 20

    def tearDown(self):
        loam.device_keep(0)
        loam.device_trim()
        super().tearDown()

    def figures(self, device):
        info = loam.device_info(device)
        self.assertEqual(info.total - info.free, driver.standin_used(device))
        self.assertEqual(info.reserved, driver.standin_used(device))
        return info.reserved, info.used

    def leave_free_memory(self, device):
        """Makes a block and frees it. Returns the bytes that the pool keeps."""
        block = self.free.loam_torch_alloc(self.SIZE, device, None)
        reserved, used = self.figures(device)
        self.assertTrue(self.SIZE <= used <= reserved, (used, reserved))
        self.free.loam_torch_free(block, self.SIZE, device, None)
        self.assertEqual(self.figures(device), (reserved, 0))
        return reserved

    def test_kept_memory_goes_back(self):
        loam.device_keep(None)
        self.assertEqual(loam.device_count(), 2)
        kept = [self.leave_free_memory(device) for device in range(2)]
        self.assertEqual(loam.device_trim(1), kept[1])
        self.assertEqual((self.figures(0), self.figures(1)), ((kept[0], 0), (0, 0)))
        self.assertEqual(loam.device_trim(), kept[0])
        self.assertEqual(self.figures(0), (0, 0))

    def poll_for(self, seconds, is_over):
        """Allocates and frees on the other device for some time, or until `is_over` holds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not is_over():
            self.free.loam_torch_free(self.free.loam_torch_alloc(1, 1, None), 1, 1, None)
            time.sleep(0.05)
        return is_over()

    def test_a_pool_keeps_what_it_may(self):
        loam.device_keep(self.KEPT)
        kept = self.leave_free_memory(0)
        self.assertFalse(self.poll_for(2, lambda: self.figures(0) != (kept, 0)))
        loam.device_keep(0)
        self.assertTrue(self.poll_for(20, lambda: self.figures(0) == (0, 0)))

    def test_mistakes_are_reported_in_words(self):
        for call in (loam.device_info, loam.device_trim):
            for device in (7, -1):
                with self.assertRaisesRegex(loam.InvalidError, f"device {device}"):
                    call(device)
            with self.assertRaises(TypeError):
                call("0")
        with self.assertRaisesRegex(loam.InvalidError, "size -1: it is negative"):
            loam.device_keep(-1)
        for wrong, error in ((1 << 64, OverflowError), ("1 GiB", TypeError)):
            with self.assertRaises(error):
                loam.device_keep(wrong)
        loam.device_keep(numpy.int64(0))
        self.assertEqual(loam.device_trim(numpy.int64(0)), 0)


class Sleeping(Called):
    """A tensor of PyTorch as its allocator sees it: an address from loam_torch_alloc."""

    SIZE, ROUND = 3 << 20, 4 << 20

    def setUp(self):
        super().setUp()
        context = pointer()
        driver.cuInit(0)
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        driver.cuCtxSetCurrent(context)

    def make(self, tag, byte):
        with loam.tag(tag):
            block = self.free.loam_torch_alloc(self.SIZE, 0, None)
        self.assertEqual(loam.owner(block).strategy, "weights")
        driver.cuMemsetD8_v2(ctypes.c_ulonglong(block), byte, ctypes.c_size_t(self.SIZE))
        return block

    def holds(self, block, byte):
        there = ctypes.create_string_buffer(self.SIZE)
        self.assertEqual(driver.cuMemcpyDtoH_v2(there, ctypes.c_ulonglong(block),
                                                ctypes.c_size_t(self.SIZE)), 0)
        return there.raw == bytes([byte]) * self.SIZE

    def test_memory_comes_back_with_its_contents(self):
        with tempfile.TemporaryDirectory() as folder:
            for to in ("pinned", folder, pathlib.Path(folder)):
                one, two = self.make("model.one", 1), self.make("model.two", 2)
                used = driver.standin_used(0)
                self.assertEqual(loam.sleep("model", to=to), 2 * self.ROUND)
                self.assertEqual(used - driver.standin_used(0), 2 * self.ROUND)
                self.assertEqual((loam.asleep(), loam.asleep("model.one")),
                                 (2 * self.ROUND, self.ROUND))
                self.assertEqual(loam.sleep(), 0)
                self.assertEqual(loam.wake("model.two"), self.ROUND)
                self.assertTrue(self.holds(two, 2))
                self.assertEqual((loam.wake(), loam.asleep()), (self.ROUND, 0))
                self.assertTrue(self.holds(one, 1))
                for block in (one, two):
                    self.free.loam_torch_free(block, self.SIZE, 0, None)
            self.assertEqual(os.listdir(folder), [])

    def test_what_sleeps_can_be_freed(self):
        block = self.make("model", 1)
        loam.sleep("model", to="discard")
        self.free.loam_torch_free(block, self.SIZE, 0, None)
        self.assertEqual(loam.asleep(), 0)

    def test_mistakes_are_reported_in_words(self):
        block, other = self.make("model", 1), self.free.loam_torch_alloc(1000, 0, None)
        with self.assertRaisesRegex(loam.Error, "no file can be made in /no/such"):
            loam.sleep("model", to="/no/such")
        with self.assertRaisesRegex(loam.InvalidError, 'unknown place ""'):
            loam.sleep("model", to="")
        with self.assertRaisesRegex(loam.StateError, "strategy 'device' is not"):
            loam.sleep("torch")
        with self.assertRaises(TypeError):
            loam.sleep("model", to=5)
        self.assertTrue(self.holds(block, 1))
        for at, size_of in ((block, self.SIZE), (other, 1000)):
            self.free.loam_torch_free(at, size_of, 0, None)

    def test_without_memory_it_sleeps_on(self):
        block = self.make("model", 1)
        loam.sleep("model")
        driver.standin_fail(b"cuMemCreate", 1, 9, 2)
        with self.assertRaisesRegex(loam.NoMemoryError, "out of memory"):
            loam.wake("model")
        driver.standin_fail(None, 0, 0, 0)
        self.assertEqual((loam.asleep(), loam.wake()), (self.ROUND, self.ROUND))
        self.assertTrue(self.holds(block, 1))
        self.free.loam_torch_free(block, self.SIZE, 0, None)


class FakeCuPy:
    """The parts of CuPy that loam.cupy uses. Its CFunctionAllocator calls as CuPy's does."""

    class OutOfMemoryError(MemoryError):
        pass

    class CUDARuntimeError(RuntimeError):
        pass

    class Functions:
        def __init__(self, param, malloc, free, owner):
            self._param = param
            self._malloc = ctypes.PYFUNCTYPE(pointer, pointer, ctypes.c_size_t, number)(malloc)
            self._free = ctypes.PYFUNCTYPE(None, pointer, pointer, number)(free)

        def malloc(self, count):
            ptr = self._malloc(self._param, count, 0)
            free = (lambda: self._free(self._param, ptr, 0))
            return types.SimpleNamespace(ptr=ptr, free=free)

    def modules(self):
        module = types.ModuleType("cupy")
        current = ["its pool", "its pinned"]
        module.cuda = types.SimpleNamespace(
            memory=types.SimpleNamespace(CFunctionAllocator=self.Functions,
                                         OutOfMemoryError=self.OutOfMemoryError),
            get_allocator=lambda: current[0], set_allocator=lambda a: current.__setitem__(0, a),
            set_pinned_memory_allocator=lambda a: current.__setitem__(1, a),
            PinnedMemoryPointer=lambda memory, offset: memory, get_device_id=lambda: 0,
            runtime=types.SimpleNamespace(CUDARuntimeError=self.CUDARuntimeError))
        module.get_default_pinned_memory_pool = lambda: types.SimpleNamespace(malloc="its pinned")
        self.current = current
        backends = {name: types.ModuleType(name) for name in (
            "cupy_backends", "cupy_backends.cuda", "cupy_backends.cuda.stream")}
        backends["cupy_backends.cuda"].stream = backends["cupy_backends.cuda.stream"]
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [pointer, pointer, pointer]
        self.name = ctypes.create_string_buffer(b"intptr_t (void)")
        self.asked = 0

        def current_stream():
            self.asked += 1
            return 0
        self.function = ctypes.PYFUNCTYPE(ctypes.c_ssize_t)(current_stream)
        capsule = new(ctypes.cast(self.function, pointer), ctypes.addressof(self.name), None)
        backends["cupy_backends.cuda.stream"].__pyx_capi__ = {"get_current_stream_ptr": capsule}
        return {"cupy": module, **backends}


class CuPy(Called):
    def setUp(self):
        super().setUp()
        self.fake = FakeCuPy()
        patch = mock.patch.dict(sys.modules, self.fake.modules())
        patch.start()
        self.addCleanup(patch.stop)
        self.addCleanup(self.forget)

    def forget(self):
        sys.modules.pop("loam.cupy", None)
        loam.__dict__.pop("cupy", None)

    def test_is_given_the_functions_and_its_own_current_stream(self):
        import cupy
        import loam.cupy
        loam.cupy.install()
        self.assertTrue(loam.cupy.is_installed())
        with loam.tag("weights"):
            block = cupy.cuda.get_allocator()(1000)
        self.assertEqual(self.fake.asked, 1)
        self.assertEqual(loam.owner(block.ptr).tag, "weights")
        block.free()
        loam.cupy.uninstall()
        self.assertEqual(self.fake.current, ["its pool", "its pinned"])

    def test_is_given_pinned_memory(self):
        import loam.cupy
        loam.cupy.install()
        memory = self.fake.current[1](1000)
        self.assertEqual((loam.owner(memory.ptr).tag, memory.size), ("cupy.pinned", 1000))
        del memory
        with loam.tag("denied"), self.assertRaises(FakeCuPy.CUDARuntimeError) as caught:
            self.fake.current[1](10)
        self.assertEqual(caught.exception.args, (2,))
        loam.cupy.uninstall()

    def test_is_reported_where_memory_is_wanting(self):
        import loam.cupy
        with loam.tag("denied"), self.assertRaises(FakeCuPy.OutOfMemoryError) as caught:
            loam.cupy.allocator(10)
        self.assertIn("denied", str(caught.exception.__cause__))
        with self.assertRaises(FakeCuPy.OutOfMemoryError):
            loam.cupy.allocator(1 << 40)


class Missing(Case):
    def test_libraries_are_named(self):
        for name, words in (("cupy", "CuPy is not installed"),
                            ("torch", "PyTorch is not installed")):
            with self.subTest(name), mock.patch.dict(sys.modules, {name: None}):
                with self.assertRaisesRegex(ImportError, words):
                    getattr(loam, name)


if __name__ == "__main__":
    main()

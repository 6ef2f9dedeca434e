"""test_debugging - counts, leaks, hooks and tracemalloc; handlers, and pointers for C code."""

import asyncio
import copy
import ctypes
import gc
import inspect
import os
import signal
import subprocess
import sys
import tempfile
import threading
import tracemalloc
from unittest import mock

import numpy

import loam
from loam import hooks

from _support import POLICY, Case, main, run_child

HANDLER = """
#include <stdlib.h>
#include "loam.h"
static void *make(void *ctx, size_t size) { (void)ctx; return malloc(size); }
static void *zero(void *ctx, size_t n, size_t size) { (void)ctx; return calloc(n, size); }
static void *again(void *ctx, void *p, size_t size) { (void)ctx; return realloc(p, size); }
static void drop(void *ctx, void *p, size_t size) { (void)ctx; (void)size; free(p); }
loam_handler handler = { "plainly", 3, { NULL, make, zero, again, drop } };
loam_block *allocate(const loam_nrt *api, size_t size) { return api->allocate(size); }
void *data(const loam_nrt *api, loam_block *b) { return api->get_data(b); }
void release(const loam_nrt *api, loam_block *b) { api->release(b); }
"""


def compile_library(folder):
    source, made = os.path.join(folder, "own.c"), os.path.join(folder, "own.so")
    with open(source, "w") as out:
        out.write(HANDLER)
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", made, source, "-I",
                    loam.include_path()], check=True)
    return ctypes.CDLL(made)


def capsule_of(address, name=b"mem_handler"):
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p,
                                                     ctypes.c_void_p]
    return make(address, name, None)


class Counts(Case):
    def test_blocks_are_counted_by_kind(self):
        before = loam.block_stats()
        block = loam.Block(10)
        part = block[1:]
        after = loam.block_stats()
        self.assertEqual(after["embedded"].made - before["embedded"].made, 1)
        self.assertEqual(after["slice"].made - before["slice"].made, 1)
        del part, block
        self.assertEqual(loam.block_stats()["slice"].ended - before["slice"].ended, 1)

    def test_leaks_are_listed_where_they_are_asked_for(self):
        with self.assertRaises(loam.StateError):
            loam.block_leaks()
        out, _ = run_child("""
            import loam
            loam.start(leaks=True, control=False)
            kept = [loam.Block(100, "leaks.here"), loam.Block(50, "leaks.here")]
            print([row for row in loam.block_leaks() if row["tag"] == "leaks.here"])
            kept.clear()
            print([row for row in loam.block_leaks() if row["tag"] == "leaks.here"])
            """)
        self.assertEqual(out.splitlines(),
                         ["[{'tag': 'leaks.here', 'blocks': 2, 'bytes': 150}]", "[]"])


class Hooks(Case):
    def tearDown(self):
        loam.on_memory(None)
        loam.on_block(None)

    def test_memory_is_reported(self):
        seen = []
        self.assertIsNone(loam.on_memory(lambda *call: seen.append(call)))
        block = loam.Block(5000)
        address = block.address
        del block
        previous = loam.on_memory(None)
        loam.Block(5000)
        self.assertTrue(callable(previous))
        self.assertIn((0, address), [call[:2] for call in seen])
        self.assertIn((address, 0, 0), seen)
        count = len(seen)
        loam.Block(5000)
        self.assertEqual(len(seen), count)

    def test_blocks_are_reported(self):
        seen = []
        loam.on_block(lambda *call: seen.append(call))
        block = loam.Block(10, "hooks.block")
        part = block[1:]
        del block, part
        loam.on_block(None)
        mine = [(verb, references) for verb, _, tag, _, references in seen
                if tag == "hooks.block"]
        self.assertEqual(mine[0], ("made", 1))
        self.assertEqual(mine.count(("ended", 0)), 2)

    def test_a_hook_cannot_use_an_arena_in_the_middle_of_a_change(self):
        arena, refused, accepted = loam.Arena(), [], []
        piece = arena.alloc(3000)

        def hook(*_):
            for use in (lambda: arena.alloc(100), lambda: piece.resize(7),
                        lambda: memoryview(piece), arena.finalize):
                try:
                    accepted.append(use())
                except BufferError as error:
                    refused.append(str(error))
        loam.on_memory(hook)
        try:
            for i in range(20):
                piece.resize(3000 + 5000 * i)
        finally:
            loam.on_memory(None)
        self.assertEqual(accepted, [])
        self.assertGreater(len(refused), 4)
        self.assertEqual(set(refused), {"the arena is being changed"})
        piece.resize(10)
        self.assertEqual(len(memoryview(piece)), 10)

    def test_a_hook_may_raise_and_allocate_in_any_thread(self):
        raised, before = [], sys.unraisablehook
        sys.unraisablehook = lambda info: raised.append(type(info.exc_value))

        def hook(*call):
            numpy.ones(100)
            loam.Block(7)
            raise KeyError(call)
        loam.on_memory(hook)
        try:
            threads = [threading.Thread(target=lambda: [loam.Block(100) for _ in range(20)])
                       for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            try:
                raise ValueError("kept")
            except ValueError as error:
                loam.Block(100)
                self.assertEqual(str(error), "kept")
        finally:
            loam.on_memory(None)
            sys.unraisablehook = before
        self.assertGreaterEqual(len(raised), 160)
        self.assertEqual(set(raised), {KeyError})
        with self.assertRaises(TypeError):
            loam.on_memory(7)

    def test_a_signal_in_a_hook_ends_the_program(self):
        def stop(*_):
            sys.exit("stopped")
        self.addCleanup(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, stop))

        def hook(*_):
            set_hook(None)
            signal.raise_signal(signal.SIGTERM)
        for set_hook in (loam.on_memory, loam.on_block):
            set_hook(hook)
            with self.assertRaisesRegex(SystemExit, "stopped"):
                loam.Block(100)
                for _ in range(1000):
                    pass

    def test_a_hook_ends_with_the_interpreter(self):
        run_child("""
            import loam, numpy
            loam.numpy.install()
            loam.on_memory(lambda *call: None)
            loam.on_block(lambda *call: None)
            kept = [numpy.ones(100), loam.Block(10)]
            """)


class Logs(Case):
    def test_a_log_has_a_row_for_each_operation(self):
        before = loam.Block(3000, "log.before")
        with loam.AllocationLog() as log:
            block = loam.Block(5000, "log.block")
            address, old = block.address, before.address
            del block, before
        loam.Block(5000, "log.after")
        mine = [row for row in log.rows if row.tag == "log.block"]
        self.assertEqual([(row.action, row.address, row.old, row.size) for row in mine],
                         [("allocate", address, 0, 5000), ("free", address, 0, 5000)])
        self.assertEqual({(row.device, row.stream, row.thread) for row in mine},
                         {(-1, 0, threading.get_ident())})
        self.assertLessEqual(mine[0].time, mine[1].time)
        self.assertTrue(mine[0].strategy)
        unknown = [row for row in log.rows if row.address == old and row.action == "free"]
        self.assertEqual([(row.size, row.tag) for row in unknown], [(0, "")])
        self.assertFalse([row for row in log.rows if row.tag == "log.after"])

    def test_a_resize_has_both_addresses(self):
        array = loam.Array("var * float64", tag="log.row")
        with loam.AllocationLog() as log:
            for count in range(1000, 200000, 20000):
                array.resize(count)
        resized = [row for row in log.rows if row.action == "resize"]
        self.assertTrue(resized)
        self.assertTrue(all(row.old and row.tag == "log.row" for row in resized))

    def test_its_csv_is_read_back(self):
        import csv
        with loam.AllocationLog() as log:
            address = loam.Block(5000, 'log "quoted", tag').address
        rows = list(csv.DictReader(log.csv().splitlines()))
        self.assertEqual(len(rows), len(log.rows))
        mine = [row for row in rows if row["tag"] == 'log "quoted", tag']
        self.assertEqual([row["action"] for row in mine], ["allocate", "free"])
        self.assertEqual(int(mine[0]["address"], 16), address)
        self.assertEqual((mine[0]["size"], mine[0]["device"], mine[0]["stream"]),
                         ("5000", "-1", "0x0"))

    def test_the_function_of_before_goes_on(self):
        seen = []
        loam.on_memory(lambda *call: seen.append(call))
        log = loam.AllocationLog().start()
        with self.assertRaises(RuntimeError):
            log.start()
        address = loam.Block(5000).address
        log.stop()
        log.stop()
        loam.Block(7000)
        loam.on_memory(None)
        self.assertIn((0, address), [call[:2] for call in seen])
        self.assertIn(7000, [call[2] for call in seen])
        self.assertEqual(max(row.size for row in log.rows), 5000)


    def test_a_log_survives_an_interrupt_at_its_start_and_its_stop(self):
        log, set_hook = loam.AllocationLog(), hooks.on_memory

        def interrupted(function):
            set_hook(function)
            raise KeyboardInterrupt  # Ctrl-C, before the caller has noted that the call is done

        for change in log.start, log.stop:
            with mock.patch.object(hooks, "on_memory", interrupted):
                self.assertRaises(KeyboardInterrupt, change)
            log.stop()
            with log:
                loam.Block(5000, "log.again")
            self.assertEqual([row.action for row in log.rows if row.tag == "log.again"],
                             ["allocate", "free"])
            self.assertIsNone(loam.on_memory(None))
            log.rows.clear()
            if change == log.start:
                log.start()

    def test_an_interrupt_at_the_start_of_a_log_keeps_the_function_of_before(self):
        seen, set_hook = [], hooks.on_memory

        def interrupted(function):
            set_hook(function)
            raise KeyboardInterrupt

        def earlier(*call):
            seen.append(call)

        loam.on_memory(earlier)
        log = loam.AllocationLog()
        with mock.patch.object(hooks, "on_memory", interrupted):
            self.assertRaises(KeyboardInterrupt, log.start)
        loam.Block(5000)
        self.assertIn(5000, [call[2] for call in seen])
        log.start().stop()
        self.assertEqual(loam.on_memory(None), earlier)

    def test_logs_stop_in_any_order(self):
        first, second = loam.AllocationLog().start(), loam.AllocationLog().start()
        first.stop()
        loam.Block(5000, "log.second")
        self.assertFalse([row for row in first.rows if row.tag == "log.second"])
        first.start()
        loam.Block(5000, "log.both")
        first.stop()
        second.stop()
        loam.Block(5000, "log.neither")
        self.assertIsNone(loam.on_memory(None))
        for log, expected in ((first, ["log.both"]), (second, ["log.second", "log.both"])):
            self.assertEqual([row.tag for row in log.rows
                              if row.action == "allocate" and row.size == 5000], expected)
        with loam.AllocationLog() as log:
            loam.Block(5000, "log.later")
        self.assertIn("log.later", {row.tag for row in log.rows})


def traced():
    gc.collect()
    only = tracemalloc.DomainFilter(inclusive=True, domain=loam.tracemalloc_domain)
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([only]).traces)


class Tracing(Case):
    def setUp(self):
        tracemalloc.start()

    def tearDown(self):
        tracemalloc.stop()

    def test_blocks_are_traced_where_they_are_made(self):
        block = loam.Block(12345)
        self.assertEqual(traced(), 12345)
        where = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.DomainFilter(True, loam.tracemalloc_domain)]).traces[0].traceback
        self.assertEqual(where[0].filename, __file__)
        kept = [block[1:], memoryview(block), loam.Block.wrap(bytes(100))]
        self.assertEqual(traced(), 12345)
        del block, kept
        self.assertEqual(traced(), 0)
        block = loam.Block(50)
        block.release()
        self.assertEqual(traced(), 0)

    def test_arrays_are_traced_with_their_rows(self):
        array = loam.Array("1000 * float64")
        self.assertEqual((traced(), array.nbytes), (8000, 8000))
        view = array[1:]
        del array
        self.assertEqual(traced(), 8000)
        del view
        array = loam.Array("2 * var * float64", [[], []])
        row = array[0]
        row.resize(1000)
        self.assertGreaterEqual(traced(), 8000)
        self.assertEqual(traced(), array.nbytes)
        del row, array
        source = numpy.ones(100)
        self.assertEqual((loam.Array.from_buffer(source).nbytes, traced()), (800, 0))

    def test_copies_of_arrow_are_traced_under_a_tag(self):
        def table(source):
            return loam.Array.from_arrow(source, copy=True, tag="debugging.arrow")

        bools = loam.Array("10000 * bool")
        before = traced()
        array = table(bools)
        self.assertEqual((loam.owner(array).tag, traced() - before), ("debugging.arrow", 10000))
        self.assertIs(array[1:].base, array)
        view = array[1:]
        del array
        self.assertEqual(traced() - before, 10000)
        del view
        self.assertEqual(traced(), before)
        for text, own in (("1000 * float64", 0), ("1000 * ?float64", 0), ("2 * 30 * bool", 60),
                          ("100 * {x: bool, y: ?int32, z: int32}", 3 * 8 + 100 + 400)):
            with self.subTest(type=text):
                source = loam.Array(text)
                if "?int32" in text:
                    source[0, "y"] = None
                before = traced()
                array = table(source)
                self.assertEqual(traced() - before, own + (0 if own else array.nbytes - 8000))
                del array
                self.assertEqual(traced(), before)
        rows = loam.Array("3 * var * bool", [[True] * 5, [], [False] * 2])
        before = traced()
        array = table(rows)
        self.assertEqual((traced() - before, array.nbytes), (3 * 16 + 7, 3 * 16 + 7))
        with loam.tag("debugging.scope"):
            self.assertEqual(loam.owner(loam.Array.from_arrow(bools, copy=True)).tag,
                             "debugging.scope")
        self.assertEqual(loam.owner(loam.Array.from_arrow(bools, copy=True)).tag, "python.array")

    def test_memory_of_no_bytes_hides_no_other(self):
        blocks = [loam.Block(100) for _ in range(50)]
        empty = [make() for _ in range(50) for make in (lambda: loam.Array("0 * int8"),
                                                        lambda: loam.Block(0))]
        blocks += [loam.Block(100) for _ in range(50)]
        self.assertEqual(traced(), 10000)
        del empty
        self.assertEqual(traced(), 10000)

    def test_arenas_are_traced(self):
        arena = loam.Arena(resizable=True)
        piece = arena.alloc(10000)
        self.assertEqual(traced(), len(arena))
        piece.resize(20000)
        self.assertEqual(traced(), len(arena))
        del arena
        self.assertGreaterEqual(traced(), 20000)
        del piece
        self.assertEqual(traced(), 0)

    def test_what_was_made_before_the_tracing_ends_in_peace(self):
        tracemalloc.stop()
        block = loam.Block(100)
        tracemalloc.start()
        del block
        self.assertEqual(traced(), 0)


class ForC(Case):
    def test_c_code_finds_the_header_and_the_table(self):
        self.assertTrue(os.path.exists(os.path.join(loam.include_path(), "loam.h")))
        with tempfile.TemporaryDirectory() as folder:
            own = compile_library(folder)
            for function in (own.allocate, own.data):
                function.restype = ctypes.c_void_p
            table = ctypes.c_void_p(loam.nrt_api())
            block = ctypes.c_void_p(own.allocate(table, ctypes.c_size_t(100)))
            data = own.data(table, block)
            self.assertIsNotNone(loam.owner(data))
            own.release(table, block)
            self.assertIsNone(loam.owner(data))

    def test_a_handler_is_registered_from_its_capsule(self):
        with tempfile.TemporaryDirectory() as folder:
            own = compile_library(folder)
            address = ctypes.addressof(ctypes.c_char.in_dll(own, "handler"))
            self.assertEqual(loam.register_handler(capsule_of(address)), "plainly")
        loam.policy.load(text="""
            local own = loam.handler "plainly"
            return loam.policy { pick = function(req) return own end }""")
        block = loam.Block(5000)
        loam.policy.load(text=POLICY)
        whose = loam.owner(block)
        self.assertEqual((whose.handler, whose.handler_version), ("plainly", 3))
        self.assertEqual(loam.owner(loam.Block(5000)).handler_version, 0)
        with self.assertRaisesRegex(ValueError, 'a capsule "mem_handler", not .*"other"'):
            loam.register_handler(capsule_of(address, b"other"))
        for register in loam.register_handler, loam.set_handler:
            with self.assertRaisesRegex(TypeError, 'a capsule "mem_handler", not int'):
                register(7)


class ContextHandlers(Case):
    """The handler of a context makes the data of its Blocks, Arrays and Arenas."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with tempfile.TemporaryDirectory() as folder:
            cls.own = compile_library(folder)
        cls.capsule = capsule_of(ctypes.addressof(ctypes.c_char.in_dll(cls.own, "handler")))

    def tearDown(self):
        loam.set_handler(None)

    def test_it_makes_all_data_and_they_keep_it(self):
        self.assertIsNone(loam.get_handler())
        self.assertIsNone(loam.set_handler(self.capsule))
        self.assertIs(loam.get_handler(), self.capsule)
        made = [loam.Block(10, "context.block"), loam.Block(5000, align=4096, zero=True),
                loam.Array("2 * int8", [1, 2]), loam.Array("string", "text"),
                loam.Arena().alloc(100)]
        self.assertIs(loam.set_handler(None), self.capsule)
        made.append(copy.copy(made[0]))
        self.assertEqual([loam.owner(one).handler for one in made], ["plainly"] * 5 + ["loam"])
        self.assertEqual(loam.owner(made[0]).tag, "context.block")
        row = loam.Array("var * int8")
        loam.set_handler(self.capsule)
        row.resize(10000)
        self.assertEqual(loam.owner(row[0:1]).handler, "loam")

    def test_tasks_of_one_thread_have_their_own(self):
        seen = []

        async def make(capsule, wanted):
            loam.set_handler(capsule)
            for _ in range(3):
                await asyncio.sleep(0)
                seen.append((loam.owner(loam.Block(10)).handler, wanted))

        async def make_all():
            await asyncio.gather(make(self.capsule, "plainly"), make(None, "loam"),
                                 make(self.capsule, "plainly"))
        asyncio.run(make_all())
        self.assertEqual(len(seen), 9)
        for handler, wanted in seen:
            self.assertEqual(handler, wanted)
        self.assertIsNone(loam.get_handler())

    def test_a_new_thread_has_none(self):
        loam.set_handler(self.capsule)
        seen = []
        thread = threading.Thread(
            target=lambda: seen.extend([loam.get_handler(), loam.owner(loam.Block(10)).handler]))
        thread.start()
        thread.join()
        self.assertEqual(seen, [None, "loam"])

    def test_what_is_no_handler_is_refused(self):
        empty = capsule_of(ctypes.addressof(ctypes.create_string_buffer(200)))
        for wrong in (empty, capsule_of(1, b"other"), 7):
            with self.assertRaises((ValueError, TypeError)):
                loam.set_handler(wrong)
        self.assertIsNone(loam.get_handler())


class Names(Case):
    def test_all_names_can_be_imported(self):
        run_child("from loam import *; Block(1); import loam; assert 'cupy' not in globals()")

    def test_dir_has_the_public_names_only(self):
        names = dir(loam)
        for name in ("Any", "importlib", "os", "TYPE_CHECKING", "annotations"):
            self.assertNotIn(name, names)
        for name in ("numpy", "numba", "Block", "policy", "__version__"):
            self.assertIn(name, names)

    def test_what_is_public_says_what_it_does_and_takes(self):
        classes = (loam.Block, loam.Array, loam.Arena, type(loam.Arena().alloc(1)))
        found = [getattr(loam, name) for name in loam.__all__]
        found += [getattr(one, name) for one in classes for name in vars(one)
                  if name[0] != "_" or name in ("__dlpack__", "__arrow_c_array__")]
        for one in filter(callable, found):
            with self.subTest(one):
                self.assertTrue(one.__doc__)
                if not (isinstance(one, type) and issubclass(one, loam.Error)):
                    self.assertIsNotNone(inspect.signature(one))


if __name__ == "__main__":
    main()

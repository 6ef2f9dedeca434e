"""test_numba - loam's memory in code that Numba compiles, through Numba's documented table."""

import ctypes
import gc
import os
import sys
import threading

os.environ["NUMBA_NRT_STATS"] = "1"  # later versions of Numba count only with this
try:
    import numba
    from numba.core.runtime import rtsys
except ImportError:
    print("skipped: python3-numba is not installed")
    sys.exit(77)
import numpy

import loam
from loam import numba as of_loam

from _support import POLICY, Case, main

GRID = of_loam.allocator("numba.grid")
DENIED = of_loam.allocator("denied")


@numba.njit
def make(n):
    array = of_loam.empty(n, numpy.float64, GRID)
    array[:] = 1.5
    return array


@numba.njit
def make_table(rows, columns, table):
    array = of_loam.empty((rows, columns), numpy.int32, table)
    array[:] = 3
    return array


@numba.njit
def make_single(table):
    array = of_loam.empty((), numpy.int8, table)
    array[()] = 7
    return array


@numba.njit
def make_of(dtype, table):
    return of_loam.empty(5, dtype, table)


@numba.njit(nogil=True)
def make_many(times, table):
    total = 0
    for i in range(times):
        array = of_loam.empty(i % 100, numpy.int64, table)
        array[:] = 1
        total += array[::2].sum()
    return total


class Balanced(Case):
    """At the end of each test, Numba's own counts must agree."""

    def setUp(self):
        loam.policy.load(text=POLICY)
        gc.collect()
        self.before = rtsys.get_allocation_stats()

    def tearDown(self):
        gc.collect()
        after = rtsys.get_allocation_stats()
        self.assertEqual(after.alloc - self.before.alloc, after.free - self.before.free)
        self.assertEqual(after.mi_alloc - self.before.mi_alloc, after.mi_free - self.before.mi_free)

    def live(self, tag):
        return next(row["live_blocks"] for row in loam.stats("tag") if row["tag"] == tag)

    def test_arrays_are_loams_and_on_a_cache_line(self):
        for n in (1, 10, 1000, 1_000_000):
            array = make(n)
            self.assertEqual(array.sum(), 1.5 * n)
            self.assertEqual(array.ctypes.data % 64, 0)
            self.assertEqual(loam.owner(array).tag, "numba.grid")
        self.assertEqual(self.live("numba.grid"), 1)
        del array
        self.assertEqual(self.live("numba.grid"), 0)

    def test_views_keep_them(self):
        view = make(1000)[10:20]
        gc.collect()
        self.assertEqual((view.sum(), self.live("numba.grid")), (15, 1))

    def test_arrays_of_more_dimensions(self):
        table = make_table(7, 11, GRID)
        self.assertEqual((table.shape, table.dtype, table.sum()), ((7, 11), numpy.int32, 231))
        self.assertEqual(make_table(0, 11, GRID).size, 0)

    def test_extents_may_be_of_several_types_or_none(self):
        mixed = make_table(numpy.uint8(7), 11, GRID)
        self.assertEqual((mixed.shape, mixed.sum()), ((7, 11), 231))
        with self.assertRaises(ValueError):
            make_table(numpy.uint8(7), -1, GRID)
        single = make_single(GRID)
        self.assertEqual((single.shape, single[()], loam.owner(single).tag), ((), 7, "numba.grid"))

    def test_values_may_be_records_and_dates(self):
        for kind in (numpy.dtype([("x", "f8"), ("n", "i4")]), numpy.dtype("M8[s]"),
                     numpy.dtype("c16"), numpy.dtype("?"), numpy.dtype("S3")):
            with self.subTest(dtype=kind):
                array = make_of(kind, GRID)
                self.assertEqual((array.dtype, loam.owner(array).tag), (kind, "numba.grid"))

    def test_wrong_extents_are_refused(self):
        for n in (-1, -(1 << 62)):
            with self.assertRaises(ValueError):
                make(n)
            with self.assertRaises(ValueError):
                make_table(3, n, GRID)
        with self.assertRaises(MemoryError):
            make(1 << 60)
        with self.assertRaises(MemoryError):
            make_table(1 << 40, 1 << 40, GRID)

    def test_a_policy_decides(self):
        aligned = of_loam.allocator("aligned")
        self.assertEqual(loam.owner(make_table(3, 5, aligned)).strategy, "aligned")

    def test_threads_without_the_interpreters_lock(self):
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(make_many(5000, GRID)))
                   for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(answers), {sum((i % 100 + 1) // 2 for i in range(5000))})

    def test_any_code_can_use_the_table(self):
        class Table(ctypes.Structure):
            _fields_ = [("malloc", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t,
                                                    ctypes.c_void_p)),
                        ("realloc", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p,
                                                     ctypes.c_size_t, ctypes.c_void_p)),
                        ("free", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)),
                        ("opaque", ctypes.c_void_p)]
        table = Table.from_address(GRID)
        block = table.malloc(1000, table.opaque)
        ctypes.memset(block, 7, 1000)
        block = table.realloc(block, 100_000, table.opaque)
        self.assertEqual(ctypes.string_at(block, 1000), bytes([7]) * 1000)
        self.assertEqual(loam.owner(block).tag, "numba.grid")
        table.free(block, table.opaque)
        table.free(None, table.opaque)
        table.free(table.realloc(None, 5, table.opaque), table.opaque)
        self.assertIsNone(table.malloc(2**64 - 8, table.opaque))
        self.assertEqual(self.live("numba.grid"), 0)

    def test_the_same_tag_has_the_same_table(self):
        self.assertEqual(of_loam.allocator("numba.grid"), GRID)
        self.assertNotEqual(of_loam.allocator("numba.other"), GRID)
        with self.assertRaises(ValueError):
            of_loam.allocator("x" * 256)

    def test_outside_compiled_code_it_says_what_to_do(self):
        with self.assertRaisesRegex(TypeError, "for compiled code"):
            of_loam.empty(1, numpy.float64, GRID)


class Refused(Case):
    def test_no_memory_is_a_memory_error(self):
        loam.policy.load(text=POLICY)
        for _ in range(3):
            with self.assertRaisesRegex(MemoryError, "loam has no memory"):
                make_table(3, 5, DENIED)
        self.assertEqual(make(10).sum(), 15)


if __name__ == "__main__":
    main()

"""test_numba_cuda - loam as Numba's memory manager, on the stand-in for CUDA's driver."""

import ctypes
import gc
import importlib.util
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from unittest import mock

STANDIN = os.environ.get("LOAM_STANDIN", "")
if not importlib.util.find_spec("numba"):
    print("skipped: python3-numba is not installed")
    sys.exit(77)
os.environ.update(NUMBA_CUDA_DRIVER=STANDIN, LOAM_CUDA_DRIVER=STANDIN, STANDIN_MEMORY="64M",
                  STANDIN_LOG=os.devnull, NUMBA_CUDA_MEMORY_MANAGER="loam.numba")
folder = tempfile.TemporaryDirectory()
os.environ.update(LOAM_CONTROL="1", LOAM_CONTROL_DIR=folder.name)  # for commands of other processes

import numpy
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError

import loam
from loam import _loam

import _numba_tests
from _support import Case, drop_in_threads, main

driver = ctypes.CDLL(STANDIN)
driver.standin_violation.restype = ctypes.c_char_p
driver.standin_calls.restype = ctypes.c_ulong
MIB = 1 << 20


def give_back():
    """Frees all deferred blocks, like the end of a scope in which Numba deferred them."""
    _loam.defer_limit(0, 0)
    _loam.defer_enter()
    _loam.defer_leave()
    _loam.defer_limit(10, 0.2)


def restore_policy():
    loam.policy.load(text="""local any = loam.device{}
                             return loam.policy { pick = function() return any end }""")


def waits():
    return driver.standin_calls(b"cuCtxSynchronize")


class OnTheStandIn(Case):
    """Each test must end with no live block and no violation."""

    def setUp(self):
        cuda.current_context()

    def tearDown(self):
        gc.collect()
        give_back()
        violations, last = driver.standin_violations(), driver.standin_violation()
        driver.standin_forgive()  # each test counts its own violations
        self.assertEqual(violations, 0, last)
        self.assertEqual([row for row in loam.stats() if row["live_blocks"]], [])

    def live(self, tag):
        """Returns the number of live blocks of the tag."""
        return sum(row["live_blocks"] for row in loam.stats("tag") if row["tag"] == tag)


class Log(OnTheStandIn):
    def test_the_example_of_nbep_7_has_its_rows(self):
        a = numpy.zeros(10)
        with loam.AllocationLog() as log:
            d_a = cuda.to_device(a)
            address = d_a.gpu_data.device_pointer.value
            self.assertEqual(loam.owner(address).tag, "numba.cuda")
            del d_a
            gc.collect()
            give_back()  # Numba defers its frees
        rows = [row for row in log.rows if row.tag == "numba.cuda"]
        self.assertEqual([(row.action, row.address, row.size, row.device) for row in rows],
                         [("allocate", address, 80, 0), ("free", address, 80, 0)])
        self.assertIn(hex(address), log.csv())


class Arrays(OnTheStandIn):
    def test_device_memory_is_loams_and_has_the_tag_in_force(self):
        host = numpy.arange(1000.0)
        with loam.tag("model.weights"):
            array = cuda.to_device(host)
        other = cuda.device_array(100)
        owner = loam.owner(array[10:])
        self.assertEqual((owner.tag, owner.device), ("model.weights", 0))
        self.assertEqual((self.live("model.weights"), self.live("numba.cuda")), (1, 1))
        self.assertTrue((array.copy_to_host() == host).all())
        del array, other

    def test_views_keep_the_memory(self):
        view = cuda.to_device(numpy.arange(1000))[10:20]
        gc.collect()
        self.assertEqual(view.copy_to_host().sum(), 145)
        self.assertEqual(self.live("numba.cuda"), 1)
        del view

    def test_pinned_mapped_and_managed_memory_is_loams(self):
        for make in (cuda.pinned_array, cuda.mapped_array, cuda.managed_array):
            with self.subTest(make.__name__):
                with loam.tag("staging"):
                    array = make(1000, numpy.float64)
                array[:] = 3
                owner = loam.owner(array)
                self.assertEqual((owner.tag, owner.address), ("staging", array.ctypes.data))
                self.assertEqual(array.sum(), 3000)
                del array, owner
                gc.collect()

    def test_memory_is_mapped_until_its_last_user_ends(self):
        host = numpy.zeros(1000)
        with cuda.mapped(host) as outer:
            with cuda.mapped(host) as inner:
                self.assertEqual(inner.copy_to_host().sum(), 0)
                del inner
            self.assertEqual(outer.copy_to_host().sum(), 0)
            del outer

    def test_memory_that_there_is_can_be_pinned(self):
        array = numpy.ones(10_000)
        copy = cuda.device_array_like(array)
        before = driver.standin_blocks()
        with cuda.pinned(array):
            self.assertEqual(driver.standin_blocks(), before + 1)
            copy.copy_to_device(array)
        self.assertEqual(driver.standin_blocks(), before)
        self.assertEqual(copy.copy_to_host().sum(), 10_000)
        del copy


class Frees(OnTheStandIn):
    def test_are_collected_and_given_back_after_one_wait(self):
        give_back()
        before = waits()
        for _ in range(10):
            cuda.device_array(10)
        self.assertEqual((self.live("numba.cuda"), waits()), (10, before))
        cuda.device_array(10)
        self.assertEqual((self.live("numba.cuda"), waits()), (0, before + 1))

    def test_wait_for_work_on_every_stream(self):
        stream = cuda.stream()
        array = cuda.device_array(1000, numpy.uint8)
        address = array.__cuda_array_interface__["data"][0]
        driver.standin_hold()
        driver.standin_write(ctypes.c_void_p(stream.handle.value), ctypes.c_ulonglong(address), 7,
                             ctypes.c_size_t(1000))
        del array
        for _ in range(12):
            cuda.device_array(1000, numpy.uint8)
        self.assertEqual(driver.standin_pending(ctypes.c_void_p(stream.handle.value)), 0)
        driver.standin_release()

    def test_wait_while_cleanup_is_deferred(self):
        give_back()
        before = waits()
        with cuda.defer_cleanup():
            with cuda.defer_cleanup():
                for _ in range(30):
                    cuda.device_array(10)
            for _ in range(30):
                cuda.device_array(10)
            self.assertEqual((self.live("numba.cuda"), waits()), (60, before))
        self.assertEqual((self.live("numba.cuda"), waits()), (0, before + 1))

    def test_make_room_when_memory_is_wanting(self):
        give_back()
        for _ in range(8):
            cuda.device_array(12 * MIB, numpy.uint8)
        big = cuda.device_array(60 * MIB, numpy.uint8)
        with self.assertRaises(CudaAPIError) as caught:
            cuda.device_array(60 * MIB, numpy.uint8)
        self.assertEqual(caught.exception.code, 2)
        del big

    def test_may_come_from_any_thread(self):
        drop_in_threads([cuda.device_array(1000) for _ in range(100)])

    def test_after_a_reset_are_nothing(self):
        old, host = cuda.device_array(1000), cuda.pinned_array(1000)
        cuda.close()
        self.assertEqual([row for row in loam.stats() if row["live_blocks"]], [])
        new = cuda.to_device(numpy.arange(10))
        # Another block may have its address by now.
        with mock.patch.object(_loam, "manager_free") as free:
            del old, host
            gc.collect()
        free.assert_not_called()
        self.assertEqual(new.copy_to_host().sum(), 45)
        del new


class Devices(OnTheStandIn):
    def test_a_reset_before_the_first_use_spares_other_devices(self):
        context = mock.Mock()
        context.device.id = 1
        with mock.patch.object(_loam, "manager_reset") as reset:
            loam.numba.Manager(context=context).reset()
        self.assertEqual(reset.mock_calls, [mock.call(1)])

    def test_a_number_that_is_no_devices_is_no_other_ones(self):
        for ask in (_loam.device_memory, _loam.device_info, _loam.device_trim,
                    _loam.manager_initialize, _loam.manager_reset):
            with self.assertRaises(OverflowError):
                ask(1 << 32)


class Policies(OnTheStandIn):
    def tearDown(self):
        super().tearDown()
        restore_policy()

    def test_decide_what_device_memory_is(self):
        loam.policy.load(text="""
            local device  = loam.device { name = "device" }
            local managed = loam.managed { name = "managed" }
            local denied  = loam.deny { name = "denied" }
            return loam.policy { pick = function(req)
              if req.tag:under("denied") then return denied end
              if req.size >= loam.MiB then return managed end
              return device
            end }""")
        for size, kind in ((1000, "device"), (2 * MIB, "managed")):
            array = cuda.device_array(size, numpy.uint8)
            self.assertEqual(loam.owner(array).strategy, kind)
            del array
        with loam.tag("denied"), self.assertRaisesRegex(CudaAPIError, "deny|denied"):
            cuda.device_array(10)


class Elsewhere(OnTheStandIn):
    """Memory that another process opens. numba.cuda.tests.cudapy.test_ipc tests more of it."""

    CHILD = """
import pickle, sys, numpy
from numba import cuda
handle = pickle.load(sys.stdin.buffer)
with handle as array:
    print(array.copy_to_host().sum())
    array.copy_to_device(numpy.full(len(array), 2.0))
"""

    def tearDown(self):
        super().tearDown()
        restore_policy()

    def open_in_a_child(self, pool, environment=None):
        loam.policy.load(text=f"""local any = loam.device {{ pool = "{pool}" }}
                                  return loam.policy {{ pick = function() return any end }}""")
        other = cuda.to_device(numpy.zeros(100))
        array = cuda.to_device(numpy.ones(2 * MIB))
        return array, other, subprocess.run(
            [sys.executable, "-c", self.CHILD], capture_output=True, env=environment,
            input=pickle.dumps(array.get_ipc_handle()), timeout=120)

    def opens_in_a_child(self, pool, environment=None):
        array, other, done = self.open_in_a_child(pool, environment)
        self.assertEqual((done.stdout.split(), done.stderr), ([b"2097152.0"], b""))
        self.assertEqual(array.copy_to_host().sum(), 4 * MIB)
        self.assertEqual(other.copy_to_host().sum(), 0)

    def test_an_array_is_opened_that_the_driver_can_name(self):
        self.opens_in_a_child("chunks")

    def test_a_process_without_loam_opens_what_the_driver_can_name(self):
        without = {name: value for name, value in os.environ.items()
                   if name not in ("PYTHONPATH", "NUMBA_CUDA_MEMORY_MANAGER")}
        self.opens_in_a_child("chunks", without)
        self.opens_in_a_child("none", without)
        _, _, done = self.open_in_a_child("cache", without)
        self.assertRegex(done.stderr.decode(), "No module named 'loam'")

    def test_and_one_that_is_mapped_to_a_range_of_addresses(self):
        self.opens_in_a_child("cache")

    def test_a_copy_that_fails_leaves_nothing_open(self):
        loam.policy.load(text="""local any = loam.device { pool = "cache" }
                                 return loam.policy { pick = function() return any end }""")
        array = cuda.to_device(numpy.ones(2 * MIB))
        handle = pickle.loads(pickle.dumps(array.get_ipc_handle()._ipc_handle))
        context = mock.Mock(wraps=cuda.current_context())
        context.memalloc.side_effect = MemoryError
        with mock.patch.object(_loam, "ipc_close", wraps=_loam.ipc_close) as close:
            self.assertRaises(MemoryError, handle.open_staged, context)
        close.assert_called_once()
        del array


class Everywhere(OnTheStandIn):
    def test_a_tag_holds_in_threads_that_have_none(self):
        arrays = {}

        def make(name):
            arrays[name] = cuda.device_array(10)
        with loam.tag("step", everywhere=True):
            thread = threading.Thread(target=make, args=("during",))
            thread.start()
            thread.join()
        thread = threading.Thread(target=make, args=("after",))
        thread.start()
        thread.join()
        tags = {name: loam.owner(array).tag for name, array in arrays.items()}
        self.assertEqual(tags, {"during": "step", "after": "numba.cuda"})


class NumbasOwn(Case):
    def test_tests_of_memory_end_as_without_loam(self):
        told = []
        complaints = _numba_tests.compare(_numba_tests.QUICK, told.append)
        print("\n".join(told), file=sys.stderr)
        self.assertEqual(complaints, [])


if __name__ == "__main__":
    main()

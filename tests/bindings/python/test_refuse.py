"""test_refuse - each request in turn is refused: a MemoryError, and no other effect."""

import copy
import ctypes
import datetime
import gc
import os

import numpy

import loam
from loam import _loam

from _support import POLICY, Case, main, run_child

class Counts(ctypes.Structure):
    """The counts of refusing.c."""

    _fields_ = [("asked", ctypes.c_long), ("nth", ctypes.c_long), ("live", ctypes.c_long)]


LIBRARY = ctypes.CDLL(os.environ["LOAM_REFUSING"])
COUNTS = Counts.in_dll(LIBRARY, "counts")


def work():
    """Uses NumPy in many ways. The result shows whether anything went wrong unnoticed."""
    a = numpy.arange(1000.0)
    b = numpy.sort(a[::-1]) + a * 2
    c = numpy.concatenate([b, numpy.zeros(100), numpy.array([1, 2, 3])])
    c.resize(5000, refcheck=False)
    d = numpy.linalg.solve(numpy.eye(20) * 3, numpy.ones(20))
    e = numpy.fft.fft(c[:64]).real
    f = numpy.fromstring(" ".join(map(str, range(2000))), sep=" ")
    g = numpy.unique(numpy.array(["x", "yy", "x"]))
    h = numpy.random.default_rng(1).random(100)
    return float(c.sum() + d.sum() + e[0] + f.sum() + g.size + (h < 1).sum())


def work_on_arrays():
    """Uses loam's own arrays in many ways."""
    a = loam.Array("3 * var * {x: float64, s: ?string, l: var * int8}",
                   [[(1, "a" * 50, [1] * 20)], [], [(2, None, [])]])
    a[0].append({"x": 3, "s": "b"})
    a[1] = [(4, "c", [2])] * 5
    x = numpy.asarray(a[1, :, "x"]).sum() + numpy.from_dlpack(a[0, "x"]).sum()
    back = loam.Array.from_dlpack(numpy.arange(3.0))[::-1]
    return a[["s", "x"]].tolist(), a["l"].type, x, back.tolist()


PADDED = numpy.dtype({"names": ["x", "y"], "formats": ["i4", "i4"], "offsets": [4, 12],
                      "itemsize": 16})


def work_on_exchange():
    """Uses arrays and blocks over foreign memory, and copies."""
    source = numpy.array([(1, 2), (3, 4)], PADDED)
    a = loam.Array.from_buffer(source)[::-1]
    b = loam.Array.from_buffer(b"\1\0\2\0", "2 * int16")
    c = loam.Array.from_arrow(loam.Array("fixed * ?string", ["a", None]).to_arrow(copy=True))
    f = loam.Array.from_arrow(loam.Array("2 * ?categorical[['a', 'b']]", ["b", None]), copy=True)
    d = copy.copy(loam.Array("2 * (string[3], date)", [("a", datetime.date(2024, 1, 2))] * 2))
    e = copy.copy(loam.Block.wrap(b"abc")[1:])
    seen = numpy.asarray(a)["y"].tolist()
    return (a.tolist(), b.tolist(), c.tolist(), d.tolist(), f.tolist(), bytes(e), seen, repr(a))


class Refusals(Case):
    def refuse_in_policy(self):
        """Loads a policy by which the library's handler serves every request."""
        handler = ctypes.c_char.in_dll(LIBRARY, "refusing")
        ctypes.CDLL(_loam.__file__).loam_handler_register(ctypes.byref(handler))
        loam.policy.load(text="""
            local refusing = loam.handler "refusing"
            return loam.policy { name = "refusing", pick = function(_) return refusing end }""")

    def refuse_each(self, work_, least):
        """Refuses each request of the work in turn; there must be more than `least` requests."""
        expected = work_()
        gc.collect()
        live, refused = COUNTS.live, 0
        for nth in range(1, 10_000):
            COUNTS.asked, COUNTS.nth = 0, nth
            try:
                answer = work_()
            except MemoryError:
                refused += 1
                answer = expected
            asked, COUNTS.nth = COUNTS.asked, 0
            self.assertEqual(answer, expected)
            gc.collect()
            self.assertEqual(COUNTS.live, live)
            if asked < nth:
                break
        self.assertGreater(refused, least)

    def test_each_request_refused_is_a_memory_error(self):
        self.refuse_in_policy()
        loam.numpy.install()
        self.addCleanup(loam.numpy.uninstall)
        self.assertEqual(loam.owner(numpy.empty(3)).handler, "refusing")
        self.refuse_each(work, 30)

    def test_each_request_of_an_array_refused_is_one_too(self):
        self.refuse_in_policy()
        self.refuse_each(work_on_arrays, 100)

    def test_each_request_of_an_exchange_refused_is_one_too(self):
        self.refuse_in_policy()
        self.refuse_each(work_on_exchange, 30)

    def test_the_package_itself_without_memory_says_so(self):
        loam.policy.load(text=POLICY)
        with loam.tag("denied"):
            for use in (lambda: loam.Block(100), lambda: loam.Block(100_000),
                        lambda: loam.Block(10, zero=True), lambda: loam.Block(10, align=64)):
                with self.assertRaises(MemoryError):
                    use()

    def test_data_that_reach_their_limit_are_a_memory_error(self):
        out, errors = run_child("""
            import resource, numpy, loam
            loam.numpy.install()
            numpy.ones(10)
            with open("/proc/self/status") as status:
                now = next(int(line.split()[1]) for line in status if line.startswith("VmData"))
            limit = (now << 10) + (64 << 20)
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
            kept, refused = [], 0
            for size in (10, 1000, 100_000, 10_000_000, 200_000_000) * 10:
                try:
                    array = numpy.ones(size, dtype="u1")
                    assert array.sum() == size
                    kept.append(array)
                except MemoryError:
                    refused += 1
            print(refused >= 10, len(kept) >= 20)
            del kept, array
            print(numpy.ones(1_000_000).sum())
            """)
        self.assertEqual(out, "True True\n1000000.0\n")
        for line in errors.splitlines():
            self.assertRegex(line, "^last words: |size 200000001 under tag 'numpy.data': strategy ")


if __name__ == "__main__":
    main()

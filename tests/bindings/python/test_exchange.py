"""test_exchange - memory of other libraries in loam.Block and loam.Array, and structs for NumPy."""

import array as arrays
import ctypes
import datetime
import gc
import mmap
import random
import unittest
import weakref

import numpy

import loam
from loam import formats

from _support import Case, main

try:
    import _testbuffer
except ImportError:
    _testbuffer = None


def constant(values):
    values.flags.writeable = False
    return values


class Pair(ctypes.Structure):
    _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_int)]


class Triple(Pair):
    _fields_ = [("c", ctypes.c_int)]


class Bits(ctypes.Structure):
    _fields_ = [("a", ctypes.c_int, 3), ("b", ctypes.c_int, 20), ("c", ctypes.c_longlong)]


class Either(ctypes.Union):
    _fields_ = [("a", ctypes.c_byte), ("b", ctypes.c_longlong)]


class Padded(ctypes.Structure):
    _fields_ = [("a", ctypes.c_byte), ("b", ctypes.c_double), ("all", ctypes.c_short * 3),
                ("pair", Pair), ("c", ctypes.c_char * 3)]


class Packed(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_byte)]


def around(inner):
    class Around(ctypes.Structure):
        _fields_ = [("inner", inner), ("last", ctypes.c_byte)]
    return Around


def members(kind):
    class Members(ctypes.Structure):
        _fields_ = [("all", kind * 2), ("last", ctypes.c_byte)]
    return Members


SOURCES = {
    "bytes": (b"abcdefgh", "8 * uint8", True),
    "bytearray": (bytearray(b"abcdefgh"), "8 * uint8", False),
    "memoryview": (memoryview(b"abcdefgh")[2:], "6 * uint8", True),
    "memoryview, cast": (memoryview(bytearray(24)).cast("d", (1, 3)), "1 * 3 * float64", False),
    "array": (arrays.array("d", [1.5, 2.5]), "2 * float64", False),
    "array of unsigned long": (arrays.array("L", [1, 2]), "2 * uint64", False),
    "ctypes": ((ctypes.c_int * 3)(1, 2, 3), "3 * int32", False),
    "ctypes, structs": ((Pair * 2)((1, 2), (3, 4)), "2 * {a: int32, b: int32}", False),
    "mmap": (mmap.mmap(-1, 4096), "4096 * uint8", False),
    "mmap, read-only": (mmap.mmap(-1, 4096, access=mmap.ACCESS_READ), "4096 * uint8", True),
    "numpy": (numpy.arange(6.0).reshape(2, 3), "2 * 3 * float64", False),
    "numpy, read-only": (constant(numpy.arange(6, dtype="i2")), "6 * int16", True),
}


class Coming(Case):
    def test_every_buffer_becomes_a_block_without_a_copy(self):
        for name, (source, _, is_readonly) in SOURCES.items():
            with self.subTest(source=name):
                block = loam.Block.wrap(source, "exchange.block")
                seen = numpy.frombuffer(source, "u1")
                self.assertEqual((block.address, len(block)), (seen.ctypes.data, seen.nbytes))
                self.assertEqual((block.readonly, block.base is source), (is_readonly, True))
                self.assertEqual(memoryview(block).readonly, is_readonly)
                self.assertEqual(block[1:].readonly, is_readonly)
                self.assertEqual(numpy.frombuffer(block, "u1").flags.writeable, not is_readonly)

    def test_every_buffer_becomes_an_array_without_a_copy(self):
        for name, (source, text, is_readonly) in SOURCES.items():
            with self.subTest(source=name):
                array = loam.Array.from_buffer(source, tag="exchange.array")
                self.assertEqual((array.type, array.readonly), (text, is_readonly))
                self.assertEqual(array.address, numpy.frombuffer(source, "u1").ctypes.data)
                self.assertIs(array.base, source)
                self.assertEqual(memoryview(array).readonly, is_readonly)
                self.assertEqual(bytes(array), bytes(source))

    def test_what_is_read_only_stays_as_it_is(self):
        source = b"\1\2\3\4"
        array = loam.Array.from_buffer(source)
        for write in (lambda: array.__setitem__(0, 9), lambda: array[1:].__setitem__(0, 9)):
            with self.assertRaisesRegex(ValueError, "read-only"):
                write()
        with self.assertRaises(ValueError):
            numpy.asarray(array)[0] = 9
        with self.assertRaises(BufferError):
            loam.Block.wrap(source).__dlpack__()
        self.assertEqual(source, b"\1\2\3\4")

    def test_strides_are_kept(self):
        source = numpy.arange(24, dtype="i4").reshape(4, 6)
        for seen in (source.T, source[::-1, ::2], source[1:, 3], source[:0], source[2, ::-3]):
            array = loam.Array.from_buffer(seen)
            self.assertEqual((array.shape, array.tolist()), (seen.shape, seen.tolist()))
            self.assertTrue(not seen.size or array.strides == seen.strides)
        loam.Array.from_buffer(source.T)[0, 1] = -1
        self.assertEqual(source[1, 0], -1)
        with self.assertRaisesRegex(BufferError, "do not follow one another"):
            loam.Block.wrap(source[:, 1:])

    def test_a_block_has_the_bytes_in_the_order_of_the_memory(self):
        source = numpy.asfortranarray([[1.0, 2, 3], [4, 5, 6]])
        block = loam.Block.wrap(source)
        self.assertEqual((block.address, len(block)), (source.ctypes.data, source.nbytes))
        self.assertEqual(numpy.frombuffer(block).tolist(), [1, 4, 2, 5, 3, 6])

    def test_a_type_can_be_given(self):
        source = numpy.arange(4.0).tobytes()
        array = loam.Array.from_buffer(source, "2 * {x: float64, y: float64}")
        self.assertEqual(array.tolist(), [{"x": 0, "y": 1}, {"x": 2, "y": 3}])
        with self.assertRaisesRegex(ValueError, "the block has 32 bytes"):
            loam.Array.from_buffer(source, "5 * float64")
        with self.assertRaises(BufferError):
            loam.Array.from_buffer(numpy.eye(3)[:, 1], "3 * float64")

    def test_a_type_gets_its_one_open_size_from_the_bytes(self):
        source = numpy.arange(6, dtype="i8")
        for text, made in (("fixed * int64", "6 * int64"), ("fixed * 3 * int64", "2 * 3 * int64"),
                           ("fixed * {x: int64, y: int64}", "3 * {x: int64, y: int64}"),
                           ("{'fixed * x': int64}", "{'fixed * x': int64}")):
            array = loam.Array.from_buffer(source, text)
            self.assertEqual((array.type, array.address), (made, source.ctypes.data))
        self.assertEqual(loam.Array.from_buffer(b"", "fixed * int64").type, "0 * int64")
        with self.assertRaisesRegex(BufferError, "has 48 bytes, no multiple of 32"):
            loam.Array.from_buffer(source, "fixed * 4 * int64")
        for text in ("2 * fixed * int64", "fixed * fixed * int64", "fixed * 0 * int8"):
            with self.assertRaisesRegex(loam.InvalidError, "a size to one `fixed .`, at the front"):
                loam.Array.from_buffer(source, text)

    @unittest.skipUnless(_testbuffer, "this Python has no _testbuffer")
    def test_a_format_may_have_dimensions_of_its_own(self):
        source = _testbuffer.ndarray([(1, 2, 3), (4, 5, 6), (7, 8, 9)], shape=[3], format="3d")
        array = loam.Array.from_buffer(source)
        self.assertEqual(array.type, "3 * 3 * float64")
        self.assertEqual(array.strides, (24, 8))
        self.assertEqual(array.tolist(), [[1, 2, 3], [4, 5, 6], [7, 8, 9]])
        self.assertEqual(loam.Array.from_buffer(source[::-2]).tolist(), [[7, 8, 9], [1, 2, 3]])

    @unittest.skipUnless(_testbuffer, "this Python has no _testbuffer")
    def test_too_many_dimensions_are_refused(self):
        for dimensions in 62, 63, 64:
            with self.subTest(dimensions=dimensions):
                source = _testbuffer.ndarray([(1, 2)], shape=[1] * dimensions, format="2h")
                if dimensions == 62:
                    self.assertEqual(loam.Array.from_buffer(source).shape, (1,) * 62 + (2,))
                else:
                    with self.assertRaisesRegex(ValueError, "levels deep"):
                        loam.Array.from_buffer(source)

    def test_the_memory_lives_as_long_as_it_is_shown(self):
        source = numpy.ones(5)
        gone = weakref.ref(source)
        part = loam.Array.from_buffer(source)[1:]
        del source
        gc.collect()
        self.assertEqual((gone() is None, part.tolist()), (False, [1] * 4))
        del part
        self.assertIsNone(gone())
        for use in (loam.Array.from_buffer, loam.Block.wrap):
            with self.assertRaises(TypeError):
                use(7)

    def test_what_loam_cannot_express_says_so(self):
        unaligned = numpy.frombuffer(bytes(25), "u1")[1:].view("i8")
        short = [("x", "i4"), ("y", "i2")]
        for source, words in ((numpy.arange(3, dtype=">i4"), "big-endian"),
                              (numpy.array(["a"]), "kind 'w'"),
                              (arrays.array("u", "a"), "kind 'w'"),
                              (numpy.array([None]), "kind 'O'"),
                              (numpy.zeros(2, "g"), "kind 'g'"),
                              (numpy.zeros(2, "V3"), "3 bytes"),
                              (numpy.zeros(2, [("x", "i1"), ("y", "f8")]), "alignment"),
                              (numpy.zeros(2, short), "6 bytes do not end at .* alignment, 4"),
                              (numpy.zeros(1, short), "6 bytes do not end at .* alignment, 4"),
                              (unaligned, "not all elements would stand at multiples of 8")):
            with self.assertRaisesRegex(BufferError, words):
                loam.Array.from_buffer(source)


    def test_ctypes_structs_with_pad_bytes_come_in(self):
        for kind in Padded, around(Padded), members(Padded), around(members(Padded)):
            source = (kind * 2)()
            memory = memoryview(source).cast("B")
            memory[:] = bytes(i % 100 for i in range(len(memory)))
            array = loam.Array.from_buffer(source)
            with self.subTest(type=array.type):
                self.assertEqual((array.strides, array.address),
                                 ((ctypes.sizeof(kind),), ctypes.addressof(source)))
                self.assertEqual([self.values_of(one) for one in source], array.tolist())

    def values_of(self, one):
        if isinstance(one, ctypes.Structure):
            return {name: self.values_of(getattr(one, name)) for name, _ in one._fields_}
        if isinstance(one, ctypes.Array):
            return [self.values_of(item) for item in one]
        return list(one) if isinstance(one, bytes) else one

    def test_ctypes_formats_that_leave_fields_out_are_refused(self):
        hidden = (Triple, Bits, Either, Packed, around(Triple), around(Either), around(Packed),
                  members(Bits))
        for kind in hidden:
            for source in (kind * 3)(), kind(), memoryview((kind * 3)()), memoryview(kind()):
                with self.subTest(kind=kind, source=source):
                    with self.assertRaisesRegex(BufferError, "ctypes does not say"):
                        loam.Array.from_buffer(source)
        array = loam.Array.from_buffer((Triple * 2)(), "2 * {a: int32, b: int32, c: int32}")
        self.assertEqual(array.shape, (2,))
        self.assertEqual(loam.Array.from_buffer((around(Pair) * 2)()).tolist(),
                         [{"inner": {"a": 0, "b": 0}, "last": 0}] * 2)


SCALARS = ("i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16", "?", "S3")


def random_dtype(depth):
    """Returns a random scalar type, or an aligned struct of such types and of dimensions."""
    if not depth or random.random() < 0.6:
        return random.choice(SCALARS)
    fields = []
    for i in range(random.randint(1, 4)):
        shape = tuple(random.randint(1, 3) for _ in range(random.randint(0, 2)))
        fields.append((f"f{i}", random_dtype(depth - 1), shape))
    return numpy.dtype(fields, align=True)


def places(dtype, base=0):
    """Returns the offset, shape and scalar type of each field, through all inner structs."""
    if dtype.names is None:
        return [(base, dtype.str)]
    found = []
    for name in dtype.names:
        kind, offset = dtype.fields[name][:2]
        found += [(base + offset, kind.shape)] + places(kind.base, base + offset)
    return found


class Structs(Case):
    def test_all_aligned_structs_of_numpy_come_in_and_go_back(self):
        random.seed(1)
        for _ in range(500):
            kind = numpy.dtype(random_dtype(3))
            source = numpy.zeros(3, kind)
            with self.subTest(dtype=kind):
                array = loam.Array.from_buffer(source)
                seen = numpy.asarray(array)
                self.assertEqual(seen.dtype.itemsize, kind.itemsize)
                self.assertEqual(places(seen.dtype), places(kind))
                self.assertEqual((seen.ctypes.data, array.strides),
                                 (source.ctypes.data, source.strides))

    def test_any_format_is_read_or_refused(self):
        random.seed(2)
        for _ in range(20000):
            text = "".join(random.choice("T{}:a()23xidZfs=@<>^ ,") for _ in range(12))
            try:
                formats.datashape(text, random.randint(0, 9))
            except BufferError:
                pass

    TYPE = "3 * {a: int8, x: float64, p: {r: float32, n: 2 * int16}, z: complex64, ok: bool}"
    VALUE = [{"a": i, "x": i / 2, "p": {"r": 1.5, "n": [i, -i]}, "z": 1j, "ok": i > 1}
             for i in range(3)]

    def test_numpy_sees_structs_where_they_stand(self):
        array = loam.Array(self.TYPE, self.VALUE)
        seen = numpy.asarray(array)
        self.assertEqual((seen.ctypes.data, seen.shape), (array.address, (3,)))
        self.assertEqual(seen.dtype.names, ("a", "x", "p", "z", "ok"))
        self.assertEqual([seen.dtype.fields[name][1] for name in seen.dtype.names],
                         [0, 8, 16, 24, 32])
        self.assertEqual(seen["p"]["n"].tolist(), [[0, 0], [1, -1], [2, -2]])
        self.assertEqual(seen.dtype.itemsize, 40)
        seen["x"][1] = -7
        self.assertEqual(array[1, "x"], -7)

    def test_the_interface_has_the_structs_too(self):
        class Only:
            def __init__(self, array):
                self.__array_interface__ = array.__array_interface__
                self.array = array

        array = loam.Array(self.TYPE, self.VALUE)
        seen = numpy.asarray(Only(array))
        self.assertEqual((seen.dtype, seen.dtype.itemsize), (numpy.asarray(array).dtype, 40))
        self.assertEqual(seen["p"]["n"].tolist(), [[0, 0], [1, -1], [2, -2]])
        plain = loam.Array("2 * {n: int32, v: 2 * int16}").__array_interface__
        self.assertEqual(plain["descr"], [("n", "<i4"), ("v", "<i2", (2,))])

    def test_moments_in_padded_structs_are_the_only_fields(self):
        moment = datetime.datetime(2020, 1, 2, 3, 4, 5, 6)
        for text, fields in {
            "{a: int8, t: datetime}": [("a", "i1"), ("t", "M8[us]")],
            "{f1: int8, t: datetime}": [("f1", "i1"), ("t", "M8[us]")],
            "{a: int8, t: timedelta['s'], b: int16}":
                [("a", "i1"), ("t", "m8[s]"), ("b", "i2")],
            "{t: datetime, n: int32}": [("t", "M8[us]"), ("n", "i4")],
            "{a: int8, p: {b: int8, t: datetime}, v: 3 * datetime, c: int8}":
                [("a", "i1"), ("p", numpy.dtype([("b", "i1"), ("t", "M8[us]")], align=True)),
                 ("v", "M8[us]", (3,)), ("c", "i1")],
        }.items():
            with self.subTest(type=text):
                array = loam.Array("2 * " + text)
                seen = numpy.asarray(array)
                self.assertEqual(seen.dtype, numpy.dtype(fields, align=True))
                self.assertEqual((seen.ctypes.data, seen.strides), (array.address, array.strides))
        array = loam.Array("2 * {a: int8, t: datetime}", [(1, moment), (2, moment)])
        seen = numpy.asarray(array[::-1])
        self.assertEqual(seen.tolist(), [(2, moment), (1, moment)])
        seen["a"][0] = 7
        self.assertEqual(array[1, "a"], 7)

    def test_they_come_back(self):
        array = loam.Array(self.TYPE, self.VALUE)
        back = loam.Array.from_buffer(numpy.asarray(array))
        self.assertEqual((back.type, back.tolist()), (array.type, array.tolist()))
        self.assertEqual(back.address, array.address)

    def test_offsets_are_kept_both_ways(self):
        kind = numpy.dtype({"names": ["x", "y"], "formats": ["i4", "i4"], "offsets": [4, 12],
                            "itemsize": 16})
        source = numpy.array([(1, 2), (3, 4)], kind)
        array = loam.Array.from_buffer(source)
        self.assertEqual((array.type, array.tolist()),
                         ("2 * {x: int32, y: int32}", [{"x": 1, "y": 2}, {"x": 3, "y": 4}]))
        seen = numpy.asarray(array)
        self.assertEqual((seen.dtype.fields["y"][1], seen["y"].tolist()), (12, [2, 4]))
        part = loam.Array(self.TYPE, self.VALUE)[["x", "ok"]]
        self.assertEqual(numpy.asarray(part)["ok"].tolist(), [False, False, True])
        with self.assertRaisesRegex(BufferError, "another order"):
            memoryview(loam.Array(self.TYPE, self.VALUE)[["ok", "x"]])

    def test_aligned_dtypes_of_numpy_come_in(self):
        kind = numpy.dtype([("b", "i1"), ("d", "f8", (2, 2)), ("n", [("h", "u2")])], align=True)
        source = numpy.zeros(2, kind)
        source["d"][1] = [[1, 2], [3, 4]]
        array = loam.Array.from_buffer(source)
        self.assertEqual(array.type, "2 * {b: int8, d: 2 * 2 * float64, n: {h: uint16}}")
        self.assertEqual(array[1, "d"].tolist(), [[1, 2], [3, 4]])


    def test_inner_structs_that_are_packed_are_refused_unless_c_has_their_layout(self):
        packed = numpy.dtype([("n", "<u8"), ("flags", "?", (6,))])    # 14 bytes; in C 16
        short = numpy.dtype([("n", "<i2"), ("text", "S3")])           # 5 bytes; in C 6
        for fields in ([("x", "u8"), ("all", packed, (3,))],
                       [("all", packed, (3,)), ("x", "u8")],
                       [("x", "u8"), ("deep", [("all", packed, (3,))])],
                       [("x", "u8"), ("deep", [("one", short), ("text", "S9")])],
                       [("one", short), ("text", "S9"), ("x", "u8")]):
            source = numpy.zeros(2, numpy.dtype(fields, align=True))
            with self.subTest(fields=fields):
                for given in (source, memoryview(source), source[0]):
                    with self.assertRaises(BufferError):
                        loam.Array.from_buffer(given)
        source = numpy.zeros(2, numpy.dtype([("x", "u8"), ("one", packed)], align=True))
        source["one"]["flags"] = True
        self.assertEqual(loam.Array.from_buffer(source)[1, "one", "flags"].tolist(), [True] * 6)

    def test_fixed_strings_are_numpys(self):
        array = loam.Array("2 * {name: string[5], n: int32}", [("größ"[:3], 1), ("abcde", 2)])
        seen = numpy.asarray(array)
        self.assertEqual((seen.dtype["name"], seen["name"].tolist()),
                         (numpy.dtype("S5"), ["grö".encode(), b"abcde"]))
        self.assertEqual(numpy.asarray(loam.Array("1 * string[3]", ["a"])).tolist(), [b"a"])
        back = loam.Array.from_buffer(numpy.array([b"x", b"yz"]))
        self.assertEqual((back.type, back.tolist()), ("2 * string[2]", ["x", "yz"]))
        array[0, "name"] = ""
        self.assertEqual((array[0, "name"], array[:, "name"].tolist()), ("", ["", "abcde"]))
        with self.assertRaisesRegex(ValueError, "text of 6 bytes: string.5. has no room"):
            array[0, "name"] = "abcdef"
        with self.assertRaises(TypeError):
            array[0, "name"] = b"abc"


class Arrow(Case):
    def test_arrays_go_through_arrow_and_come_back(self):
        array = loam.Array("3 * int32", [1, 2, 3])
        back = loam.Array.from_arrow(array)
        self.assertEqual((back.type, back.tolist(), back.readonly, back.address),
                         ("3 * int32", [1, 2, 3], True, array.address))
        text = loam.Array("2 * var * string", [["a", "bc"], []])
        with self.assertRaises(loam.StateError):
            text.to_arrow()
        back = loam.Array.from_arrow(text.to_arrow(copy=True))
        del text
        gc.collect()
        self.assertEqual(back.tolist(), [["a", "bc"], []])

    def test_capsules_without_a_consumer_end(self):
        array = loam.Array("3 * int32", [1, 2, 3])
        before = array.refcount
        capsules = array.__arrow_c_array__()
        del capsules
        self.assertEqual(array.refcount, before)
        for wrong in (7, (1, 2), array.__arrow_c_array__()[::-1]):
            with self.assertRaises((TypeError, AttributeError, ValueError)):
                loam.Array.from_arrow(wrong)

    def test_an_exporter_that_returns_no_tuple_is_refused(self):
        class Exporter:
            def __init__(self, returned):
                self.returned = returned

            def __arrow_c_array__(self):
                return self.returned
        for wrong in (None, 7, list(loam.Array("3 * int32").to_arrow())):
            words = f"a tuple of two capsules, not {type(wrong).__name__}"
            with self.assertRaisesRegex(TypeError, words):
                loam.Array.from_arrow(Exporter(wrong))


class Whose(Case):
    def test_every_array_has_an_owner(self):
        for text in ("3 * {x: int8}", "2 * var * int8", "string", "pointer[int8]", "2 * ?int32",
                     "float64", "1000 * bytes"):
            array = loam.Array(text, tag="exchange.owned")
            self.assertEqual(loam.owner(array).tag, "exchange.owned", text)

    def test_what_comes_back_gives_its_object(self):
        source = numpy.arange(6.0)
        array = loam.Array.from_dlpack(source)
        self.assertIs(array.base, source)
        self.assertIs(array[1:].base, array)
        self.assertIs(array[1:][1:].base, array)
        self.assertIsNone(loam.Array("float64").base)
        block = loam.Block(10)
        self.assertEqual((block.base, block[1:].base is block), (None, True))
        self.assertIs(loam.Block.wrap(source).base, source)
        self.assertIs(memoryview(array).obj, array)

    def test_references_are_counted(self):
        array = loam.Array("3 * float64")
        self.assertEqual(array.refcount, 1)
        view = array[1:]
        self.assertEqual((array.refcount, view.refcount), (2, 2))
        del view
        self.assertEqual(array.refcount, 1)

    def test_arrays_of_any_size_count_those_who_hold_the_memory(self):
        source = numpy.zeros(100000)
        for array in (loam.Array("100 * float64"), loam.Array("100000 * float64"),
                      loam.Array.from_buffer(source)):
            with self.subTest(type=array.type):
                views = [array[i:] for i in range(1, 6)]
                self.assertEqual((array.refcount, views[4].refcount), (6, 6))
                uses = [memoryview(array), array.__dlpack__(), array.__arrow_c_array__()[1]]
                self.assertEqual(array.refcount, 9)
                seen = numpy.asarray(views[0])
                self.assertEqual(views[0].refcount, views[1].refcount + 1)
                del uses, seen, views
                self.assertEqual(array.refcount, 1)


if __name__ == "__main__":
    main()

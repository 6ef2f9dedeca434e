"""test_array - loam.Array: types, views, rows that grow, and how real NumPy uses it."""

import copy
import ctypes
import datetime
import decimal
import gc
import pickle
import struct
import sys
import threading
import tracemalloc
import warnings
from unittest import mock

import numpy

import loam
from loam import decimals

from _support import POLICY, Case, main

TYPE = "3 * var * {x: float64, y: ?int32}"
VALUE = [[{"x": 1.5, "y": 2}, {"x": 3.0, "y": None}], [], [{"x": 7.0, "y": -1}]]


def live():
    gc.collect()
    return sum(row["live_blocks"] for row in loam.stats("tag")
               if row["tag"].startswith(("array.", "loam.")))


class Values(Case):
    def test_what_is_assigned_is_what_it_holds(self):
        for text, value in [
                (TYPE, VALUE), ("float64", 2.5), ("2 * bool", [True, False]), ("string", "größe"),
                ("{a: bytes, b: ?string, c: complex128}", {"a": b"\0\xff", "b": None, "c": 1 - 2j}),
                ("pointer[2 * pointer[int8]]", [1, -2]), ("0 * int8", []),
                ("2 * var * var * string", [[["a"], []], []]), ("1 * ?uint8", [None]),
                ("{h: float16, f: float32, c: complex64}", {"h": 0.5, "f": 0.25, "c": 1j}),
                ("{'a b': 3 * int16}", {"a b": [1, 2, 3]})]:
            with self.subTest(type=text):
                array = loam.Array(text, value)
                self.assertEqual((array.type, array.tolist()), (text, value))

    def test_rows_that_need_not_grow_take_less_memory(self):
        value = [["nine byte"] * 10 for _ in range(100)]
        arrays = [loam.Array("100 * var * string", value, f"array.{name}", resizable=name == "grow")
                  for name in ("grow", "stay")]
        taken = {row["tag"]: row["live_bytes"] for row in loam.stats("tag")}
        self.assertLess(taken["array.stay"], taken["array.grow"] * 3 // 4)
        for array in arrays:
            self.assertEqual(array.tolist(), value)
        with self.assertRaisesRegex(loam.StateError, "only the one that was made last"):
            arrays[1][0] = ["a"] * 100
        arrays[1][0] = ["shorter"]
        self.assertEqual(arrays[1][0].tolist(), ["shorter"])
        arrays[1][99].append("x")
        self.assertEqual(arrays[1][99].tolist(), ["nine byte"] * 10 + ["x"])

    def test_a_dimension_of_any_size_gets_the_values(self):
        for text, value, made in [
                ("fixed * float64", [1, 2, 3], "3 * float64"),
                ("fixed * fixed * int8", [[1, 2], [3, 4], [5, 6]], "3 * 2 * int8"),
                ("fixed * 2 * var * int8", [[[], [1]]], "1 * 2 * var * int8"),
                ("fixed * fixed * int8", [], "0 * 0 * int8"),
                ("fixed * string", ["a"], "1 * string"),
                ("var * fixed * int32", [[1, 2], [3, 4]], "var * 2 * int32"),
                ("fixed * var * fixed * int32", [[], [[1, 2]]], "2 * var * 2 * int32"),
                ("var * fixed * var * fixed * int8", [[[], []], [[[1]], []]],
                 "var * 2 * var * 1 * int8"),
                ("var * fixed * int32", [], "var * 0 * int32"),
                ("pointer[fixed * int32]", [1, 2], "pointer[2 * int32]"),
                ("2 * pointer[fixed * int32]", [None, [1, 2]], "2 * pointer[2 * int32]")]:
            array = loam.Array(text, value)
            self.assertEqual((array.type, array.tolist()), (made, value))
        for value in ([], [None], [...]):
            with self.assertRaisesRegex(loam.InvalidError, "`fixed .` comes from a value"):
                loam.Array("fixed * float64", *value)
        for text in "{x: fixed * int32}", "fixed * {x: fixed * int32}":
            with self.assertRaisesRegex(loam.InvalidError, "in a struct gets no size: write a"):
                loam.Array(text, [([1, 2],)])
        for wrong in (7, [[1], 2], [[1, 2], [3]]):
            with self.assertRaises((TypeError, ValueError)):
                loam.Array("fixed * fixed * int8", wrong)

    def test_none_is_the_missing_value_of_an_option(self):
        for text in ("?int32", "?{x: int32}", "?var * int32", "?string[3]", "?date", "?2 * bool"):
            with self.subTest(type=text):
                self.assertIsNone(loam.Array(text, None).tolist())
                self.assertIsNone(copy.copy(loam.Array(text, None)).tolist())
        self.assertEqual(loam.Array("?int32").tolist(), 0)
        self.assertEqual(loam.Array("?{x: int32}", ..., "array.tag").tolist(), {"x": 0})
        self.assertEqual(loam.Array("2 * int32", None).tolist(), [0, 0])
        self.assertEqual(copy.copy(loam.Array("?int32", 5)).tolist(), 5)

    def test_a_tuple_is_a_struct_with_numbers_as_names(self):
        array = loam.Array("2 * (int32, ?float64, (intptr, string))", [(1, None, (2, "a"))] * 2)
        self.assertEqual(array.type,
                         "2 * {'0': int32, '1': ?float64, '2': {'0': int64, '1': string}}")
        self.assertEqual(array[1].tolist(), {"0": 1, "1": None, "2": {"0": 2, "1": "a"}})
        self.assertEqual(array[:, "2", "1"].tolist(), ["a", "a"])

    def test_dates_and_times_are_pythons(self):
        day, time = datetime.date(2024, 2, 29), datetime.time(23, 59, 59, 999999)
        moment = datetime.datetime(1969, 12, 31, 23, 59, 59, 1)
        for text, values in [("date", [day, datetime.date.min, datetime.date.max]),
                             ("time", [time, datetime.time()]),
                             ("datetime", [moment, datetime.datetime.min, datetime.datetime.max]),
                             ("?date", [day, None]),
                             ("{d: date, t: ?time}", [{"d": day, "t": time}])]:
            array = loam.Array(f"{len(values)} * {text}", values)
            self.assertEqual(array.tolist(), values)
            self.assertEqual(pickle.loads(pickle.dumps(array)).tolist(), values)
        array = loam.Array("2 * datetime", [moment, datetime.datetime(2024, 2, 29)])
        seen = numpy.asarray(array)
        self.assertEqual((seen.dtype, seen.tolist()), (numpy.dtype("M8[us]"), array.tolist()))
        self.assertEqual(seen.ctypes.data, array.address)
        for text in ("1 * date", "1 * {d: date, t: time}"):
            with self.assertRaisesRegex(TypeError, "date: .* dates of 8 bytes, and loam's have 4"):
                numpy.asarray(loam.Array(text))
        back = loam.Array.from_arrow(loam.Array("1 * {d: date, t: time, m: datetime}",
                                                [(day, time, moment)])["m"], copy=True)
        self.assertEqual((back.type, back.tolist()), ("1 * datetime", [moment]))
        with self.assertRaises(BufferError):
            memoryview(array)
        aware = moment.replace(tzinfo=datetime.timezone.utc)
        for text, wrong in [("date", moment), ("date", 5), ("datetime", day), ("datetime", aware),
                            ("time", time.replace(tzinfo=datetime.timezone.utc)), ("time", "now")]:
            with self.assertRaises(TypeError):
                loam.Array(text, wrong)
        for text, wrong in [("datetime", aware), ("datetime['ns']", aware),
                            ("time", aware.timetz())]:
            with self.assertRaisesRegex(TypeError, "has no time zone"):
                loam.Array(text, wrong)

    def test_datetimes_have_units(self):
        moment = datetime.datetime(1969, 12, 31, 23, 59, 59)
        for unit, value in [("s", moment), ("ms", moment.replace(microsecond=1000)),
                            ("us", moment.replace(microsecond=1)), ("ns", -999999999)]:
            array = loam.Array(f"2 * datetime['{unit}']", [value, value])
            self.assertEqual(array.tolist(), [value, value])
            seen = numpy.asarray(array)
            self.assertEqual((seen.dtype, seen.tolist()),
                             (numpy.dtype(f"M8[{unit}]"), [value, value]))
            back = loam.Array.from_arrow(array)
            self.assertEqual((back.type, back.tolist()), (array.type, [value, value]))
        array = loam.Array("datetime['ns']", moment)
        self.assertEqual(array.tolist(), -10**9)
        self.assertEqual(loam.Array("1 * ?datetime['ns']", [None]).tolist(), [None])
        for text, wrong in [("datetime['s']", moment.replace(microsecond=1)),
                            ("datetime['ms']", moment.replace(microsecond=1)),
                            ("datetime['ns']", datetime.datetime.max)]:
            with self.assertRaisesRegex(ValueError, "cannot hold it"):
                loam.Array(text, wrong)
        with self.assertRaises(TypeError):
            loam.Array("datetime['s']", 5)

    def test_timedeltas_are_pythons(self):
        long = datetime.timedelta(days=-1, seconds=7)
        for unit, value in [("s", long), ("ms", long + datetime.timedelta(milliseconds=1)),
                            ("us", long + datetime.timedelta(microseconds=1)), ("ns", -1)]:
            array = loam.Array(f"2 * timedelta['{unit}']", [value, value])
            self.assertEqual(array.tolist(), [value, value])
            seen = numpy.asarray(array)
            self.assertEqual((seen.dtype, seen.tolist()),
                             (numpy.dtype(f"m8[{unit}]"), [value, value]))
            self.assertEqual(seen.ctypes.data, array.address)
            back = loam.Array.from_arrow(array)
            self.assertEqual((back.type, back.tolist()), (array.type, [value, value]))
        self.assertEqual(loam.Array("timedelta['ns']", long).tolist(), -86393 * 10**9)
        self.assertEqual(loam.Array("2 * ?timedelta", [None, long]).tolist(), [None, long])
        with self.assertRaisesRegex(ValueError, "cannot hold it"):
            loam.Array("timedelta['s']", datetime.timedelta(milliseconds=1))
        with self.assertRaisesRegex(OverflowError, "cannot hold it"):
            loam.Array("timedelta", datetime.timedelta.max)
        for wrong in (5, datetime.time(), datetime.datetime(2024, 2, 29)):
            with self.assertRaisesRegex(TypeError, "takes a timedelta"):
                loam.Array("timedelta", wrong)

    def test_times_of_subclasses_are_exact_or_refused(self):
        class Delta(datetime.timedelta):  # like pandas' Timedelta: its attributes are computed
            days, seconds, microseconds, nanoseconds = 1, 2, 3, 4

        class Moment(datetime.datetime):
            def __sub__(self, other):
                return Delta()

        class Never(datetime.datetime):  # like pandas' NaT
            def __sub__(self, other):
                return self
        exact = (86402 * 10**6 + 3) * 1000 + 4
        self.assertEqual(loam.Array("timedelta['ns']", Delta()).tolist(), exact)
        self.assertEqual(loam.Array("datetime['ns']", Moment(2024, 1, 1)).tolist(), exact)
        for text, wrong in [("timedelta", Delta()), ("datetime", Moment(2024, 1, 1))]:
            with self.assertRaisesRegex(ValueError, f"{text} cannot hold it"):
                loam.Array(text, wrong)
        with self.assertRaisesRegex(TypeError, "datetime takes a datetime, not Never"):
            loam.Array("datetime", Never(2024, 1, 1))

    def test_decimals_are_pythons(self):
        values = [decimal.Decimal("-12.50"), decimal.Decimal("999.99"), decimal.Decimal("0.00")]
        array = loam.Array("3 * decimal[5, 2]", ["-12.5", values[1], 0])
        self.assertEqual([str(value) for value in array.tolist()], ["-12.50", "999.99", "0.00"])
        self.assertIn("Decimal('-12.50')", repr(array))
        self.assertEqual((array[1], array[:2].tolist()), (values[1], values[:2]))
        array[1] = "1e2"
        self.assertEqual(str(array[1]), "100.00")
        self.assertEqual(pickle.loads(pickle.dumps(array)).tolist(), array.tolist())
        back = loam.Array.from_arrow(array)
        self.assertEqual((back.type, back.tolist()), (array.type, array.tolist()))
        least = decimal.Decimal("-" + "9" * 38)
        self.assertEqual(loam.Array("2 * ?decimal[38]", [least, None]).tolist(), [least, None])
        for wrong, error, words in [(1.5, TypeError, "not float"), (True, TypeError, "not bool"),
                                    ("1.005", ValueError, "digits behind the point"),
                                    ("1." + "1" * 99, ValueError, "digits behind the point"),
                                    ("1000", OverflowError, "digits before the point"),
                                    ("NaN", ValueError, "finite"), ("x", ValueError, "a number"),
                                    (None, TypeError, "not NoneType")]:
            with self.assertRaisesRegex(error, words):
                array[0] = wrong
        self.assertEqual(array[0], values[0])
        for use in (numpy.asarray, memoryview, numpy.from_dlpack):
            with self.assertRaises((TypeError, BufferError, ValueError)) as caught:
                use(array)
            self.assertIn("decimal", str(caught.exception))

    def test_categories_are_text(self):
        text = "4 * ?categorical[['low', 'mid', 'größe'], ordered=True]"
        values = ["größe", None, "low", "mid"]
        array = loam.Array(text, values)
        self.assertEqual((array.type, array.tolist(), array[0]), (text, values, "größe"))
        self.assertIn("['größe', None, 'low', 'mid']", repr(array))
        array[1] = "mid"
        array[0] = None
        self.assertEqual(array.tolist(), [None, "mid", "low", "mid"])
        self.assertEqual(pickle.loads(pickle.dumps(array)).tolist(), array.tolist())
        for wrong, error, words in [(1, TypeError, "takes a str, not int"),
                                    ("high", ValueError, 'text "high": .* has no such category')]:
            with self.assertRaisesRegex(error, words):
                array[2] = wrong
        with self.assertRaisesRegex(TypeError, "takes a str, not NoneType"):
            loam.Array("1 * categorical[['a']]", [None])
        names = [str(i) for i in range(300)]
        many = loam.Array(f"3 * categorical[{names}]", ["299", "0", "256"])
        self.assertEqual((many.tolist(), many.nbytes), (["299", "0", "256"], 6))

    def test_codes_of_categories_come_from_numpy(self):
        codes = numpy.array([1, 0, 7, 255], "u1")
        array = loam.Array.from_buffer(codes, "4 * categorical[['no', 'yes']]")
        self.assertEqual((array.tolist(), array.address), (["yes", "no", 7, 255],
                                                           codes.ctypes.data))
        array[2] = "yes"
        self.assertEqual(codes.tolist(), [1, 0, 1, 255])
        array = loam.Array.from_buffer(codes, "4 * ?categorical[['no', 'yes']]")
        self.assertEqual(array.tolist(), ["yes", "no", "yes", None])

    def test_categories_go_to_arrow_and_not_to_numpy(self):
        text = "3 * categorical[['no', 'yes'], ordered=True]"
        array = loam.Array(text, ["no", "yes", "no"])
        back = loam.Array.from_arrow(array)
        self.assertEqual((back.type, back.tolist(), back.address),
                         (text, ["no", "yes", "no"], array.address))
        rows = loam.Array("{a: 2 * ?categorical[['x']], b: 2 * var * categorical[['y', 'z']]}",
                          {"a": [None, "x"], "b": [["z", "y"], []]})
        back = loam.Array.from_arrow(rows.to_arrow(copy=True), copy=True)
        del rows
        gc.collect()
        self.assertEqual(back.tolist(), {"a": [None, "x"], "b": [["z", "y"], []]})
        for use in (numpy.asarray, memoryview, numpy.from_dlpack):
            with self.assertRaises((TypeError, BufferError, ValueError)) as caught:
                use(array)
            self.assertIn("categorical", str(caught.exception))
        for use in (array, loam.Array("1 * ?categorical[['no']]")):
            with self.assertRaisesRegex(BufferError, "Arrow has categories: to_arrow"):
                memoryview(use)

    def test_structs_and_rows_can_be_missing(self):
        text = "3 * ?{x: int32, row: ?var * ?int16, pair: ?2 * float64, name: ?string[4]}"
        array = loam.Array(text, [{"x": 1, "row": [1, None], "pair": (0.5, 2), "name": "four"},
                                  None, {"x": 3, "row": None, "pair": None, "name": None}])
        expected = [{"x": 1, "row": [1, None], "pair": [0.5, 2], "name": "four"}, None,
                    {"x": 3, "row": None, "pair": None, "name": None}]
        self.assertEqual(array.tolist(), expected)
        self.assertEqual(pickle.loads(pickle.dumps(array)).tolist(), expected)
        self.assertIsNone(array[1])
        self.assertEqual((array[0]["x"], array[0, "row"].tolist()), (1, [1, None]))
        self.assertIsNone(array[2]["row"])
        self.assertEqual(numpy.asarray(array[0]["pair"]).tolist(), [0.5, 2])
        self.assertIn("None", repr(array))
        array[1] = {"x": 2}
        array[0] = None
        self.assertEqual(array[1].tolist(), {"x": 2, "row": [], "pair": [0, 0], "name": ""})
        self.assertIsNone(array[0])
        array[1, "row"] = [5]
        view = array[1]["row"][:]
        with self.assertRaises(BufferError):
            array[1] = None  # this would free memory that the view shows
        del view
        array[1] = None
        self.assertEqual(array.tolist()[:2], [None, None])
        with self.assertRaises(loam.StateError):
            array[0, "x"]
        with self.assertRaisesRegex(KeyError, "take one of them first"):
            array["x"]
        with self.assertRaises(TypeError):
            numpy.asarray(array)
        rows = loam.Array("3 * ?var * int16", [[1, 2], None, []])
        back = loam.Array.from_arrow(rows, copy=True)
        self.assertEqual((back.type, back.tolist()), (rows.type, [[1, 2], None, []]))

    def test_integers_have_ends(self):
        for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
            bits = int(kind.strip("uint"))
            least = 0 if kind[0] == "u" else -1 << bits - 1
            most = least + (1 << bits) - 1
            array = loam.Array(f"2 * {kind}", [least, most])
            self.assertEqual(array.tolist(), [least, most])
            for beyond in (least - 1, most + 1):
                with self.assertRaises(OverflowError):
                    array[0] = beyond
        with self.assertRaisesRegex(OverflowError, "300: int8 is from -128 to 127"):
            loam.Array("int8", 300)
        for kind, most in (("int8", 127), ("uint64", 2**64 - 1), ("decimal[8, 2]", 999999)):
            with self.assertRaisesRegex(OverflowError, r"(10{59}\.\.\.|a large int)"):
                loam.Array(kind, 10**5000)
        with self.assertRaisesRegex(OverflowError, f"-1: uint64 is from 0 to {2**64 - 1}"):
            loam.Array("uint64", -1)

    def test_a_value_that_would_be_missing_is_refused_and_changes_nothing(self):
        array = loam.Array("2 * ?int8", [1, 2])
        with self.assertRaisesRegex(ValueError, "-128 stands for a missing .int8"):
            array[0] = -128
        self.assertEqual(array.tolist(), [1, 2])

    def test_floats_have_ends(self):
        for kind, value in (("float16", 1e5), ("float32", -1e39), ("complex64", 1e39j)):
            with self.subTest(kind), self.assertRaises(OverflowError):
                loam.Array(kind, value)
            self.assertEqual(loam.Array(kind, float("inf")).tolist(), float("inf"))
        with self.assertRaisesRegex(OverflowError, "1e.39: float32 has no number as large"):
            loam.Array("float32", 1e39)
        with self.assertRaisesRegex(OverflowError, "65520: float16 has no number as large"):
            loam.Array("float16", 65520)
        self.assertEqual(loam.Array("2 * float16", [65519, -65519]).tolist(), [65504, -65504])
        self.assertEqual(loam.Array("2 * float32", [float("inf"), 2.0**127]).tolist(),
                         [float("inf"), 2.0**127])

    def test_a_bool_is_no_text_and_not_none(self):
        self.assertEqual(loam.Array("3 * bool", [True, 0, numpy.True_]).tolist(),
                         [True, False, True])
        for wrong in (None, "false", b"0"):
            with self.assertRaisesRegex(TypeError, "bool takes a bool, not"):
                loam.Array("1 * bool", [wrong])

    def test_what_does_not_fit_says_so(self):
        array = loam.Array(TYPE, VALUE)
        for key, value, error, words in [
                (0, 5, TypeError, "takes a sequence, not int"),
                ((0, 0), 5, TypeError, "takes a dict or a tuple, not int"),
                ((0, 0), (1, 2, 3), ValueError, "takes 2 values, not 3"),
                ((0, 0), {"z": 1}, ValueError, "field \"z\""),
                ((), [[], []], ValueError, "takes 3 elements, not 2"),
                ((0, 0, "x"), "a", TypeError, "must be real number"),
                ((0, slice(1)), "ab", TypeError, "takes a sequence, not str")]:
            with self.subTest(key=key), self.assertRaisesRegex(error, words):
                array[key] = value
        with self.assertRaises(TypeError):
            del array[0]
        self.assertEqual(array.tolist(), VALUE)
        with self.assertRaisesRegex(loam.InvalidError, 'column 5: .* is "var" meant'):
            loam.Array("3 * vr * int8")

    def test_memory_is_the_tags(self):
        array = loam.Array("1000 * float64", tag="array.tagged")
        self.assertEqual(loam.owner(array).tag, "array.tagged")
        with loam.tag("array.context"):
            self.assertEqual(loam.owner(loam.Array("1000 * int8")).tag, "array.context")
        for value in ("{x: int8, y: string}", "var * int8", "string", "bytes", "pointer[int8]",
                      "?int8", "?{x: ?2 * int8}", "string[4]", "decimal[4, 2]", "timedelta",
                      "categorical[['a']]"):
            for text in (value, f"2 * {value}", f"1000 * {value}"):
                with self.subTest(text):
                    array = loam.Array(text, tag="array.tagged")
                    self.assertEqual(loam.owner(array).tag, "array.tagged")
                    self.assertEqual(loam.owner(array), loam.owner(array.address))
        loam.policy.load(text=POLICY)
        for use in (lambda: loam.Array("1000000 * int8", tag="denied"),
                    lambda: loam.Array("2 * var * int8", tag="denied")):
            with self.assertRaises(MemoryError):
                use()


class Views(Case):
    def test_indices_slices_and_fields_in_any_order(self):
        array = loam.Array(TYPE, VALUE)
        for view, type_, value in [
                (array["x"], "3 * var * float64", [[1.5, 3.0], [], [7.0]]),
                (array[0], "var * {x: float64, y: ?int32}", VALUE[0]),
                (array[0, ::-1], "2 * {x: float64, y: ?int32}", VALUE[0][::-1]),
                (array[::2, "x", 0], "2 * pointer[float64]", [1.5, 7.0]),
                (array[::2]["x"][:, 0:1], "2 * pointer[1 * float64]", [[1.5], [7.0]]),
                (array["x", ::2, 0], "2 * pointer[float64]", [1.5, 7.0]),
                (array[["y", "x"]][2], "var * {y: ?int32, x: float64}", [{"y": -1, "x": 7.0}]),
                (array[()], TYPE, VALUE)]:
            self.assertEqual((view.type, view.tolist()), (type_, value))
        self.assertEqual((array[0, 1, "x"], array[0, 1]["y"], array["y"][2][-1]), (3.0, None, -1))
        self.assertEqual([len(row) for row in array], [2, 0, 1])
        self.assertEqual(list(array[0]["x"]), [1.5, 3.0])

    def test_indices_go_on_after_a_field(self):
        array = loam.Array("2 * {at: 2 * {x: 2 * int8, y: int8}}",
                           [{"at": [([i * 10 + k, 5], i - k) for k in (0, 1)]} for i in (0, 1)])
        self.assertEqual(array[1, "at", 0, "x", 0], 10)
        self.assertEqual(array[:, "at", 1, "x", 0].tolist(), [1, 11])
        self.assertEqual(array[1, "at", ::-1, "y"].tolist(), [0, 1])
        self.assertEqual(array["at", "x", :, 0, 0].tolist(), [0, 10])

    def test_slices_are_pythons(self):
        numbers = list(range(7))
        array = loam.Array("7 * int8", numbers)
        ends = [None, -100, -8, -7, -3, -1, 0, 1, 3, 6, 7, 8, 100]
        for start in ends:
            for stop in ends:
                for step in (None, -100, -3, -1, 1, 2, 100):
                    part = slice(start, stop, step)
                    self.assertEqual(array[part].tolist(), numbers[part], part)

    def test_a_transpose_is_a_view(self):
        array = loam.Array("2 * 3 * {x: int16}", [[(0,), (1,), (2,)], [(3,), (4,), (5,)]])
        self.assertEqual((array.T.type, array.T["x"].tolist()),
                         ("3 * 2 * {x: int16}", [[0, 3], [1, 4], [2, 5]]))
        numpy.asarray(array["x"].T)[2, 0] = -7
        self.assertEqual((array[0, 2, "x"], array.T.base is array), (-7, True))

    def test_a_view_writes_into_the_array(self):
        array = loam.Array(TYPE, VALUE)
        array[0, :, "x"] = [10, 20]
        array["y"][0, 1] = 5
        array[2, 0] = (30, None)
        self.assertEqual(array.tolist(), [[{"x": 10, "y": 2}, {"x": 20, "y": 5}], [],
                                          [{"x": 30, "y": None}]])

    def test_an_array_is_assigned_to_a_part_of_itself(self):
        rows = [[1, 2], [3, 4], [5, 6]]
        moved = [[1, 2], [1, 2], [3, 4]]
        for see in (lambda a: a[:-1], lambda a: numpy.asarray(a)[:-1], lambda a: [a[0], a[1]],
                    lambda a: memoryview(a)[:-1]):
            a = loam.Array("3 * 2 * int64", rows)
            a[1:] = see(a)
            self.assertEqual(a.tolist(), moved)
        square = loam.Array("2 * 2 * int64", [[1, 2], [3, 4]])
        square[()] = square.T
        self.assertEqual(square.tolist(), [[1, 3], [2, 4]])
        ragged = loam.Array("2 * var * int64", [[1], [2, 3]])
        ragged[()] = [ragged[1], ragged[0]]
        self.assertEqual(ragged.tolist(), [[2, 3], [1]])

    def test_a_struct_is_assigned_from_a_view(self):
        pairs = loam.Array("2 * {x: int64, s: string}", [(1, "a"), (2, "b")])
        pairs[0] = pairs[1]
        self.assertEqual(pairs.tolist(), [{"x": 2, "s": "b"}] * 2)
        points = loam.Array("2 * {x: int64, y: float64}")
        points[()] = numpy.array([(1, 2), (3, 4)], [("a", "i8"), ("b", "f8")])
        self.assertEqual(points.tolist(), [{"x": 1, "y": 2}, {"x": 3, "y": 4}])

    def test_what_is_not_there_is_pythons_error(self):
        array = loam.Array(TYPE, VALUE)
        for key, error, words in [
                (3, IndexError, "index 1 is 3: there are 3 elements"),
                ((0, 2), IndexError, "index 2 is 2: there are 2 elements"),
                ((slice(None), 0), IndexError, "there are 0 elements in row 1"),
                ("z", KeyError, "has no field of that name"),
                (1.5, TypeError, "integer"), ((0, 0, 0), IndexError, "has no dimension"),
                (slice(0, 1, 0), ValueError, "a step of 0"), ([], KeyError, "no field is named"),
                ([1], TypeError, "list in a key names fields: a str is needed, not int"),
                ("y\0", ValueError, "has a NUL"),
                (["y\0"], ValueError, "has a NUL")]:
            with self.subTest(key=key), self.assertRaisesRegex(error, words):
                array[key]
        for read in (len, list, set):
            for kind in ("float64", "{x: int32}"):
                with self.assertRaisesRegex(TypeError, "has no len"):
                    read(loam.Array(kind))

    def test_rows_and_structs_have_a_truth_and_rows_can_be_read_backwards(self):
        array = loam.Array(TYPE, VALUE)
        self.assertEqual([bool(row) for row in array], [True, False, True])
        self.assertIs(bool(array[0, 0]), True)
        for kind, value, truth in (("int32", 0, False), ("?int32", 0, False),
                                   ("?int32", None, False), ("string", "a", True),
                                   ("{x: int32}", {"x": 0}, True),
                                   ("?{x: int32}", None, False), ("?{x: int32}", {"x": 0}, True),
                                   ("?var * int8", [], False), ("pointer[2 * int8]", None, False)):
            with self.subTest(kind=kind, value=value):
                self.assertIs(bool(loam.Array(kind, value)), truth)
        self.assertEqual([len(row) for row in reversed(array)], [1, 0, 2])
        self.assertEqual(list(reversed(array[0]["x"])), [3.0, 1.5])

    def test_a_view_keeps_what_it_shows(self):
        before = live()
        array = loam.Array(TYPE, VALUE, "array.kept")
        part = array[0, 1:]["x"]
        del array
        gc.collect()
        self.assertEqual(part.tolist(), [3.0])
        del part
        self.assertEqual(live(), before)


class Rows(Case):
    def test_rows_grow_and_shrink(self):
        array = loam.Array("2 * var * var * string")
        array[0].append(["a"])
        array[0].append([])
        array[0][1].append("b")
        array[1].resize(2)
        self.assertEqual(array.tolist(), [[["a"], ["b"]], [[], []]])
        array[0].resize(1)
        array[1] = []
        self.assertEqual(array.tolist(), [[["a"]], []])
        with self.assertRaisesRegex(TypeError, "only a row of a var dimension grows"):
            array.append([])
        with self.assertRaises(ValueError):
            array[0].resize(-1)
        with self.assertRaises(loam.StateError):
            loam.Array(TYPE, VALUE)["x"][0].append(1)

    def test_an_append_that_fails_leaves_the_row_as_it_was(self):
        array = loam.Array(TYPE, VALUE)
        with self.assertRaises(TypeError):
            array[0].append(("a", 1))
        self.assertEqual(array.tolist(), VALUE)

    def test_no_row_moves_while_its_elements_are_seen(self):
        array = loam.Array("2 * var * float64", [[1], [2]])
        for lend in (lambda row: row[:], lambda row: memoryview(row), numpy.asarray):
            seen = lend(array[0])
            with self.assertRaisesRegex(BufferError, "no row can move"):
                array[0].append(5)
            with self.assertRaises(BufferError):
                array[1] = [1, 2]
            del seen
            array[0].append(5)
        self.assertEqual(array[0].tolist(), [1, 5, 5, 5])
        kept = numpy.from_dlpack(array[0])  # it may live longer than loam's objects
        with self.assertRaises(BufferError):
            array[0].resize(0)
        self.assertEqual(kept.tolist(), [1, 5, 5, 5])

    def test_no_row_moves_while_something_is_assigned(self):
        array = loam.Array("1 * var * int64", [[1, 2, 3]])

        class Evil:
            def __index__(self):
                array[0].resize(100_000)
                return 7

        with self.assertRaises(BufferError):
            array[0] = [Evil()] * 3
        self.assertEqual(array.tolist(), [[0, 2, 3]] if array[0, 0] == 0 else [[1, 2, 3]])

    def test_no_row_moves_while_a_key_is_read(self):
        array = loam.Array("2 * var * {x: 3 * int32}", [[([1, 2, 3],)], []])

        class Evil:
            def __index__(self):
                array[0].resize(2000)
                return 1

        for key in ((0, 0, "x", Evil()), (0, 0, "x", slice(Evil(), None))):
            with self.assertRaisesRegex(BufferError, "no row can move"):
                array[key] = 99
            with self.assertRaises(BufferError):
                array[key]
        self.assertEqual(array.tolist(), [[{"x": [1, 2, 3]}], []])
        array[0].resize(2)

    def test_no_row_moves_while_values_are_read(self):
        array = loam.Array("1 * var * decimal[6, 2]", [[decimal.Decimal("1.25")] * 3])
        value_of, refused = decimals.value, []

        def evil(*arguments):
            try:
                array[0].resize(2000)
            except BufferError as error:
                refused.append(error)
            return value_of(*arguments)

        with mock.patch.object(decimals, "value", evil):
            reads = (lambda: array.tolist(), lambda: repr(array), lambda: array[0, 1],
                     lambda: list(array[0])[2], lambda: copy.copy(array))
            for n, read in enumerate(reads):
                read()
                self.assertGreater(len(refused), n)
        self.assertEqual(array.tolist(), [[decimal.Decimal("1.25")] * 3])
        array[0].resize(4)


class Numpy(Case):
    SCALARS = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "l", "uint8": "B",
               "uint16": "H", "uint32": "I", "uint64": "L", "float16": "e", "float32": "f",
               "float64": "d", "complex64": "F", "complex128": "D", "?float32": "f"}

    def test_numpy_sees_every_scalar_through_a_buffer(self):
        for name, code in self.SCALARS.items():
            array = loam.Array(f"2 * 3 * {name}", [[0, 1, 0], [1, 0, 1]])
            seen = numpy.asarray(array)
            self.assertEqual((seen.dtype, seen.shape), (numpy.dtype(code), (2, 3)), name)
            self.assertEqual((seen.ctypes.data, seen.tolist()), (array.address, array.tolist()))
            seen[0, 0] = 1
            self.assertEqual(array[0, 0], 1)

    def test_numpy_sees_every_scalar_through_the_interface(self):
        class Only:
            def __init__(self, array):
                self.__array_interface__ = array.__array_interface__
                self.array = array

        for name, code in self.SCALARS.items():
            array = loam.Array(f"2 * 3 * {name}", [[0, 1, 0], [1, 0, 1]])[:, ::-2]
            seen = numpy.asarray(Only(array))
            self.assertEqual((seen.dtype, seen.shape), (numpy.dtype(code), (2, 2)), name)
            self.assertEqual((seen.strides, seen.tolist()), (array.strides, array.tolist()))

    def test_numpy_sees_an_empty_row(self):
        for kind in ("float64", "datetime", "time", "{t: time, x: float64}",
                     "{x: int8, y: 2 * float64, z: {n: int16}}"):
            with self.subTest(kind):
                empty, full = loam.Array(f"2 * var * {kind}"), loam.Array(f"1 * {kind}")
                seen = numpy.asarray(empty[1])
                self.assertEqual((seen.shape, seen.dtype), ((0,), numpy.asarray(full).dtype))

    def test_numpy_takes_tensors_and_gives_them(self):
        for name, code in self.SCALARS.items():
            if name in ("bool", "?float32"):
                continue  # NumPy 1.24 has no tensors of bools
            array = loam.Array(f"2 * 3 * {name}", [[0, 1, 2], [3, 4, 5]])[::-1, 1:]
            seen = numpy.from_dlpack(array)
            self.assertEqual((seen.dtype, seen.strides), (numpy.dtype(code), array.strides), name)
            back = loam.Array.from_dlpack(array)  # NumPy 1.24 makes the array read-only
            self.assertEqual((back.type, back.tolist()), (f"2 * 2 * {name}", array.tolist()))
            del array, seen
            gc.collect()
            self.assertEqual(back[0].tolist(), [4, 5])

    def test_a_tensor_is_taken_once(self):
        class Lender:
            capsule = loam.Array("2 * int8", [1, 2]).__dlpack__()

            def __dlpack__(self):
                return self.capsule
        self.assertEqual(loam.Array.from_dlpack(Lender()).tolist(), [1, 2])
        with self.assertRaisesRegex(ValueError, "used_dltensor.* another reader has taken it"):
            loam.Array.from_dlpack(Lender())

    def test_a_field_is_seen_where_it_stands(self):
        array = loam.Array("4 * {a: int8, x: 2 * float64}", [(i, [i, -i]) for i in range(4)])
        seen = numpy.asarray(array["x"])
        self.assertEqual((seen.shape, seen.strides), ((4, 2), (24, 8)))
        self.assertEqual(seen.sum(axis=0).tolist(), [6, -6])
        self.assertEqual(numpy.from_dlpack(array["x"]).tolist(), seen.tolist())
        row = loam.Array(TYPE, VALUE)[0]
        self.assertEqual(numpy.asarray(row["x"]).tolist(), [1.5, 3.0])

    def test_numpys_memory_lives_as_long_as_the_array(self):
        source = numpy.arange(12.0).reshape(3, 4)
        array = loam.Array.from_dlpack(source.T)
        self.assertEqual((array.type, array.strides), ("4 * 3 * float64", (8, 32)))
        array[0, 0] = -1
        self.assertEqual(source[0, 0], -1)
        part = array[3]
        del source, array
        gc.collect()
        self.assertEqual(part.tolist(), [3, 7, 11])

    def test_a_tensor_may_end_on_another_thread(self):
        kept = [loam.Array.from_dlpack(numpy.arange(float(n))) for n in range(1, 50)]
        kept += [numpy.from_dlpack(loam.Array(f"{n} * int8")) for n in range(1, 2000, 100)]
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()

    def test_what_numpy_cannot_see_is_an_error_not_a_list(self):
        for text in (TYPE, "2 * string", "2 * ?int8", "2 * {x: string}", "2 * pointer[int8]"):
            array = loam.Array(text)
            with self.assertRaisesRegex(TypeError, "NumPy has scalars"):
                numpy.asarray(array)
            with self.assertRaises(BufferError):
                memoryview(array)
            with self.assertRaises(BufferError):
                array.__dlpack__()
        with self.assertRaises(BufferError):
            loam.Array("int8").__dlpack__(stream=1)
        with self.assertRaises(BufferError):  # NumPy's own refusal
            loam.Array.from_dlpack(numpy.arange(3, dtype=">i4"))
        constant = numpy.arange(3)
        constant.flags.writeable = False
        with self.assertRaises(BufferError):
            loam.Array.from_dlpack(constant)

    def test_a_buffer_is_contiguous_when_that_is_asked(self):
        array = loam.Array("2 * 2 * int16", [[1, 2], [3, 4]])
        self.assertEqual(bytes(array), struct.pack("4h", 1, 2, 3, 4))
        self.assertEqual(memoryview(array).tolist(), [[1, 2], [3, 4]])
        self.assertEqual(bytes(array[:, 0]), struct.pack("2h", 1, 3))
        with self.assertRaises(BufferError):
            numpy.frombuffer(array[:, 0])

    def test_a_buffer_in_fortran_order_has_no_gaps(self):
        get = ctypes.pythonapi.PyObject_GetBuffer
        get.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
        view = ctypes.create_string_buffer(256)  # a Py_buffer has fewer bytes
        array = loam.Array("6 * float64")
        c, fortran = 0x38, 0x58  # PyBUF_C_CONTIGUOUS and PyBUF_F_CONTIGUOUS of CPython
        for order in c, fortran:
            with self.assertRaises(BufferError):
                get(array[::2], ctypes.addressof(view), order)
            self.assertEqual(get(array, ctypes.addressof(view), order), 0)
            ctypes.pythonapi.PyBuffer_Release(view)

    def test_buffers_without_dimensions_or_bytes_keep_the_rules_of_the_protocol(self):
        get = ctypes.pythonapi.PyObject_GetBuffer
        get.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
        view = ctypes.create_string_buffer(256)  # a Py_buffer has fewer bytes
        for array, ndim in (loam.Array("int64", 7), 0), (loam.Array("var * int64"), 1):
            self.assertEqual(get(array, ctypes.addressof(view), 0x11c), 0)  # PyBUF_FULL_RO
            data, *found = struct.unpack_from("=q28xi8x2q", view, 0)
            ctypes.pythonapi.PyBuffer_Release(view)
            self.assertNotEqual(data, 0)
            shape, strides = [bool(pointer) for pointer in found[1:]]
            self.assertEqual((found[0], shape, strides), (ndim, ndim > 0, ndim > 0))


class Ending(Case):
    def test_nothing_stays(self):
        before = live()
        for _ in range(3):
            array = loam.Array(TYPE, VALUE, "array.all")
            kept = [array["x"], array[0, 1:], numpy.asarray(array[0, "x"]), array[0, 0],
                    memoryview(array[0]["x"]), numpy.from_dlpack(array[2]["x"]), array[["y"]]]
            kept.append(array[0]["x"].__dlpack__())
            kept.append(loam.Array.from_dlpack(numpy.arange(3.0)))
            del array, kept
        self.assertEqual(live(), before)

    def test_debug_shows_what_it_is_made_of(self):
        text = loam.Array(TYPE, VALUE, "array.shown").debug()
        for words in ("type: 3 * var * {x", "fixed: 3 elements, stride 16", "field \"y\": offset 8",
                      "pooled at 0x", "tag \"array.shown\"", "data: 0x"):
            self.assertIn(words, text)

    def test_its_repr_shows_values(self):
        for text, value, shown in [
                ("2 * int8", [1, 2], "[1, 2]"), ("float64", 1.5, "1.5"), ("0 * int8", [], "[]"),
                ("100 * int8", list(range(100)), "[0, 1, 2, ..., 97, 98, 99]"),
                (TYPE, VALUE, "[[{x: 1.5, y: 2}, {x: 3.0, y: None}], [], [{x: 7.0, y: -1}]]"),
                ("pointer[int8]", None, "None"), ("string", "a" * 1000, "'" + "a" * 59 + "...")]:
            self.assertEqual(repr(loam.Array(text, value)), f"<loam.Array {text} {shown}>")
        self.assertLess(len(repr(loam.Array("100 * 100 * 100 * 100 * int8"))), 500)


class Numbers(Case):
    def test_numbers_of_numpy_are_copied_at_once(self):
        numbers = numpy.arange(1_000_000.0)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        array = loam.Array("1000000 * float64", numbers)
        array[()] = numbers
        self.assertLess(tracemalloc.get_traced_memory()[1], 16_000_000)  # the array, and no floats
        self.assertEqual((array[7], array[-1]), (7.0, 999_999.0))

    def test_numbers_of_any_layout_are_those_of_numpy(self):
        quiet = warnings.catch_warnings()
        quiet.__enter__()
        self.addCleanup(quiet.__exit__)
        warnings.simplefilter("ignore")  # NumPy warns where it drops an imaginary part
        base = numpy.arange(24).reshape(4, 6) % 5
        for kind in ("bool", "int8", "uint8", "int16", "uint32", "int64", "uint64", "float16",
                     "float32", "float64", "complex64", "complex128", ">i4", ">f8", "longlong"):
            for value in (base.astype(kind), numpy.asfortranarray(base.astype(kind)),
                          base.astype(kind)[::-1], base.astype(kind)[:, ::-1]):
                for to in ("bool", "int8", "int64", "uint64", "float32", "float64", "?float64",
                           "complex128"):
                    array = loam.Array(f"4 * 6 * {to}")
                    expected = value.astype(to.strip("?")).tolist()
                    try:
                        array[()] = value
                    except (TypeError, ValueError, OverflowError):
                        with self.assertRaises((TypeError, ValueError, OverflowError)):
                            array[()] = value.tolist()
                    else:
                        self.assertEqual(array.tolist(), expected)
        array = loam.Array("2 * 3 * int32")
        array[1] = numpy.arange(3, dtype="int32")
        array[:, 0] = numpy.array([7, 8], "int32")
        self.assertEqual(array.tolist(), [[7, 0, 0], [8, 1, 2]])
        for wrong in (numpy.zeros((3, 2), "int32"), numpy.zeros(6, "int32"), b"abcdef"):
            with self.assertRaises((TypeError, ValueError)):
                array[()] = wrong
        with self.assertRaisesRegex(ValueError, "read-only"):
            loam.Array.from_buffer(bytes(12), "3 * int32")[()] = numpy.zeros(3, "int32")

    def test_elements_that_numpy_masks_are_not_copied(self):
        for kind in ("int64", "float64"):
            masked = numpy.ma.array([1, 2, 3], kind, mask=[False, True, False])
            array = loam.Array(f"3 * ?{kind}", masked)
            self.assertEqual(array.tolist(), [1, None, 3])
            with self.assertRaises(TypeError):
                loam.Array(f"3 * {kind}", masked)

    def test_an_array_is_assigned_to_a_part_of_itself(self):
        array = loam.Array("6 * int32", range(6))
        array[1:5] = numpy.asarray(array)[2:6]
        self.assertEqual(array.tolist(), [0, 2, 3, 4, 5, 5])
        array[1:5] = array[0:4]
        self.assertEqual(array.tolist(), [0, 0, 2, 3, 4, 5])


class Copying(Case):
    def test_a_copy_has_memory_of_its_own(self):
        for text, value in [(TYPE, VALUE), ("2 * pointer[int8]", [None, 3]), ("2 * (int8, string)",
                            [(1, "a"), (2, "b")]), ("2 * ?float32", [None, 1.5])]:
            array = loam.Array(text, value, "copy.array")
            for made in (pickle.loads(pickle.dumps(array)), copy.copy(array), copy.deepcopy(array)):
                self.assertEqual((made.type, made.tolist()), (array.type, array.tolist()))
                self.assertNotEqual(made.address, array.address)
                self.assertEqual(loam.owner(made).tag, "copy.array")
        view = loam.Array(TYPE, VALUE)[::2, "x"]
        self.assertEqual(copy.copy(view).tolist(), view.tolist())

    def test_arrays_of_scalars_are_pickled_as_their_bytes(self):
        view = loam.Array("3 * 2 * int32", [[1, 2], [3, 4], [5, 6]])
        for array in [loam.Array("1000 * float64", range(1000)), loam.Array("int8", 7),
                      loam.Array("var * 2 * int16", [[1, 2], [3, 4]]), loam.Array("0 * int8"),
                      loam.Array("var * int64"), loam.Array("2 * complex128", [1, 2j]),
                      loam.Array.from_buffer(b"abc"), view[1:], view[:, 1], view.T,
                      loam.Array("2 * var * int64", [[1, 2], [3]])[0],
                      loam.Array("pointer[3 * int8]", [1, 2, 3]), loam.Array("pointer[int8]"),
                      loam.Array("2 * 3 * bool", [[True, False, True]] * 2)]:
            for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
                made = pickle.loads(pickle.dumps(array, protocol))
                self.assertEqual((made.type, made.tolist(), made.readonly),
                                 (array.type, array.tolist(), False))
        size = len(pickle.dumps(loam.Array("1000 * float64")))
        self.assertLess(size, 8200)

    def test_a_row_that_grows_when_its_pickling_begins_is_whole(self):
        array = loam.Array("var * int64", [1, 2, 3])
        finder = mock.Mock()  # for what another thread does while the first pickling imports
        finder.find_spec = lambda name, *_: array.append(4) if name == "loam.copies" else None
        with mock.patch.dict(sys.modules), mock.patch.object(sys, "meta_path",
                                                             [finder, *sys.meta_path]):
            sys.modules.pop("loam.copies", None)
            data = pickle.dumps(array)
        self.assertEqual(pickle.loads(data).tolist(), [1, 2, 3, 4])

    def test_bytes_are_pickled_out_of_band(self):
        block = loam.Block(1000, "copy.block", zero=True)
        array = loam.Array("100 * float64", range(100), "copy.array")
        for one in (block, array, block[10:20]):
            lent = []
            text = pickle.dumps(one, 5, buffer_callback=lent.append)
            self.assertEqual((len(text) < 200, len(lent)), (True, 1))
            made = pickle.loads(text, buffers=lent)
            self.assertEqual((bytes(made), loam.owner(made).tag), (bytes(one), loam.owner(one).tag))
            self.assertNotEqual(made.address, one.address)

    def test_a_block_is_copied_with_its_bytes_and_tag(self):
        block = loam.Block(100, "copy.block", zero=True)
        memoryview(block)[7] = 9
        for made in (pickle.loads(pickle.dumps(block)), copy.copy(block), copy.deepcopy(block)):
            self.assertEqual((bytes(made), made.tag), (bytes(block), "copy.block"))
            self.assertNotEqual(made.address, block.address)

    def test_an_arena_is_not_copied(self):
        arena = loam.Arena()
        for use in (pickle.dumps, copy.copy):
            for wrong in (arena, arena.alloc(5)):
                with self.assertRaisesRegex(TypeError, "cannot pickle 'loam"):
                    use(wrong)


if __name__ == "__main__":
    main()

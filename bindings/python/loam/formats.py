"""Formats of buffers (PEP 3118, an extension of Python's struct module), as datashapes.

The C extension calls datashape() to make a loam.Array over a buffer.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass, field
from typing import Any

__all__ = ["datashape"]

# The names of scalars by their letter. The sizes of i and l depend on the byte order.
_SCALARS = {"?": "bool", "b": "int8", "B": "uint8", "c": "uint8", "h": "int16", "H": "uint16",
            "i": "int32", "I": "uint32", "q": "int64", "Q": "uint64", "n": "int64", "N": "uint64",
            "e": "float16", "f": "float32", "d": "float64", "Zf": "complex64", "Zd": "complex128"}
_SIZES = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4,
          "int64": 8, "uint64": 8, "float16": 2, "float32": 4, "float64": 8, "complex64": 8,
          "complex128": 16}
_TOKEN = re.compile(r"\s*(?P<before>[@=<>!^]*)\s*(?:\((?P<shape>[\d, ]+)\))?"
                    r"\s*(?P<order>[@=<>!^]*)\s*(?P<count>\d+)?\s*(?P<code>T\{|Z?[a-zA-Z?])")
_NAME = re.compile(r":(?P<name>[^:]*):")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass
class _Value:
    """A value of a format: its datashape, the bytes it takes, its alignment in C, and the bytes
    that the format shows. NumPy shows the pad bytes at the end of an inner struct behind that
    struct, so `shown` may be less than `size`."""

    text: str
    size: int
    align: int
    shown: int


@dataclass
class _Struct:
    """The fields of a struct that is being read.

    `shown` has the offsets by the bytes that the format shows, and `whole` those by the bytes that
    the fields take; `end` is where the struct ends by the first way, and `whole_end` by the second.
    """

    names: list[str] = field(default_factory=list)
    values: list[_Value] = field(default_factory=list)
    shown: list[int] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    end: int = 0
    whole_end: int = 0

    def pad(self, size: int) -> None:
        self.end += size
        self.whole_end += size

    def add(self, name: str, value: _Value, is_native: bool) -> None:
        align = value.align if is_native else 1
        self.names.append(name)
        self.values.append(value)
        self.shown.append(_up(self.end, align))
        self.whole.append(_up(self.whole_end, align))
        self.end = self.shown[-1] + value.shown
        self.whole_end = self.whole[-1] + value.size

    def offsets(self) -> list[int]:
        """Returns the offsets of the fields: as shown, unless fields would overlap then."""
        end = 0
        for value, offset in zip(self.values, self.shown):
            if offset < end or offset % value.align:
                return self.whole
            end = offset + value.size
        return self.shown


def _up(size: int, align: int) -> int:
    return -(-size // align) * align


def _quoted(name: str) -> str:
    if _IDENTIFIER.match(name):
        return name
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _text_of(names: list[str], values: list[_Value]) -> str:
    parts = (f"{_quoted(name)}: {value.text}" for name, value in zip(names, values))
    return "{" + ", ".join(parts) + "}"


class _Reader:
    """Reads a format. With `is_padded` the fields of its structs stand where C puts them, also
    where the format shows no pad bytes."""

    def __init__(self, text: str, is_padded: bool) -> None:
        self.text, self.at, self.order = text, 0, "@"
        self.is_padded = is_padded

    def fail(self, why: str) -> BufferError:
        return BufferError(f"a buffer with the format {self.text!r}: {why}")

    def scalar(self, code: str) -> _Value:
        if code in ("l", "L"):
            wide = self.order in "@^"
            name = ("int" if code == "l" else "uint") + ("64" if wide else "32")
        elif code in _SCALARS:
            name = _SCALARS[code]
        else:
            raise self.fail(f"loam has no values of the kind {code!r}")
        size = _SIZES[name]
        if self.order in (">", "!") and size > 1:
            raise self.fail("its values are in big-endian order")
        align = size // 2 if name.startswith("complex") else size
        return _Value(name, size, align, size)

    def value(self) -> tuple[_Value | None, int]:
        """Reads one value; None and a number for pad bytes."""
        found = _TOKEN.match(self.text, self.at)
        if not found:
            raise self.fail(f"loam cannot read it from column {self.at + 1}")
        self.at, self.order = found.end(), (found["order"] or found["before"] or self.order)[-1]
        count = int(found["count"]) if found["count"] else None
        if found["code"] == "x":
            return None, 1 if count is None else count
        shape = [int(n) for n in (found["shape"] or "").split(",") if n.strip()]
        if found["code"] == "s":
            length = 1 if count is None else count
            if not length:
                raise self.fail("its strings have no bytes")
            value = _Value(f"string[{length}]", length, 1, length)
        else:
            value = self.struct() if found["code"] == "T{" else self.scalar(found["code"])
            shape += [] if count is None else [count]
        for length in reversed(shape):
            value = _Value(f"{length} * {value.text}", length * value.size, value.align,
                           length * value.shown)
        return value, 0

    def fields(self) -> _Struct:
        """Reads the fields of a struct and its closing bracket."""
        made = _Struct()
        while not self.text.startswith("}", self.at):
            value, pad = self.value()
            if value is None:
                made.pad(pad)
                continue
            named = _NAME.match(self.text, self.at)
            self.at = named.end() if named else self.at
            made.add(named["name"] if named else f"f{len(made.names)}", value,
                     self.is_padded or self.order == "@")
        self.at += 1
        return made

    def struct(self) -> _Value:
        """Reads a struct inside a struct, whose fields have to stand where C puts them."""
        made = self.fields()
        end, align = 0, 1
        for value, offset in zip(made.values, made.offsets()):
            align = max(align, value.align)
            if _up(end, value.align) != offset:
                raise self.fail("the fields of an inner struct are not where C puts them")
            end = offset + value.size
        size = _up(end, align)
        if not made.names or made.end > size:
            raise self.fail("an inner struct has not the size that C gives it")
        return _Value(_text_of(made.names, made.values), size, align, made.end)


def _with_pads(made: _Struct) -> tuple[str, tuple[str, ...] | None]:
    """Returns a datashape that puts each field at its offset, and the names of the fields.

    Where a field is not where C puts it, a field of bytes stands before it, and the names are the
    fields to select. Otherwise they are None.
    """
    names, values, end = [], [], 0
    for name, value, offset in zip(made.names, made.values, made.offsets()):
        if _up(end, value.align) != offset:
            names.append(f"pad at {end}")
            values.append(_Value(f"{offset - end} * uint8", offset - end, 1, offset - end))
        names.append(name)
        values.append(value)
        end = offset + value.size
    return _text_of(names, values), tuple(made.names) if len(names) > len(made.names) else None


def _is_told(kind: Any, ctypes: Any) -> bool:
    """Returns whether the format that ctypes gives to a type has all of its fields, each where C
    puts it.

    It has not for fields of a base class, bit fields, packed structs, and unions.
    """
    while hasattr(kind, "_length_"):
        kind = kind._type_
    if not issubclass(kind, (ctypes.Structure, ctypes.Union)):
        return True
    own = vars(kind).get("_fields_", ())
    fields = [f for base in kind.__mro__ for f in vars(base).get("_fields_", ())]
    if issubclass(kind, ctypes.Union) or len(fields) > len(own):
        return False
    if getattr(kind, "_pack_", False) or getattr(kind, "_align_", False):
        return False
    return all(len(f) == 2 and _is_told(f[1], ctypes) for f in own)


def _find_ctypes(source: object) -> Any:
    """Returns the type of ctypes whose objects a buffer shows, or None."""
    while isinstance(source, memoryview):
        source = source.obj
    ctypes = sys.modules.get("ctypes")
    if not ctypes or not isinstance(source, (ctypes.Array, ctypes.Structure, ctypes.Union)):
        return None
    kind: Any = type(source)
    while hasattr(kind, "_length_"):
        kind = kind._type_
    return kind


def _check_ctypes(reader: _Reader, kind: Any, made: _Struct | None = None) -> None:
    """Raises BufferError if the format of a type of ctypes leaves fields out, or if a struct that
    was read has its fields in other places than the type."""
    is_told = _is_told(kind, sys.modules["ctypes"])
    if is_told and made:
        is_told = made.offsets() == [getattr(kind, name).offset for name, _ in kind._fields_]
    if not is_told:
        raise reader.fail("ctypes does not say where all fields are; give the type")


def _layout_in_c(dtype: Any) -> tuple[list[int], int, int]:
    """Returns the offsets that C gives to the fields of a dtype of NumPy, its size and alignment.

    A dtype that is no struct has no offsets.
    """
    if dtype.subdtype is not None:
        _, size, align = _layout_in_c(dtype.base)
        return [], math.prod(dtype.shape) * size, align
    if dtype.names is None:
        align = {"S": 1, "c": dtype.itemsize // 2}.get(dtype.kind, dtype.itemsize)
        return [], dtype.itemsize, align
    offsets, end, most = [], 0, 1
    for name in dtype.names:
        _, size, align = _layout_in_c(dtype.fields[name][0])
        offsets.append(_up(end, align))
        end, most = offsets[-1] + size, max(most, align)
    return offsets, _up(end, most), most


def _is_as_in_c(dtype: Any) -> bool:
    """Returns whether a dtype of NumPy inside a struct has the layout that C gives it.

    The format does not tell, because NumPy shows no pad bytes at the end of an inner struct.
    """
    base = dtype.base
    if base.names is None:
        return True
    offsets, size, _ = _layout_in_c(base)
    if offsets != [base.fields[name][1] for name in base.names]:
        return False
    if math.prod(dtype.shape) > 1 and base.itemsize != size:
        return False
    return all(_is_as_in_c(base.fields[name][0]) for name in base.names)


def _check_numpy(reader: _Reader, dtype: Any, made: _Struct) -> None:
    """Raises BufferError if a struct that was read is not laid out as the dtype of NumPy is."""
    fields = [dtype.fields[name] for name in dtype.names or ()]
    if made.offsets() != [offset for _, offset, *_ in fields]:
        raise reader.fail("the fields are not where it says")
    if not all(_is_as_in_c(kind) for kind, *_ in fields):
        raise reader.fail("an inner struct is not laid out as in C")


def _find_dtype(source: object) -> Any:
    """Returns the dtype of the array or scalar of NumPy whose memory a buffer shows, or None."""
    while isinstance(source, memoryview):
        source = source.obj
    numpy = sys.modules.get("numpy")
    if numpy and isinstance(source, (numpy.ndarray, numpy.generic)):
        return source.dtype
    return None


def datashape(format: str, size: int, source: object = None) -> (
        tuple[str, tuple[str, ...] | None]):
    """Returns the datashape of a buffer's elements, which take `size` bytes each.

    `source` is the object whose memory the buffer shows; None: it is not known. For a struct with
    other offsets than C's, the datashape has fields for the bytes between, and the second value
    has the names of the other fields. Otherwise the second value is None. Raises BufferError for a
    format that loam cannot express.
    """
    kind, dtype = _find_ctypes(source), _find_dtype(source)
    reader = _Reader(format, is_padded=kind is not None)  # ctypes shows no pad bytes before 3.12
    if kind is not None:
        _check_ctypes(reader, kind)
    if not format.startswith("T{"):
        value, _ = reader.value()
        if value is None or reader.at != len(format) or value.size != size:
            raise reader.fail(f"loam cannot read values of {size} bytes from it")
        return value.text, None
    reader.at = 2
    made = reader.fields()
    ends = [offset + value.size for value, offset in zip(made.values, made.offsets())]
    if reader.at != len(format) or not ends or max(ends) > size:
        raise reader.fail(f"loam cannot read values of {size} bytes from it")
    if kind is not None:
        _check_ctypes(reader, kind, made)
    if dtype is not None:
        _check_numpy(reader, dtype, made)
    if any(offset % value.align for value, offset in zip(made.values, made.offsets())):
        raise reader.fail("a field does not stand at a multiple of its alignment")
    align = max(value.align for value in made.values)
    if _up(max(ends), align) > size:
        raise reader.fail(f"its structs of {size} bytes do not end at a multiple of their "
                          f"alignment, {align}")
    return _with_pads(made)

"""Decimals of an array as decimal.Decimal.

In the data a decimal is an integer of 128 bits, which counts units of its last digit. The C
extension calls value() to read one and bytes_of() to write one.
"""

from __future__ import annotations

from decimal import Context, Decimal, Inexact, InvalidOperation

__all__ = ["value", "bytes_of"]

# Exact for every decimal of an array: a digit that would be lost is an error.
_EXACT = Context(prec=80, traps=[Inexact, InvalidOperation])


def value(data: bytes, scale: int) -> Decimal:
    """Returns the decimal whose integer stands in `data`, with `scale` digits behind its point."""
    return Decimal(int.from_bytes(data, "little", signed=True)).scaleb(-scale, _EXACT)


def bytes_of(number: Decimal | int | str, digits: int, scale: int, type: str) -> bytes:
    """Returns the bytes of a decimal of `digits` digits, `scale` of them behind the point.

    Raises TypeError for a float, whose digits are not what a reader expects, ValueError for a
    number with more digits behind the point, and OverflowError for one that is too large.
    """
    if isinstance(number, bool) or not isinstance(number, (Decimal, int, str)):
        raise TypeError(f"{type} takes a Decimal, an int or a str, not {number.__class__.__name__}")
    try:
        exact = Decimal(number)
    except InvalidOperation:
        raise ValueError(f"{number!r} is not a number") from None
    if not exact.is_finite():
        raise ValueError(f"{number!r}: a {type} is finite")
    if exact.adjusted() >= digits - scale and exact:
        # Python refuses repr() of an integer of thousands of digits.
        given = str(exact) if isinstance(number, int) else repr(number)
        given = given if len(given) <= 60 else given[:60] + "..."
        raise OverflowError(f"{given} has more digits before the point than {type}")
    try:
        units = exact.scaleb(scale, _EXACT).quantize(Decimal(1), context=_EXACT)
    except Inexact:
        raise ValueError(f"{number!r} has more digits behind the point than {type}") from None
    return int(units).to_bytes(16, "little", signed=True)

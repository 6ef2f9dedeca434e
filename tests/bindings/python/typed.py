"""A program for mypy: tests/run --full checks its types. It is never run.

In strict mode, mypy refuses a comment "type: ignore" in a line without an error. So each such line
is a mistake of a user that mypy must see.
"""

from __future__ import annotations

import numpy

import loam


@loam.tag("typed.function")
def twice(x: int) -> str:
    return str(2 * x)


def right() -> None:
    loam.numpy.install(sites=True)
    with loam.tag("typed.block") as tag:
        name: str = tag.name
    owner = loam.owner(numpy.ones(10))
    if owner is not None:
        name = owner.strategy
    text: str = twice(2)
    address: int = loam.numba.allocator(name + text)
    print(address, loam.cupy.install, loam.torch.pool, loam.dask.Fleet)


def wrong() -> None:
    loam.totalz()  # type: ignore[attr-defined]
    loam.nunpy.install()  # type: ignore[attr-defined]
    loam.numpy.instal()  # type: ignore[attr-defined]
    loam.numpy.install(site=True)  # type: ignore[call-arg]
    loam.numba.alocator("name")  # type: ignore[attr-defined]
    loam.cupy.instal()  # type: ignore[attr-defined]
    loam.tag(7)  # type: ignore[arg-type]
    twice("2")  # type: ignore[arg-type]
    loam.owner(numpy.ones(10)).tag  # type: ignore[union-attr]

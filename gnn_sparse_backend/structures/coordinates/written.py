"""Sites and windows as integers: what a compiled program says of them, which has no objects.

Sites are the rows that they began as, and how others followed from them. A program has the rows as a tensor; the sites
themselves, with all that they keep, are found again by it when the program runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .sites import Coordinates, Generated, Occupied, Reached
from .window import Window

Written: TypeAlias = tuple[int, ...]
REACHED, OCCUPIED, GENERATED = range(3)


def write_window(window: Window) -> Written:
    """The window in integers."""
    found = (*window.kernel, *window.stride, *window.dilation, *window.before, *window.after)
    if window.cells is None:
        return (*found, -1)
    return (*found, len(window.cells), *(step for cell in window.cells for step in cell))


def write_grid(stride: tuple[int, ...], sizes: tuple[int, ...] | None) -> Written:
    """What is known of rows that sites begin as."""
    return (len(stride), *stride, 0) if sizes is None else (len(stride), *stride, 1, *sizes)


def read_window(written: Sequence[int], dim: int) -> Window:
    """The window that was written."""
    return _window(iter(written), dim)


@torch.inference_mode(False)  # what is found now is kept for a backward pass later
def sites_at(rows: Tensor, batches: int, how: Sequence[int]) -> Coordinates:
    """The sites that follow from rows as it is written, with all that is kept on them. Rows that belong to no sites yet
    are checked as ``Coordinates.of`` does, and their sites live as long as the tensor, unless that is written to.
    """
    values = iter(how)
    dim = next(values)
    stride = tuple(itertools.islice(values, dim))
    sizes = tuple(itertools.islice(values, dim)) if next(values) else None
    sites: Coordinates = _begun(rows, batches, stride, sizes)
    for step in values:
        if step == OCCUPIED:
            sites = sites.derived(Occupied(tuple(itertools.islice(values, dim))))
        elif step == REACHED:
            sites = sites.derived(Reached(_window(values, dim)))
        else:
            centred = bool(next(values))
            sites = sites.derived(Generated(_window(values, dim), centred))
    return sites


_given = WeakTensorKeyDictionary()  # the sites of rows that are no part of any


def _begun(rows: Tensor, batches: int, stride: tuple[int, ...], sizes: tuple[int, ...] | None) -> Coordinates:
    live = Coordinates._find_live(rows, batches, stride, sizes)
    if live is not None and live.rows.device == rows.device:
        return live
    known = _given.get(rows)
    fits = known is not None and (known.batch_size, known.stride, known.sizes) == (batches, stride, sizes)
    if not fits or not torch.equal(known.rows, rows):
        known = _given[rows] = Coordinates.of(rows, stride, batches, sizes)
    return known


def _window(values: Iterator[int], dim: int) -> Window:
    fields = [tuple(itertools.islice(values, dim)) for _ in range(5)]
    count = next(values)
    cells = None if count < 0 else tuple(tuple(itertools.islice(values, dim)) for _ in range(count))
    return Window(*fields, cells)

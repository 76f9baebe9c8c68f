"""Convolutions by a dictionary of coordinates, as torchsparse's kernels go about them, in each of its modes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Cell = tuple[int, ...]
"""The batch, then the axes."""
MODES = ("hashmap_on_the_fly", "hashmap", "minkowski", "1.4")


@dataclass(frozen=True)
class Kernel:
    """A layer's arguments, each for every axis, and its mode."""

    size: Cell
    stride: Cell
    padding: Cell
    mode: str
    dilation: Cell = (1, 1, 1)

    @property
    def offsets(self) -> list[Cell]:
        """Steps along the kernel, in the order of weights: the last axis fastest, of an odd volume the first one."""
        axes = [range(k) for k in self.size]
        if all(k % 2 for k in self.size):
            return [each[::-1] for each in itertools.product(*axes[::-1])]
        return list(itertools.product(*axes))

    @property
    def begins(self) -> Cell:
        """How far before ``stride * o`` the kernel begins."""
        middle = tuple(d * ((k - 1) // 2) for k, d in zip(self.size, self.dilation))
        if self.mode != MODES[0]:
            return middle
        if set(self.stride) != {1}:
            return self.padding
        return middle if all(k % 2 for k in self.size) else (0, 0, 0)

    def reads(self, o: Cell, begins: Cell | None = None) -> Iterator[tuple[int, Cell]]:
        """Each offset, and the cell that the output o meets at it."""
        begins = self.begins if begins is None else begins
        for number, k in enumerate(self.offsets):
            axes = zip(o[1:], self.stride, begins, self.dilation, k)
            yield number, (o[0], *(c * s - b + d * step for c, s, b, d, step in axes))

    def outputs(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those of a forward layer, ascending, or as given where the sites stay."""
        if set(self.stride) == {1}:
            return list(cells)
        if self.mode == "minkowski" or (
            self.mode != MODES[0] and all(s in (1, k) for s, k in zip(self.stride, self.size))
        ):
            return sorted({(c[0], *(x // s for x, s in zip(c[1:], self.stride))) for c in cells})
        there = set(cells)
        least, most = ([pick(c[axis] for c in cells) for axis in (1, 2, 3)] for pick in (min, max))
        if self.mode == "1.4":
            found = set()
            for c, k in itertools.product(cells, self.offsets):
                moved = [x + step - (n - 1) // 2 for x, step, n in zip(c[1:], k, self.size)]
                if all(x % s == 0 and x >= low for x, s, low in zip(moved, self.stride, least)):
                    found.add((c[0], *(x // s for x, s in zip(moved, self.stride))))
            return sorted(found)
        reach = [d * (k - 1) for k, d in zip(self.size, self.dilation)]
        ends = [(m + 2 * p - r) // s + 1 for m, p, r, s in zip(most, self.padding, reach, self.stride)]
        every = itertools.product({c[0] for c in cells}, *map(range, ends))
        return sorted(o for o in every if any(c in there for _, c in self.reads(o, self.padding)))

    def pairs(self, cells: Sequence[Cell], outputs: Sequence[Cell]) -> list[tuple[int, int, int]]:
        """(offset, input row, output row)."""
        row = {cell: number for number, cell in enumerate(cells)}
        return [(k, row[c], at) for at, o in enumerate(outputs) for k, c in self.reads(o) if c in row]


def summed(pairs: Sequence[tuple[int, int, int]], x: Tensor, weight: Tensor, outputs: int) -> Tensor:
    """The sum of ``x[input] @ weight[offset]`` at each output."""
    k, inputs, rows = torch.tensor(pairs, dtype=torch.int64).view(-1, 3).unbind(1)
    products = torch.einsum("pc,pcd->pd", x[inputs], weight[k])
    return x.new_zeros(outputs, weight.shape[2]).index_add(0, rows, products)


def conv3d(
    x,
    weight: Tensor,
    kernel_size: Cell,
    bias: Tensor | None = None,
    stride: Cell = (1, 1, 1),
    padding: Cell = (0, 0, 0),
    transposed: bool = False,
    **others: object,
):
    """In the place of the layers' own, in the mode of torchsparse 2.1 that is the default."""
    kernel = Kernel(kernel_size, stride, padding, MODES[0])
    cells = [tuple(row) for row in x.coords.tolist()]
    cmaps, weight = x._caches.cmaps, weight.view(-1, *weight.shape[-2:])
    cmaps.setdefault(x.stride, (x.coords, None))
    if transposed:
        to = tuple(t // s for t, s in zip(x.stride, stride))
        coords = cmaps[to][0]
        fine = [tuple(row) for row in coords.tolist()]
        pairs = [(k, o, i) for k, i, o in kernel.pairs(fine, cells)]
    else:
        to = tuple(t * s for t, s in zip(x.stride, stride))
        outputs = kernel.outputs(cells)
        coords = x.coords if to == x.stride else torch.tensor(outputs).int()
        pairs = kernel.pairs(cells, outputs)
    feats = summed(pairs, x.feats, weight, len(coords))
    made = type(x)(feats if bias is None else feats + bias, coords, to)
    made._caches = x._caches
    return made

"""``gsb.explain`` on a kernel map: by which dataflow a sparse convolution runs, and why."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...compiler.language.types import BYTES
from ...compiler.own_schedules import OwnSchedule, in_words
from ...frozen import dataclass
from ...planner.cpu.convolution import MOST_ROWS
from ...planner.words import size
from ...runtime import devices
from ...runtime.text import render
from ...runtime.type_names import check_dtype, type_name
from ...structures.kernel_map import KernelMap
from .executables import order_of
from .executables_cpu import predicted
from .executables_cuda import Tiles, spec_on_gpu
from .schedules_cpu import spec_of


@dataclass(frozen=True)
class ConvExplanation:
    """The dataflow of a sparse convolution; ``str()`` is the text for people.

    in_features, out_features: channels of a group. rows, inputs, offsets, pairs: of the map; ``backward``: of its
    transpose, on which the gradient to the features runs. predicted: on the CPU what each dataflow takes, in
    multiply-adds; empty on a GPU, and for a depthwise convolution, where there is one. block: rows and columns whose
    sums are registers, of a thread or of a block of warps.
    """

    in_features: int
    out_features: int
    groups: int
    dtype: str
    backward: bool
    rows: int
    inputs: int
    offsets: int
    pairs: int
    order: str
    predicted: dict[str, float]
    block: tuple[int, int]
    met: float
    device: str
    schedules: tuple[OwnSchedule, ...] = ()

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of all pairs."""
        return self.pairs * self.groups * self.in_features * self.out_features

    def __str__(self) -> str:
        what = "the gradient to the features of sparse_conv" if self.backward else "sparse_conv"
        groups = f" in each of {self.groups} groups" if self.groups > 1 else ""
        lines = (Padding(Text(reason), (0, 0, 0, 2)) for reason in self.reasons())
        return render(
            f"{what}, {self.in_features} to {self.out_features} channels{groups} ({self.dtype}) on {self.rows:,} "
            f"outputs and {self.inputs:,} inputs with {self.pairs:,} pairs of {self.offsets:,} offsets, {self.device}",
            *lines,
            *in_words(self.schedules),
            *(("", self._table()) if self.predicted else ()),
        )

    def reasons(self) -> list[str]:
        """Sentences that say what decided."""
        if not self.pairs:
            return ["there are no pairs: the result is zero, and no kernel runs"]
        if self.predicted:
            least = sorted(self.predicted, key=self.predicted.__getitem__)
            found = [
                f"{self.order}, which takes least: {self.predicted[least[1]] / self.predicted[least[0]]:.2f} of it "
                f"for {least[1]}"
            ]
        else:
            found = []
        found.append(f"{self.order}: {_WORDS[self.order]}")
        if self.order == "tiles":
            found.append(
                f"a block has {self.block[0]} rows by {self.block[1]} columns; {self.met:.0%} of its rows meet an "
                "offset that it goes through, and the others are multiplied for nothing"
            )
        elif self.order in ("offsets", "rows", "row"):
            found.append(
                f"sums of {self.block[0]} rows by {self.block[1]} columns are registers; the matrices of all offsets "
                f"take {size(self._matrix_bytes)}"
            )
        if self.order == "offsets":
            found.append(f"sums of up to {MOST_ROWS} rows wait in the first-level cache while offsets take turns")
        return found

    @property
    def _matrix_bytes(self) -> int:
        return self.offsets * self.groups * self.in_features * self.out_features * BYTES[self.dtype]

    def _table(self) -> Table:
        table = Table(
            title="dataflows (* is taken), in millions of multiply-adds or what takes as long", title_justify="left"
        )
        for heading in ("dataflow", "predicted, M", "of the pairs' own"):
            table.add_column(heading, justify="left" if heading == "dataflow" else "right")
        for order, cost in sorted(self.predicted.items(), key=lambda item: item[1]):
            mark = "* " if order == self.order else "  "
            table.add_row(mark + order, f"{cost / 1e6:,.2f}", f"{cost / max(1, self.multiply_adds):.2f}")
        return table


_WORDS = {
    "offsets": "offset after offset over a range of rows; a block of sums has any rows that meet the offset, and is "
    "loaded and stored for each",
    "rows": "rows that meet the same offsets, whose sums stay in registers for all of them",
    "row": "row after row, whose sums stay in registers for all of its offsets",
    "rgms": "the panels of relational products, an offset a relation",
    "depthwise": "row after row, element by element: every channel by itself",
    "tiles": "a block owns rows, sorted by the set of their offsets, whose sums stay in registers for all of them; "
    "nothing is stored but the result, and nothing is added atomically",
}


def explain_convolution(
    kernel_map: KernelMap, features: int | Sequence[int] = 64, *, dtype="float32", backward: bool = False
) -> ConvExplanation:
    """``gsb.explain`` on a ``KernelMap``; features: of x and the result, (C_in, C_out), or (C_in, C_out, groups)."""
    c_in, c_out, groups = _channels(features)
    dtype = check_dtype(dtype)
    if backward:
        c_in, c_out, kernel_map = c_out, c_in, kernel_map.transpose()
    f_in, f_out = c_in // groups, c_out // groups
    described = groups, f_in, f_out, dtype
    arch, name, met = devices.arch_of(kernel_map.device), type_name(dtype), 1.0
    costs: dict[str, float] = {}
    block = (1, 1)
    order = order_of(kernel_map, *described) if kernel_map.num_pairs else ""
    if order == "tiles":
        spec = spec_on_gpu(kernel_map, *described, arch)
        block, panels = (spec.rows, spec.width), kernel_map.derived(Tiles(spec.rows))[1]
        met = kernel_map.num_pairs / max(1, panels * spec.rows)
    elif order not in ("", "depthwise") and not arch:
        costs = predicted(kernel_map, *described)
        if order != "rgms":
            of = spec_of(order, f_in, f_out, name, type_name(kernel_map.indptr.dtype))
            block = of.block, of.tile
    device = f"a GPU of {arch}" if arch else f"{torch.get_num_threads()} threads"
    return ConvExplanation(
        f_in,
        f_out,
        groups,
        name,
        backward,
        *kernel_map.shape,
        kernel_map.num_offsets,
        kernel_map.num_pairs,
        order,
        costs,
        block,
        met,
        device,
    )


def _channels(features) -> tuple[int, int, int]:
    numbers = (
        (features, features)
        if isinstance(features, int)
        else tuple(features)
        if isinstance(features, (tuple, list))
        else ()
    )
    whole = all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in numbers)
    if len(numbers) not in (2, 3) or not whole:
        raise ValueError(f"features must be C, (C_in, C_out) or (C_in, C_out, groups), got {features!r}")
    c_in, c_out, groups = (*numbers, 1)[:3]
    if c_in % groups or c_out % groups:
        raise ValueError(f"groups must divide {c_in} and {c_out} channels, got {groups}")
    return c_in, c_out, groups

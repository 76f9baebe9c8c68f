"""Attention on a GPU over graphs with very long rows: forward only, operands already validated.

Long rows are cut into parts, each a team's work. A part has its own maximum, sum and sum of values, and a second pass
makes those of the row of them (Dao et al., Flash-Decoding, 2023). What the gradient needs of an edge depends on its
row's results alone, so parts take copies of these; sums over rows are added up from those over parts. Nothing is added
atomically.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ...planner.cuda.plan import CudaPlan
from ..core.arguments import kernel_arguments
from ..message.programs.operands import ACCUMULATOR
from ..message.variants.parts_cuda import parts_of
from .programs.attention import AttentionSpec
from .programs.softmax_merge import MergeSpec
from .programs.sums import Output, SumsSpec
from .schedules_cuda import attention_gradient_kernel, attention_kernel, softmax_merge_kernel, sums_kernel
from .softmax_cuda import sum_of_parts


class AttentionInParts:
    """The forward kernels of a call. widths: of its operands."""

    def __init__(self, spec: AttentionSpec, places: tuple[str, ...], widths: tuple[int, ...], plan: CudaPlan):
        self.spec, self.places, self.widths, self.longest = spec, places, widths, plan.longest_part
        self.first = attention_kernel(replace(spec, parts=True), plan).entry
        merge = MergeSpec(spec.value.dims, spec.heads, spec.dtype, spec.index_dtype)
        self.second = softmax_merge_kernel(merge, plan.arch).entry

    def __call__(self, graph, operands, edge_ids: Tensor | None, out: Tensor, maximum: Tensor, inverse: Tensor) -> None:
        """Fill ``out``, (rows, features), and what is kept of its softmax, (rows, heads) each."""
        parts = parts_of(graph, self.longest)
        count, kept = parts.whole.shape[0], [self.spec.scores, self.spec.scores, self.spec.features]
        most, total, values = (maximum.new_empty((count, width)) for width in kept)
        of_parts = parts.operands(self.places, operands)
        self.first(
            *kernel_arguments(parts.whole, 1, self.places, self.widths, of_parts, edge_ids, "teams"),
            values,
            most,
            total,
        )
        self.second(
            *kernel_arguments(parts.sums, 1, ("column",) * 3, kept, [most, total, values], None, "teams"),
            out,
            maximum,
            inverse,
        )


class _SumsInParts:
    """A kernel over parts that fills sums over the edges of each, and the kernels that add these up by rows."""

    def __init__(
        self,
        outputs: tuple[Output, ...],
        places: tuple[str, ...],
        widths: tuple[int, ...],
        index_dtype: str,
        plan: CudaPlan,
    ):
        self.places, self.widths, self.longest = places, widths, plan.longest_part
        self.outputs = tuple(replace(output, dtype=ACCUMULATOR[output.dtype]) for output in outputs)
        self.second = [
            sum_of_parts(wide.features, wide.dtype, index_dtype, plan.arch, given.dtype)
            for wide, given in zip(self.outputs, outputs)
        ]

    def run(self, graph, operands, edge_ids: Tensor | None, at_edges: list[Tensor], sums: list[Tensor]) -> None:
        """Fill ``at_edges``, and ``sums``, (rows, features) each."""
        parts = parts_of(graph, self.longest)
        of_parts = parts.operands(self.places, operands)
        results = [
            out.new_empty((parts.whole.shape[0], wide.features), dtype=getattr(torch, wide.dtype))
            for out, wide in zip(sums, self.outputs)
        ]
        self.first(
            *kernel_arguments(parts.whole, 1, self.places, self.widths, of_parts, edge_ids, "teams"),
            *at_edges,
            *results,
        )
        for second, wide, of_part, out in zip(self.second, self.outputs, results, sums):
            second(*kernel_arguments(parts.sums, 1, ("column",), [wide.features], [of_part], None, "teams"), out)


class GradientInParts(_SumsInParts):
    """The kernels of what the gradients of attention need of every edge, with sums over rows along the way."""

    def __init__(
        self,
        spec: AttentionSpec,
        outputs: tuple[Output, ...],
        places: tuple[str, ...],
        widths: tuple[int, ...],
        plan: CudaPlan,
    ):
        super().__init__(outputs, places, widths, spec.index_dtype, plan)
        self.first = attention_gradient_kernel(spec, self.outputs, plan).entry


class SumsInParts(_SumsInParts):
    """The kernels of several sums over the edges of each row."""

    def __init__(self, spec: SumsSpec, plan: CudaPlan):
        places, widths = tuple(x.at for x in spec.operands), tuple(x.width for x in spec.operands)
        super().__init__(spec.outputs, places, widths, spec.index_dtype, plan)
        self.first = sums_kernel(replace(spec, outputs=self.outputs), plan).entry


__all__ = ["AttentionInParts", "GradientInParts", "SumsInParts"]

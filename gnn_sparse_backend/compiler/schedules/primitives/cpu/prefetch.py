"""Fetch what will be needed some elements from now: rows of a gather, or whatever a loop that is there for it reads."""

from __future__ import annotations

import tvm_ffi

from .....deferred import s_tir, tirx, tvm
from ....codegen.nodes import item_bytes, nodes, with_parts
from ....language.axes import Axis, StageIError
from ....language.layout import elements
from ....language.program import Iteration
from ....language.types import INTEGERS
from ....position.function import PositionFunction
from ...sequence import iteration_primitive
from ..shared.loops import rewrite_block

LINE_BYTES = 64
SECOND_LEVEL = 2
"""How near what a loop fetches is to be: the first level waits for fewer lines at a time than a loop asks for."""


@iteration_primitive()
def prefetch_gather(
    stage2: PositionFunction, iteration: Iteration, buffer: str, first: int, count: int, distance: int
) -> PositionFunction:
    """Prefetch `count` elements from `first` on of the row of `buffer` that the element `distance` further on will
    gather.

    The row is found through the index array, which runs on past the end of a row of the sparse matrix: the fetches
    never pause where a row ends, which is where the processor's own look-ahead stops on a mispredicted branch.

        for j in range(...):                        for j in range(...):
            with block("sum"):                          with block("sum"):
                S[k] += B[indices[p + vj], k]   ->          prefetch(B[indices[min(p + vj + 16, nnz - 1)], 0])
                                                            S[k] += B[indices[p + vj], k]

    A row may also be found through a buffer of numbers on the axis (the edge that stands at each element); the element
    further on is then the same for both. A row that is only stored to is fetched for writing.

    Preconditions, refused with a StageIError: the iteration is over one sparse axis and nothing else; `buffer` is a
    parameter on two axes, accessed in it by that axis's coordinate or by such a number; distance is positive.
    """
    where = f"prefetch_gather: iteration {iteration.name!r}"
    axis = iteration.axes[0]
    if len(iteration.axes) != 1 or not axis.is_sparse:
        raise StageIError(f"{where} is not over one sparse axis")
    if len(stage2.program.buffer(buffer).axes) != 2 or distance < 1:
        raise StageIError(f"{where}: buffer {buffer!r} is not on two axes, or distance {distance} is not positive")
    rewriter = _Prefetch(stage2, axis, buffer, first, count, distance)

    def visit(block: s_tir.SBlock, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        if block.name_hint != iteration.name:
            return mutator.default_mutate(block)
        return with_parts(block, body=tirx.SeqStmt([*rewriter.fetches(block.body), block.body]))

    stage2 = stage2.mutated((s_tir.SBlock, visit))
    if not rewriter.done:
        raise StageIError(
            f"{where} does not gather from {buffer!r} by the coordinate of axis {axis.name!r} or a number on it"
        )
    return stage2


class _Prefetch:
    def __init__(
        self, stage2: PositionFunction, axis: Axis, buffer: str, first: int, count: int, distance: int
    ) -> None:
        by_name = {p.name: p for p in stage2.function.params}
        self.array, self.buffer = by_name[axis.indices], by_name[buffer]
        self.numbers = [
            by_name[b.name] for b in stage2.program.parameters if b.axes[-1:] == (axis,) and b.dtype in INTEGERS
        ]
        self.first, self.count, self.distance = first, count, distance
        total = elements(axis, lambda s: by_name[s.name] if hasattr(s, "name") else tirx.IntImm("int64", s))
        self.last = total - 1
        self.ahead = None
        self.done = False

    def fetches(self, body: tirx.Stmt) -> list[tirx.Stmt]:
        """One prefetch per cache line of the row, addressed like the gather found in `body` but further on."""
        loaded = nodes(body, tvm.ir.TensorLoad)
        loads = [load.indices[0] for load in loaded if load.source.same_as(self.buffer)]
        positions = [load.indices[0] for load in loaded if load.source.same_as(self.array)]
        stored = nodes(body, tirx.BufferStore)
        stores = [store.indices[0] for store in stored if store.buffer.same_as(self.buffer)]
        if positions:  # of the element being visited, among all elements of the axis
            self.ahead = tirx.min(tirx.IntImm("int64", self.distance), self.last - positions[0])
        for row in loads or stores:
            row = tvm_ffi.structural_mutate(row, [(tvm.ir.TensorLoad, self._later)])
            if self.done:
                step = LINE_BYTES // item_bytes(self.buffer.ty.dtype)
                places = range(self.first, self.first + self.count, step)
                return [self._fetch(row, at, not loads) for at in places]
        return []

    def _later(self, load: tvm.ir.TensorLoad, mutator: tvm_ffi.StructuralMutator) -> tirx.Expr:
        if load.source.same_as(self.array):
            self.done = True
            return self.array[tirx.min(load.indices[0] + self.distance, self.last)]
        if self.ahead is not None and any(load.source.same_as(n) for n in self.numbers):
            self.done = True
            *outer, position = load.indices
            return load.source[(*outer, position + self.ahead)]
        return mutator.default_mutate(load)

    def _fetch(self, row: tirx.Expr, at: int, write: bool) -> tirx.Stmt:
        address = tirx.address_of(self.buffer[row, tirx.IntImm("int64", at)])
        return tirx.Evaluate(tirx.call_intrin("void", "tirx.prefetch", address, int(write), 3, 1))


@iteration_primitive()
def prefetch_reads(stage2: PositionFunction, iteration: Iteration, buffer: str) -> PositionFunction:
    """Have an iteration fetch what it reads of a parameter into the second level of caches, and do nothing else: what
    it stores nobody reads.

        with block("ahead"):                                 with block("ahead"):
            Sink[0] = K[vj * 64 + vn * 16]           ->          prefetch(K[vj * 64 + vn * 16])

    Precondition, refused with a StageIError: it reads the parameter.
    """
    parameter = {p.name: p for p in stage2.function.params}.get(buffer)
    found: list[tirx.Stmt] = []

    def change(realize: s_tir.SBlockRealize) -> tirx.Stmt:
        block = realize.block
        for load in nodes(block.body, tvm.ir.TensorLoad):
            if load.source.same_as(parameter):
                address = tirx.address_of(load.source[tuple(load.indices)])
                found.append(tirx.Evaluate(tirx.call_intrin("void", "tirx.prefetch", address, 0, SECOND_LEVEL, 1)))
        body = tirx.SeqStmt(found) if len(found) > 1 else found[0] if found else block.body
        return s_tir.SBlockRealize(
            realize.iter_values, realize.predicate, with_parts(block, body=body, reads=[], writes=[])
        )

    stage2 = rewrite_block(stage2, iteration.name, change)
    if not found:
        raise StageIError(f"prefetch_reads: iteration {iteration.name!r} reads nothing of {buffer!r}")
    return stage2

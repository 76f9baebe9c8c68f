"""Loops over parts of an axis that are of a fixed size, but for the last: the whole ones apart from the rest."""

from __future__ import annotations

import tvm_ffi

from .....deferred import s_tir, tirx, tvm
from ....codegen.nodes import buffer_like, int64, nodes, on_buffers, substitute, with_parts
from ....language.axes import refuse
from ....language.program import Iteration
from ....position.function import PositionFunction
from ...sequence import iteration_primitive
from .loops import bound_loop, rewrite_loop

KINDS = {"lanes": "VECTORIZED", "unrolled": "UNROLLED"}
"""Units for which the number of elements has to be known at compile time, and TVM's name of such a loop."""


def most_of(iteration: Iteration) -> int | None:
    """The most elements that an iteration over one axis visits, where that is known at compile time."""
    axis = iteration.axes[0]
    bounds = iteration.bounds_of(axis)
    if bounds is not None and bounds.most is not None:
        return bounds.most
    if axis.kind == "sparse_fixed":
        return axis.stored if isinstance(axis.stored, int) else None
    return axis.length if axis.kind == "dense_fixed" and isinstance(axis.length, int) else None


@iteration_primitive()
def whole_or_part(stage2: PositionFunction, iteration: Iteration, unit: str) -> PositionFunction:
    """Make the loop of an iteration over one axis one of ``unit`` where it has all of its elements, else a serial one.

    unit: one of `KINDS`.

    Precondition, refused with a StageIError: the most elements that it has are known at compile time.

        for j in range(count): ...  ->  if count == 8: for j in vectorized(8): ...
                                        else: for j in range(count): ...
    """
    most, kind = most_of(iteration), getattr(tirx.ForKind, KINDS[unit])
    refuse(f"iteration {iteration.name!r}", "has no number of elements that is known here" if most is None else None)
    assert most is not None
    if most == 0:  # LLVM makes no vector of nothing
        return stage2

    def change(loop: tirx.For) -> tirx.Stmt:
        whole = tirx.For(loop.loop_var, int64(0), int64(most), kind, loop.body)
        if isinstance(loop.extent, tirx.IntImm):
            return tirx.For(loop.loop_var, int64(0), loop.extent, kind, loop.body)
        part = copied(tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body), "_part", stage2)
        return tirx.IfThenElse(loop.extent.equal(int64(most)), whole, part)

    return rewrite_loop(stage2, iteration.name, 0, change)


@iteration_primitive(on_gpu=True)
def bind_part(stage2: PositionFunction, iteration: Iteration, tag: str) -> PositionFunction:
    """Bind the loop of an iteration over one axis to a GPU index; threads that are more than its elements do nothing.

    Blocks are as many as the axis has elements under any parent, where the number under this one stands in an array.

    Precondition, refused with a StageIError: of threads, the most elements are known at compile time.

        for j in range(count): ...  ->  for j in threads(32): if j < count: ...
    """
    most = most_of(iteration)
    fixed = not tag.startswith("blockIdx")
    lacking = fixed and (most is None or not 0 < most <= 1024)
    reason = (
        f"wants at most 1024 elements, known at compile time, to be bound to {tag}; it has {most or 'no such number'}"
    )
    refuse(f"iteration {iteration.name!r}", reason if lacking else None)

    def change(loop: tirx.For) -> tirx.Stmt:
        extent, guarded = loop.extent, True
        if fixed and not isinstance(extent, tirx.IntImm):
            assert most is not None
            extent = int64(most)
        elif nodes(extent, tvm.ir.TensorLoad):  # the CPU, which starts the blocks, does not see the arrays
            (iterator,) = loop.body.block.iter_vars
            extent = iterator.dom.extent
        else:
            guarded = False
        if not guarded:
            return bound_loop(loop.loop_var, extent, loop.body, tag)
        return bound_loop(loop.loop_var, extent, tirx.IfThenElse(loop.loop_var < loop.extent, loop.body, None), tag)

    return rewrite_loop(stage2, iteration.name, 0, change)


def copied(statement: tirx.Stmt, suffix: str, stage2: PositionFunction) -> tirx.Stmt:
    """A copy of a statement, with variables, buffers and blocks of its own. The names of its blocks end in ``suffix``,
    repeated where the function has such a copy already.
    """
    taken = {block.name_hint for block in nodes(stage2.function.body, s_tir.SBlock)}
    names, more = {block.name_hint for block in nodes(statement, s_tir.SBlock)}, suffix
    while any(name + suffix in taken for name in names):
        suffix += more
    buffers = {b: buffer_like(b, b.name) for block in nodes(statement, s_tir.SBlock) for b in block.alloc_buffers}
    variables = [loop.loop_var for loop in nodes(statement, tirx.For)]
    variables += [v.var for block in nodes(statement, s_tir.SBlock) for v in block.iter_vars]
    others = {v: tirx.Var(v.name, "int64") for v in variables}

    def loop(node: tirx.For, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        node = mutator.default_mutate(node)
        return tirx.For(
            others.get(node.loop_var, node.loop_var), node.min, node.extent, node.kind, node.body, node.thread_binding
        )

    def block(node: s_tir.SBlock, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        node = mutator.default_mutate(node)
        return with_parts(
            node,
            iter_vars=[tirx.IterVar(v.dom, others.get(v.var, v.var), v.iter_type) for v in node.iter_vars],
            reads=[_moved(r, buffers) for r in node.reads],
            writes=[_moved(r, buffers) for r in node.writes],
            name_hint=node.name_hint + suffix,
            alloc_buffers=[buffers.get(b, b) for b in node.alloc_buffers],
        )

    renamed = tvm_ffi.structural_mutate(statement, [(tirx.For, loop), (s_tir.SBlock, block), *on_buffers(buffers)])
    return substitute(renamed, others)


def _moved(region: tirx.BufferRegion, buffers: dict[tirx.Buffer, tirx.Buffer]) -> tirx.BufferRegion:
    return tirx.BufferRegion(buffers[region.source], region.region) if region.source in buffers else region

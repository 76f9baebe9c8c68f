"""Pass 4: the regions that each block reads and writes.

TVM's frames infer them from the accesses inside. Where an access is by a position that the block itself searches for,
the inferred region speaks of a buffer that does not exist outside the block; there the whole dimension is declared.
"""

from __future__ import annotations

from collections.abc import Container

import tvm_ffi

from ...deferred import s_tir, tirx, tvm
from ..codegen.nodes import nodes, with_parts


def close_regions(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with every block's regions expressed in what is visible outside the block."""
    own: set[tirx.Buffer] = set()  # allocated in this block or below it: inner blocks are visited first

    def visit(block: s_tir.SBlock, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        block = mutator.default_mutate(block)
        own.update(block.alloc_buffers)
        if not own:
            return block
        return with_parts(
            block,
            reads=[_close(r, own) for r in block.reads if r.source not in own],
            writes=[_close(r, own) for r in block.writes if r.source not in own],
        )

    return function.with_body(tvm_ffi.structural_mutate(function.body, [(s_tir.SBlock, visit)]))


def _close(region: tirx.BufferRegion, own: Container[tirx.Buffer]) -> tirx.BufferRegion:
    if not any(_mentions(r.min, own) or _mentions(r.extent, own) for r in region.region):
        return region
    ranges = [
        tvm.ir.Range.from_min_extent(tirx.IntImm("int64", 0), extent)
        if _mentions(r.min, own) or _mentions(r.extent, own)
        else r
        for r, extent in zip(region.region, region.source.ty.shape)
    ]
    return tirx.BufferRegion(region.source, ranges)


def _mentions(expr: tirx.Expr, buffers: Container[tirx.Buffer]) -> bool:
    return any(load.source in buffers for load in nodes(expr, tvm.ir.TensorLoad))

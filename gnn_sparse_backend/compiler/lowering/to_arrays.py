"""Stage II to stage III: one stored dimension per axis tree (SparseTIR, section 3.4.1, equations 6 to 8).

A buffer on (I, J, H), J sparse under I and H dense, becomes an array of shape (nnz of J, H), and its access [i, j, h]
becomes [indptr[i] + j, h]. Buffers whose axes are all roots keep their shape. A block's declared regions are widened
to whole arrays: no pass below this stage reads them.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi

from ...deferred import s_tir, tirx, tirx_buffer, tvm
from ..codegen.nodes import blocks, with_parts
from ..language.axes import Axis, Size, given
from ..language.layout import chains, elements, offset
from ..position.function import PositionFunction


def flatten(stage2: PositionFunction) -> tirx.PrimFunc:
    """The stage III TVM function of a stage II function, scheduled or not."""
    return _Flattener(stage2).run()


class _Flattener:
    def __init__(self, stage2: PositionFunction) -> None:
        self.stage2 = stage2
        self.function = stage2.function
        by_name = {p.name: p for p in self.function.params}
        program = stage2.program
        self.sizes = {size: by_name[size.name] for size in program.sizes}
        self.arrays = {a: by_name[a] for axis in program.axes for a in (axis.indptr, axis.indices) if a}
        self.replaced: dict[tirx.Var, tuple[tirx.Buffer, tuple[tuple[Axis, ...], ...]]] = {}

    def run(self) -> tirx.PrimFunc:
        allocated = [b for block in blocks(self.function.body) for b in block.alloc_buffers]
        for var in (*filter(tirx_buffer.is_buffer_var, self.function.params), *allocated):
            axes = self.stage2.axes.get(var.name)
            if not axes:
                continue
            groups = chains(axes)
            if any(len(group) > 1 for group in groups):
                shape = [elements(group[-1], self._size) for group in groups]
                # those of each tree's leaf; none where the array is compact
                strides = [var.ty.strides[axes.index(group[-1])] for group in groups] if var.ty.strides else None
                flat = tirx.decl_buffer(
                    shape,
                    var.ty.dtype,
                    name=var.name,
                    scope=var.ty.storage_scope,
                    layout=None,
                    strides=strides,
                    data_alignment=var.ty.data_alignment,
                )
                self.replaced[var] = (flat, groups)
        body = tvm_ffi.structural_mutate(
            self.function.body,
            [
                (tvm.ir.TensorLoad, self._load),
                (tirx.BufferStore, self._store),
                (s_tir.SBlock, self._block),
            ],
        )
        params = [self._replacement(p) for p in self.function.params]
        return tirx.PrimFunc(params, body, self.function.ret_type, self.function.attrs)

    def _replacement(self, var: tirx.Var) -> tirx.Var:
        return self.replaced[var][0] if var in self.replaced else var

    def _size(self, extent: int | Size) -> tirx.Expr:
        return self.sizes[extent] if isinstance(extent, Size) else tirx.IntImm("int64", extent)

    def _indptr(self, axis: Axis, at: tirx.Expr) -> tirx.Expr:
        value = self.arrays[given(axis.indptr)][at]
        return value if str(value.ty.dtype) == "int64" else value.astype("int64")

    def _indices(self, var: tirx.Buffer, indices: Sequence[tirx.Expr]) -> list[tirx.Expr]:
        axes = self.stage2.axes[var.name]
        position = dict(zip(axes, indices, strict=True))
        return [offset(g, [position[a] for a in g], self._indptr) for g in self.replaced[var][1]]

    def _load(self, node: tvm.ir.TensorLoad, mutator: tvm_ffi.StructuralMutator) -> tirx.Expr:
        node = mutator.default_mutate(node)
        if node.source not in self.replaced:
            return node
        return self.replaced[node.source][0][tuple(self._indices(node.source, node.indices))]

    def _store(self, node: tirx.BufferStore, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        node = mutator.default_mutate(node)
        if node.buffer not in self.replaced:
            return node
        return tirx.BufferStore(self.replaced[node.buffer][0], node.value, self._indices(node.buffer, node.indices))

    def _block(self, node: s_tir.SBlock, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        return with_parts(
            node,
            reads=[self._whole(r) for r in node.reads],
            writes=[self._whole(r) for r in node.writes],
            body=mutator.mutate(node.body),
            init=None if node.init is None else mutator.mutate(node.init),
            alloc_buffers=[self._replacement(b) for b in node.alloc_buffers],
        )

    def _whole(self, region: tirx.BufferRegion) -> tirx.BufferRegion:
        flat = self._replacement(region.source)
        if flat is region.source:
            return region
        full = [tvm.ir.Range.from_min_extent(tirx.IntImm("int64", 0), extent) for extent in flat.ty.shape]
        return tirx.BufferRegion(flat, full)

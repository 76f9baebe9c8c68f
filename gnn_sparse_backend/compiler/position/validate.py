"""Validation of stage II and stage III functions: what TVM's own verifiers let pass and code generation trips over."""

from __future__ import annotations

from collections.abc import Iterable

import tvm_ffi

from ...deferred import s_tir, tirx, tirx_buffer, tvm
from ..codegen.nodes import blocks
from .function import PositionFunction


class StageError(ValueError):
    """A function of position space or of loops is not well formed."""


def validate_position(stage2: PositionFunction) -> None:
    """Raise StageError unless the function is well formed and agrees with its table of axes."""
    function = stage2.function
    validate_loops(function)
    buffers = {p.name: p for p in function.params if tirx_buffer.is_buffer_var(p)}
    buffers.update({b.name: b for block in blocks(function.body) for b in block.alloc_buffers})
    for name, axes in stage2.axes.items():
        if name not in buffers:
            raise StageError(f"function {stage2.name!r}: buffer {name!r} of the axis table is not in it")
        rank = len(buffers[name].ty.shape)
        if rank != max(len(axes), 1):
            raise StageError(
                f"function {stage2.name!r}: buffer {name!r} has {rank} dimensions and stands on {len(axes)} axes"
            )


def validate_loops(function: tirx.PrimFunc) -> None:
    """Raise StageError unless every variable is bound where it is used, every buffer is visible and indexed by int64
    values, and no two blocks share a name. (That there are as many indices as dimensions TVM sees to itself.)"""
    names = [block.name_hint for block in blocks(function.body)]
    for name in names:
        if names.count(name) > 1:
            raise StageError(f"there are {names.count(name)} blocks of the name {name!r}")
    scope = set(function.params)
    for param in function.params:
        if tirx_buffer.is_buffer_var(param):  # a stride may be a variable of its own, bound when the tensor is passed
            scope.update(s for s in param.ty.strides if isinstance(s, tvm.ir.Var))
    checker = _Checker(scope)
    checker.check(function.body)
    if checker.problems:  # raised here: an exception would lose its class on its way through TVM's visitor
        raise StageError(checker.problems[0])


class _Checker:
    def __init__(self, scope: set[tirx.Var]) -> None:
        self.scope = scope
        self.problems: list[str] = []

    def check(self, root: tirx.Stmt) -> None:
        tvm_ffi.structural_mutate(
            root,
            [
                (tirx.For, self._loop),
                (s_tir.SBlock, self._block),
                (tvm.ir.TensorLoad, self._load),
                (tirx.BufferStore, self._store),
                (tvm.ir.Var, self._var),
            ],
        )

    def _within(self, variables: Iterable[tirx.Var], node: tirx.Stmt, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        added = {v for v in variables if v not in self.scope}
        self.scope |= added
        mutator.default_mutate(node)
        self.scope -= added
        return node

    def _loop(self, loop: tirx.For, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        if str(loop.loop_var.ty.dtype) != "int64":
            self.problems.append(f"loop variable {loop.loop_var.name!r} has type {loop.loop_var.ty.dtype}, not int64")
        bound = [loop.loop_var]
        if loop.thread_binding is not None:
            bound.append(loop.thread_binding.var)
        return self._within(bound, loop, mutator)

    def _block(self, block: s_tir.SBlock, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        return self._within([v.var for v in block.iter_vars] + list(block.alloc_buffers), block, mutator)

    def _load(self, load: tvm.ir.TensorLoad, mutator: tvm_ffi.StructuralMutator) -> tirx.Expr:
        self._access(load.source, load.indices)
        return mutator.default_mutate(load)

    def _store(self, store: tirx.BufferStore, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        self._access(store.buffer, store.indices)
        return mutator.default_mutate(store)

    def _access(self, buffer: tirx.Buffer, indices: Iterable[tirx.Expr]) -> None:
        if buffer not in self.scope:
            self.problems.append(f"buffer {buffer.name!r} is used where it is not visible")
        for index in indices:
            if str(index.ty.dtype).partition("x")[0] != "int64":  # a vector of indices is one, too
                self.problems.append(
                    f"buffer {buffer.name!r} is indexed by {index} of type {index.ty.dtype}, not int64"
                )

    def _var(self, var: tirx.Var, mutator: tvm_ffi.StructuralMutator) -> tirx.Var:
        if var not in self.scope:
            self.problems.append(f"variable {var.name!r} is used where it is not bound")
        return var

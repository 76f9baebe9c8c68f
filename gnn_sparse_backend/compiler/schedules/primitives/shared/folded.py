"""The stores over features in a loop that folds its elements, with other things for results and terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import tvm_ffi

from .....deferred import s_tir, tirx, tvm
from ....codegen.nodes import substitute
from ....language.axes import StageIError
from ....language.folds import folds
from ....language.program import Iteration

Put: TypeAlias = "Callable[[tirx.Buffer], tirx.Expr]"
"""What takes the place of a buffer's element."""


class Folded:
    """The stores, in order, of one of the iterations over features.

    width, feature: of their axis. neutral: of each store, what its result is before the first element.
    has_places: whether one of the results is a place.
    """

    def __init__(self, block: s_tir.SBlock, iteration: Iteration, what: str) -> None:
        self.width, self.feature = iteration.axes[0].static_length, block.iter_vars[0].var
        self.stores = list(block.body.seq) if isinstance(block.body, tirx.SeqStmt) else [block.body]
        found = folds(iteration.stores)
        if (
            isinstance(found, str)
            or not all(isinstance(store, tirx.BufferStore) for store in self.stores)
            or len(self.stores) != len(found)
        ):
            raise StageIError(f"{what}: block {block.name_hint!r} is not the stores of its iteration")
        self.neutral = [fold.neutral for fold in found]
        self.has_places = any(fold.place for fold in found)
        self.results = {store.buffer for store in self.stores}
        self.terms = {store.buffer: _at(store.value, fold.path) for store, fold in zip(self.stores, found)}

    def replaced(self, value: tirx.Expr, own: Put | None = None, other: Put | None = None) -> tirx.Expr:
        """The value that is stored, with ``own(buffer)`` in the place of each result, and ``other(buffer)`` in that of
        what the element brings to it; None for what stays."""

        def visit(node: tirx.Expr, mutator: tvm_ffi.StructuralMutator) -> tirx.Expr:
            if own is not None and isinstance(node, tvm.ir.TensorLoad) and node.source in self.results:
                return own(node.source)
            if other is not None:
                for buffer, term in self.terms.items():
                    if tvm_ffi.structural_equal(node, term):
                        return other(buffer)
            return mutator.default_mutate(node)

        return tvm_ffi.structural_mutate(value, [(tvm.ir.Expr, visit)])

    def result(self, store: tirx.BufferStore, value: tirx.Expr, k: tirx.Expr) -> tirx.Stmt:
        """The store of another value, for one feature."""
        indices = [substitute(i, {self.feature: k}) for i in store.indices]
        return tirx.BufferStore(store.buffer, substitute(value, {self.feature: k}), indices)


def _at(value: tirx.Expr, path: tuple[str, ...]) -> tirx.Expr:
    """The sub-expression at a path of names that those of stage I have."""
    for name in path:
        if isinstance(value, (tirx.Add, tirx.Mul)):
            value = {"a": value.a, "b": value.b}[name]
        elif isinstance(value, tirx.Select):
            value = {"then": value.true_value, "otherwise": value.false_value}[name]
        else:  # if_then_else
            value = value.args[("condition", "then", "otherwise").index(name)]
    return value

"""Small pieces of TVM's trees that the primitives put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import tvm
import tvm_ffi
from tvm import s_tir, tirx

Node = TypeVar("Node")


def int64(value: int) -> tirx.IntImm:
    """A constant."""
    return tirx.IntImm("int64", value)


def sequence(statements: Sequence[tirx.Stmt]) -> tirx.Stmt:
    """Statements one after the other."""
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)


def substitute(node: Node, values: Mapping[tirx.Var, tirx.Expr]) -> Node:
    """The tree with variables replaced."""
    mutated: Node = tvm_ffi.structural_mutate(node, [(tvm.ir.Var, lambda var, mutator: values.get(var, var))])
    return mutated


def on_buffers(others: Mapping[tirx.Buffer, tirx.Buffer]) -> list[tuple[type, Callable[..., Any]]]:
    """Visitors, for a mutation, by which a tree loads from and stores to other buffers. others: by buffer; may grow
    meanwhile.
    """

    def load(node: tvm.ir.TensorLoad, mutator: tvm_ffi.StructuralMutator) -> tirx.Expr:
        node = mutator.default_mutate(node)
        return others[node.source][tuple(node.indices)] if node.source in others else node

    def store(node: tirx.BufferStore, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        node = mutator.default_mutate(node)
        return tirx.BufferStore(others[node.buffer], node.value, node.indices) if node.buffer in others else node

    return [(tvm.ir.TensorLoad, load), (tirx.BufferStore, store)]


def blocks(body: tirx.Stmt) -> list[s_tir.SBlock]:
    """All blocks of a tree, inner ones first."""
    found: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(body, (s_tir.SBlock, found.append), order="post")
    return found

"""Small pieces of TVM's trees that the primitives put together."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import s_tir, tirx


def int64(value: int):
    """A constant."""
    return tirx.IntImm("int64", value)


def sequence(statements):
    """Statements one after the other."""
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)


def substitute(node, values: dict):
    """The tree with variables replaced."""
    return tvm_ffi.structural_mutate(node, [(tvm.ir.Var, lambda var, mutator: values.get(var, var))])


def on_buffers(others: dict) -> list:
    """Visitors, for a mutation, by which a tree loads from and stores to other buffers. others: by buffer; may grow
    meanwhile.
    """

    def load(node, mutator):
        node = mutator.default_mutate(node)
        return others[node.source][tuple(node.indices)] if node.source in others else node

    def store(node, mutator):
        node = mutator.default_mutate(node)
        return tirx.BufferStore(others[node.buffer], node.value, node.indices) if node.buffer in others else node

    return [(tvm.ir.TensorLoad, load), (tirx.BufferStore, store)]


def blocks(body) -> list:
    """All blocks of a tree, inner ones first."""
    found: list = []
    tvm_ffi.structural_walk(body, (s_tir.SBlock, found.append), order="post")
    return found


__all__ = ["blocks", "int64", "on_buffers", "sequence", "substitute"]

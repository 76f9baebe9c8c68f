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


def blocks(body) -> list:
    """All blocks of a tree, inner ones first."""
    found: list = []
    tvm_ffi.structural_walk(body, (s_tir.SBlock, found.append), order="post")
    return found


__all__ = ["blocks", "int64", "sequence", "substitute"]

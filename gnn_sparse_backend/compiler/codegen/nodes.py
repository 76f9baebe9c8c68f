"""What is done to TVM's trees in many places: looking for nodes, and putting others in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import tvm_ffi

from ...deferred import s_tir, tirx, tvm

Node = TypeVar("Node")


def int64(value: int) -> tirx.IntImm:
    """A constant."""
    return tirx.IntImm("int64", value)


def buffer_like(
    buffer: tirx.Buffer, name: str, shape: Sequence[tirx.Expr] | None = None, scope: str | None = None
) -> tirx.Buffer:
    """A buffer of the same type, and of the same shape and scope where none is given."""
    shape = buffer.ty.shape if shape is None else shape
    scope = scope or buffer.ty.storage_scope
    return tirx.decl_buffer(shape, buffer.ty.dtype, name=name, scope=scope, layout=None)


def item_bytes(dtype: str) -> int:
    """Bytes of one element of a buffer."""
    return max(1, int(tvm.DataType(str(dtype)).bits) // 8)


def sequence(statements: Sequence[tirx.Stmt]) -> tirx.Stmt:
    """Statements one after the other."""
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)


def substitute(node: Node, values: Mapping[tirx.Var, tirx.Expr]) -> Node:
    """The tree with variables replaced."""
    mutated: Node = tvm_ffi.structural_mutate(node, [(tvm.ir.Var, lambda var, mutator: values.get(var, var))])
    return mutated


def on_buffers(others: Mapping[tirx.Buffer, tirx.Buffer]) -> list[tuple[type, Callable[..., Any]]]:
    """Visitors by which a tree loads from and stores to other buffers. others: by buffer; may grow meanwhile."""

    def load(node: tvm.ir.TensorLoad, mutator: tvm_ffi.StructuralMutator) -> tirx.Expr:
        node = mutator.default_mutate(node)
        return others[node.source][tuple(node.indices)] if node.source in others else node

    def store(node: tirx.BufferStore, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
        node = mutator.default_mutate(node)
        return tirx.BufferStore(others[node.buffer], node.value, node.indices) if node.buffer in others else node

    return [(tvm.ir.TensorLoad, load), (tirx.BufferStore, store)]


def nodes(tree: Any, kind: type | tuple[type, ...]) -> list[Any]:
    """All nodes of a kind, or of several, in a tree, inner ones first."""
    found: list[Any] = []
    tvm_ffi.structural_walk(tree, (kind, found.append), order="post")
    return found


def blocks(body: tirx.Stmt) -> list[s_tir.SBlock]:
    """All blocks of a tree, inner ones first."""
    return nodes(body, s_tir.SBlock)


def own_block(name: str, body: tirx.Stmt, buffers: Sequence[tirx.Buffer]) -> s_tir.SBlockRealize:
    """A statement in a block without iterators, which has these buffers."""
    return s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], name, body, None, buffers))


_PARTS = "iter_vars reads writes name_hint body init alloc_buffers match_buffers annotations".split()


def with_parts(block: s_tir.SBlock, **parts: Any) -> s_tir.SBlock:
    """The block with other parts, by their names."""
    return s_tir.SBlock(**{name: parts.get(name, getattr(block, name)) for name in _PARTS})


def importing(function: tirx.PrimFunc, body: tirx.Stmt, text: str) -> tirx.PrimFunc:
    """The function with another body, which may call what the text, in LLVM's language, defines: TVM links it in."""
    body = tirx.AttrStmt(tirx.IntImm("int32", 0), "pragma_import_llvm", tvm.ir.StringImm(text), body)
    return function.with_body(body)

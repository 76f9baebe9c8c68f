"""What is chosen, number by number: for CUDA, where TVM's code generator has no choice between vectors.

TVM makes code of a choice in a vector loop that nvcc refuses: the condition is a vector of 16-bit integers, and is
declared as a vector of what is chosen. So values that are chosen go to registers in an unrolled loop, and from there to
memory as one vector.

    for p in vectorized(4):                         for p in unroll(4):
        C[i, p] = Select(D[i] == 0, 0, S[p])   ->       C_chosen[p] = Select(D[i] == 0, 0, S[p])
                                                    for p in vectorized(4):
                                                        C[i, p] = C_chosen[p]
"""

from __future__ import annotations

from collections.abc import Callable

import tvm_ffi

from ....deferred import s_tir, tirx, tvm
from ..nodes import nodes, own_block, sequence, substitute


def choose_apart(module: tvm.IRModule) -> tvm.IRModule:
    """The module without choices in vector loops; as there, a statement is done for all elements before the next."""
    rules = [(tirx.For, _visit)]
    return tvm.IRModule(
        {name: f.with_body(tvm_ffi.structural_mutate(f.body, rules)) for name, f in module.functions.items()}
    )


def _visit(loop: tirx.For, mutator: tvm_ffi.StructuralMutator) -> tirx.Stmt:
    loop = mutator.default_mutate(loop)
    if loop.kind != tirx.ForKind.VECTORIZED or not nodes(loop.body, tirx.Select):
        return loop
    stores = _stores(loop.body)
    if stores is None:
        return _over(loop, tirx.ForKind.UNROLLED, lambda p: substitute(loop.body, {loop.loop_var: p}))
    return sequence([part for store in stores for part in _apart(loop, store)])


def _apart(loop: tirx.For, store: tirx.BufferStore) -> list[tirx.Stmt]:
    """The loops over one store."""

    def values(p: tirx.Expr) -> tirx.BufferStore:
        return substitute(store, {loop.loop_var: p})

    if not nodes(store, tirx.Select):
        return [_over(loop, tirx.ForKind.VECTORIZED, values)]
    if store.buffer.ty.storage_scope == "local":  # which is registers already
        return [_over(loop, tirx.ForKind.UNROLLED, values)]
    name = f"{store.buffer.name}_chosen"
    chosen = tirx.decl_buffer([loop.extent], store.buffer.ty.dtype, name=name, scope="local", layout=None)

    def load(p: tirx.Expr) -> tirx.Stmt:
        there = values(p)
        return tirx.BufferStore(there.buffer, chosen[p - loop.min], there.indices)

    store_each = _over(loop, tirx.ForKind.UNROLLED, lambda p: tirx.BufferStore(chosen, values(p).value, [p - loop.min]))
    both = sequence([store_each, _over(loop, tirx.ForKind.VECTORIZED, load)])
    return [own_block(name, both, [chosen])]


def _over(loop: tirx.For, kind: tirx.ForKind, body: Callable[[tirx.Var], tirx.Stmt]) -> tirx.Stmt:
    p = tirx.Var(loop.loop_var.name, str(loop.loop_var.ty.dtype))
    return tirx.For(p, loop.min, loop.extent, kind, body(p))


def _stores(body: tirx.Stmt) -> list[tirx.BufferStore] | None:
    """The stores of a body, in order, of its loop variable alone; None where it holds anything else."""
    if isinstance(body, tirx.BufferStore):
        return [body]
    if isinstance(body, tirx.SeqStmt):
        stores: list[tirx.BufferStore] = []
        for part in body.seq:
            inside = _stores(part)
            if inside is None:
                return None
            stores += inside
        return stores
    if isinstance(body, s_tir.SBlockRealize):
        block = body.block
        always = isinstance(body.predicate, tirx.IntImm) and body.predicate.value
        if not always or block.alloc_buffers or block.match_buffers or block.init is not None:
            return None
        values = {each.var: value for each, value in zip(block.iter_vars, body.iter_values)}
        found = _stores(block.body)
        return None if found is None else [substitute(store, values) for store in found]
    return None

"""Local buffers of kernels for the CPU are stack slots: no call to TVM's pool of workspaces is left in the code."""

from __future__ import annotations

from gnn_sparse_backend.compiler.codegen import build_jit, host_target
from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.lowering import lower
from gnn_sparse_backend.compiler.position.validate import validate_position
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.primitives.shared.local_memory import locals_on_stack


def row_sums():
    p = ProgramBuilder("row_sums")
    m, n, nnz = p.sizes("m", "n", "nnz")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("indptr", "indices"))
    K = p.dense_fixed("K", 16)
    X = p.buffer("X", (I, J, K), "float32")
    Y = p.buffer("Y", (I, K), "float32")
    with p.iterate("rows", (I,), "S") as (i,):
        Sum = p.local("Sum", (K,), "float32")
        with p.iterate("sum", (J, K), "RS") as (j, k):
            with p.init():
                Sum[k] = 0.0
            Sum[k] = Sum[k] + X[i, j, k]
        with p.iterate("out", (K,), "S", ("f",)) as (f,):
            Y[i, f] = Sum[f]
    return p.finish()


def test_scopes_change_and_nothing_else():
    before = lower(row_sums())
    after = locals_on_stack(before)
    validate_position(after)
    assert 'scope="local"' in before.script()
    assert after.script() == before.script().replace(', scope="local"', "")


def test_the_code_takes_no_workspace():
    function = stage3(row_sums(), cpu_schedule(parallel=False))
    assert "AllocWorkspace" not in build_jit(function, host_target()).module.inspect_source("ll")

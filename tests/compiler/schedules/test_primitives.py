"""Our schedule primitives: what they change, as text, and what they refuse, with the reason."""

from __future__ import annotations

import re

import pytest

from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.library.products import csr_spmm
from gnn_sparse_backend.compiler.library.relational import rgms_heterogeneous
from gnn_sparse_backend.compiler.lowering import lower
from gnn_sparse_backend.compiler.schedules.primitives.cpu import parallelize
from gnn_sparse_backend.compiler.schedules.primitives.cpu.parallelize import parallelize_spatial
from gnn_sparse_backend.compiler.schedules.primitives.cpu.prefetch import prefetch_gather
from gnn_sparse_backend.compiler.schedules.primitives.cpu.vectorize import vectorize_spatial
from gnn_sparse_backend.compiler.schedules.primitives.cuda.bind import bind_spatial
from gnn_sparse_backend.compiler.transforms import sparse_fuse, tile_axis
from tests.compiler.message_programs import small_aggregation


def loops(stage2) -> list[str]:
    """The loop headers of a function, in order."""
    return [line.strip() for line in stage2.script().splitlines() if line.strip().startswith("for ")]


def tiled():
    return tile_axis(small_aggregation(features=6), "K", ((4, 2),))


def rows_under_relations(unique: bool, by_coordinate: bool):
    """Rows listed under relations: `Y` is stored by the row, `P` by the place in the list."""
    p = ProgramBuilder("listed")
    relations, m, count = p.sizes("relations", "m", "count")
    R = p.dense_fixed("R", relations)
    I = p.sparse_variable("I", R, (m, count), ("indptr", "indices"), unique=unique)
    M = p.dense_fixed("M", m)
    P = p.buffer("P", (R, I), "float32")
    Y = p.buffer("Y", (M,), "float32")
    with p.iterate("scatter", (R, I), "SS") as (r, i):
        if by_coordinate:
            Y[i] = P[r, i]
        else:
            P[r, i] = P[r, i] + P[r, i]
    return sparse_fuse(p.finish(), "scatter", ("R", "I"))


def test_vectorize():
    program = tiled()
    stage2 = vectorize_spatial("edges_1")(lower(program))
    assert [line for line in loops(stage2) if "vectorized" in line] == ["for k_1 in T.vectorized(T.int64(2)):"]


@pytest.mark.parametrize(
    "features, ranges",
    [
        (128, ["T.vectorized(T.int64(128))"]),
        (256, ["range(T.int64(4))", "T.vectorized(T.int64(64))"]),
        (735, ["range(T.int64(15))", "T.vectorized(T.int64(49))"]),
        (131, []),
    ],
)
def test_long_vectors_are_cut(features, ranges):
    """Over vectors of hundreds of lanes LLVM takes minutes; no vector divides a prime."""
    program = tile_axis(small_aggregation(features=features), "K", ((features,),))
    before, after = lower(program), vectorize_spatial("edges_0")(lower(program))
    changed = [line for line in loops(after) if line not in loops(before)]
    assert [line.partition(" in ")[2].rstrip(":") for line in changed] == ranges


def test_vectorize_refuses_a_reduction():
    program = csr_spmm(4)
    with pytest.raises(StageIError, match="'spmm' is not over one spatial axis"):
        vectorize_spatial("spmm")(lower(program))


def scalar_store(read_ahead: bool):
    p = ProgramBuilder("bad")
    K = p.dense_fixed("K", 4)
    X = p.buffer("X", (K,), "float32")
    Y = p.buffer("Y", (), "float32")
    with p.iterate("body", (K,), "S") as (k,):
        if read_ahead:
            X[k] = X[3 - k]
        else:
            Y[()] = X[k]
    return p.finish()


def test_vectorize_refuses_stores_to_one_place():
    program = scalar_store(False)
    with pytest.raises(StageIError, match="stores every element to the same place of 'Y'"):
        vectorize_spatial("body")(lower(program))


def test_vectorize_refuses_a_buffer_read_elsewhere():
    program = scalar_store(True)
    with pytest.raises(StageIError, match="reads buffer 'X' elsewhere than it writes it"):
        vectorize_spatial("body")(lower(program))


def test_parallelize():
    program = csr_spmm(4)
    stage2 = parallelize_spatial("spmm")(lower(program))
    assert loops(stage2)[0] == "for i in T.parallel(m):"


def test_parallelize_passes_over_loops_of_one_turn():
    """Rows that are listed under a root of one element, as in doubly compressed matrices."""
    p = ProgramBuilder("listed_rows")
    m, n, rows, nnz = p.sizes("m", "n", "rows", "nnz")
    Z = p.dense_fixed("Z", 1)
    I = p.sparse_variable("I", Z, (m, rows), ("I_indptr", "I_indices"))
    J = p.sparse_variable("J", I, (n, nnz), ("J_indptr", "J_indices"))
    A, Y = p.buffer("A", (Z, I, J), "float32"), p.buffer("Y", (Z, I), "float32")
    with p.iterate("sums", (Z, I, J), "SSR") as (z, i, j):
        with p.init():
            Y[z, i] = 0.0
        Y[z, i] = Y[z, i] + A[z, i, j]
    program = p.finish()
    stage2 = parallelize_spatial("sums")(lower(program))
    assert [line.split(" in ")[0] for line in loops(stage2)] == ["for z", "for i", "for j"]
    assert [line for line in loops(stage2) if "parallel" in line] == [loops(stage2)[1]]


def test_parallelize_refuses_reductions_and_nested_iterations():
    program = rgms_heterogeneous(2, 2)
    with pytest.raises(StageIError, match="begins with axis 'R', which is not spatial"):
        parallelize_spatial("rgms")(lower(program))
    program = tiled()
    with pytest.raises(StageIError, match="'out_0' is nested in another"):
        parallelize_spatial("out_0")(lower(program))


def test_parallelize_refuses_rows_that_may_repeat():
    program = rows_under_relations(unique=False, by_coordinate=True)
    with pytest.raises(StageIError, match="visits axis 'I', whose coordinates may repeat"):
        parallelize_spatial("scatter")(lower(program))
    # the places in the list are distinct even where the rows are not
    program = rows_under_relations(unique=False, by_coordinate=False)
    assert parallelize.refuses(lower(program), program.iteration("scatter")) is None


def test_bind_rows_to_blocks_and_features_to_threads():
    p = ProgramBuilder("scale")
    m = p.size("m")
    I, K = p.dense_fixed("I", m), p.dense_fixed("K", 64)
    X = p.buffer("X", (I, K), "float32")
    with p.iterate("scale", (I, K), "SS") as (i, k):
        X[i, k] = X[i, k] * 2.0
    program = p.finish()
    bound = loops(bind_spatial("scale")(lower(program)))
    assert bound == [
        'for i in T.thread_binding(m, thread="blockIdx.x"):',
        'for k in T.thread_binding(T.int64(64), thread="threadIdx.x"):',
    ]


def test_bind_cuts_a_single_loop_into_blocks():
    p = ProgramBuilder("scale")
    m = p.size("m")
    I = p.dense_fixed("I", m)
    X = p.buffer("X", (I,), "float32")
    with p.iterate("scale", (I,), "S") as (i,):
        X[i] = X[i] * 2.0
    program = p.finish()
    text = bind_spatial("scale")(lower(program)).script()
    assert (
        'T.thread_binding(T.int64(128), thread="threadIdx.x")' in text
        and "if i_block * T.int64(128) + i_thread < m" in text
    )


def test_bind_runs_dependent_rows_in_one_thread():
    program = rgms_heterogeneous(2, 2)
    text = bind_spatial("rgms")(lower(program)).script()
    assert 'T.thread_binding(T.int64(1), thread="blockIdx.x")' in text


def test_prefetch():
    program = tiled()
    text = prefetch_gather("edges_tile_0", "X0", 0, 6, 16)(lower(program)).script()
    assert text.count("prefetch") == 1
    # no index behind the last one is read
    assert re.search(r"indices\[T\.min\(.* \+ T\.int64\(16\), nnz - T\.int64\(1\)\)\]", text)


@pytest.mark.parametrize(
    "iteration, buffer, distance, reason",
    [
        ("edges_0", "X0", 16, "is not over one sparse axis"),
        ("edges_tile_0", "X0", 0, "distance 0 is not positive"),
        ("edges_tile_0", "C", 16, "not on two axes"),
    ],
)
def test_prefetch_refuses(iteration, buffer, distance, reason):
    program = tiled()
    with pytest.raises(StageIError, match=reason):
        prefetch_gather(iteration, buffer, 0, 6, distance)(lower(program))

"""The segmented scan of a chunk of non-zeros, and the chunks themselves: against sums of rows, bit by bit where order
is said.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from gnn_sparse_backend.compiler.codegen import build_jit, cuda_target
from gnn_sparse_backend.compiler.codegen.cuda.machine_code import cuda_source
from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.lowering import lower
from gnn_sparse_backend.compiler.position.interpret import run_loops
from gnn_sparse_backend.compiler.schedules.primitives.cuda.segments import scan_segments
from gnn_sparse_backend.compiler.schedules.teams import team_schedule
from gnn_sparse_backend.compiler.transforms.compact import compact_parameters
from gnn_sparse_backend.compiler.transforms.dense_axes.tile import tile_axis
from gnn_sparse_backend.formats.partitions.chunks import chunk_rows
from gnn_sparse_backend.ops.message.programs.aggregate import AggregateSpec, aggregate
from gnn_sparse_backend.ops.message.programs.message import parse
from gnn_sparse_backend.ops.message.programs.operands import Operand

WARP = 32
SCAN = team_schedule(WARP, scan_segments("edges_tile_0", WARP), teams=2)
LENGTHS = {
    "odd": (0, 5, 1, 40, 0, 0, 31, 2, 70, 1, 1, 0),
    "one row": (0, 3 * WARP + 5),
    "rows of one": (1,) * (WARP + 1),
    "whole chunks": (WARP, 2 * WARP, 16, 16),
    "one non-zero": (0, 1, 0),
}


def program_of(features: int, widths=(), **more):
    operands = (
        Operand("column", (features,), "float32"),
        Operand("edge", (1,), "float32"),
        Operand("row", (1,), "float32"),
    )
    spec = AggregateSpec(parse("mul(mul(x0, x1), x2)"), operands, (features,), numbered=True, **more)
    return tile_axis(
        compact_parameters(aggregate(spec, stage=False)), "K", tuple((w,) for w in (widths or (features,)))
    )


def chunks_of(lengths):
    indptr = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)
    return indptr, *chunk_rows(indptr, int(indptr[-1]), WARP)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_chunks_of_rows(lengths):
    """Every non-zero once, in order; pieces within one row and one chunk, none empty, none that could be joined to the
    next.
    """
    _indptr, chunk_ptr, starts, row_of_piece = chunks_of(lengths)
    assert {x.dtype for x in (chunk_ptr, starts, row_of_piece)} == {torch.int32}
    row = np.repeat(np.arange(len(lengths)), lengths)
    nnz, pieces = len(row), len(row_of_piece)
    expected = [e for e in range(nnz) if e % WARP == 0 or row[e] != row[e - 1]]
    assert starts.tolist() == [*expected, nnz] and row_of_piece.tolist() == row[expected].tolist()
    assert chunk_ptr.tolist() == [np.searchsorted(expected, c) for c in range(0, nnz, WARP)] + [pieces]
    assert pieces < np.count_nonzero(lengths) + -(-nnz // WARP)


@pytest.mark.parametrize(
    "lengths, features, reduce",
    [
        ("odd", 3, "mean"),
        ("one row", 2, "sum"),
        ("rows of one", 2, "sum"),
        ("whole chunks", 2, "sum"),
        ("one non-zero", 1, "sum"),
    ],
)
def test_a_scan_gives_the_sums_of_pieces(lengths, features, reduce):
    """Against the program itself, and NumPy; a last chunk that is not full; no column that no edge leads to is read,
    and every piece is stored once.
    """
    _, chunk_ptr, starts, row_of_piece = (x.numpy() for x in chunks_of(LENGTHS[lengths]))
    rng = np.random.default_rng(0)
    pieces, nnz, n = len(row_of_piece), int(starts[-1]), 7
    indices, numbers = rng.integers(0, n - 1, nnz), rng.permutation(nnz)
    x, w, r = rng.standard_normal((n, features)), rng.standard_normal((nnz, 1)), rng.standard_normal((pieces, 1))
    x[n - 1] = np.inf
    arguments = {
        "num_groups": len(chunk_ptr) - 1,
        "m": pieces,
        "n": n,
        "nnz": nnz,
        "num_edges": nnz,
        "group_ptr": chunk_ptr,
        "indptr": starts,
        "indices": indices,
        "E": numbers,
        "X0": x,
        "X1": w,
        "X2": r,
        "C": np.full((pieces, features), np.nan),
    }
    if reduce == "mean":
        arguments["D"] = np.diff(starts)
    program = program_of(features, reduce=reduce)
    want = np.add.reduceat(x[indices] * w[numbers], starts[:-1]) * r
    if reduce == "mean":
        want /= np.diff(starts)[:, None]
    np.testing.assert_allclose(interpret(program, arguments)["C"], want, rtol=0, atol=1e-12)
    np.testing.assert_allclose(run_loops(stage3(program, SCAN, serial=True), arguments)["C"], want, rtol=0, atol=1e-12)


def test_five_shuffles_that_all_lanes_meet():
    """For each feature, one of each step of the scan, among all lanes of the warp, under no condition but whether there
    is a chunk.
    """
    kernel = cuda_source(build_jit(stage3(program_of(2), SCAN), cuda_target("sm_80"))).split('extern "C"')[-1]
    lines = kernel.splitlines()
    shuffles = [n for n, line in enumerate(lines) if "__shfl_" in line]
    found = [
        re.fullmatch(
            r" *\w+_below_ptr\[(\d)\] = __shfl_up_sync\(\(uint\)4294967295, \w+_scan_ptr\[\1\], (\d+), 32\);", lines[n]
        )
        for n in shuffles
    ]
    assert all(found) and [int(m[2]) for m in found] == [step for step in (1, 2, 4, 8, 16) for _ in range(2)]
    for n in shuffles:
        before = "\n".join(lines[:n])
        assert before.count("{") - before.count("}") == 2  # the function, and the chunk
    around = next(line for line in lines if line.strip().startswith("if"))
    assert "threadIdx.x" not in around and around.rstrip().endswith("< num_groups) {")
    assert (
        "atomic" not in kernel
        and "__sync" not in kernel.replace("__shfl_up_sync", "")
        and "for (" not in kernel.split("__shfl_")[0]
    )
    # what is loaded of a non-zero does not wait for the search of its row
    assert all("row_ptr[0]" not in part for part in re.findall(r"(?:indices|E)_ptr\[[^\]]*\]+", kernel))


@pytest.mark.parametrize(
    "make, words",
    [
        (
            lambda: stage3(program_of(2), team_schedule(8, scan_segments("edges_tile_0", 8), teams=2)),
            "a chunk is the work of a warp of 32 lanes, not of 8",
        ),
        (
            lambda: scan_segments("rows", WARP)(lower(program_of(2))),
            "'rows' is not nested in one over rows in groups",
        ),
        (
            lambda: scan_segments("out_0", WARP)(lower(program_of(2))),
            "'out_0' is not a plain reduction over the non-zeros of a row",
        ),
        (lambda: stage3(program_of(4, (2, 2)), SCAN), "is not the only one in 'rows' of a run-time length"),
        (lambda: stage3(program_of(2, reduce="max"), SCAN), "holds more than sums over one static axis each"),
    ],
    ids=range(5),
)
def test_refusals(make, words):
    with pytest.raises(StageIError, match=re.escape(words)):
        make()

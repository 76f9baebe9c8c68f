"""Fragments of Tensor Cores: which lane holds what, and programs in fragments against products of matrices, without a
GPU.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest
import tvm

from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.library.products import csr_spmm
from gnn_sparse_backend.compiler.lowering import lower
from gnn_sparse_backend.compiler.position.interpret import run_loops
from gnn_sparse_backend.compiler.schedules.primitives.cuda.mma import multiply_fragments
from gnn_sparse_backend.compiler.schedules.teams import team_schedule
from gnn_sparse_backend.compiler.transforms import decompose_format
from gnn_sparse_backend.compiler.transforms.block_rules import bsr_rule, sr_bcrs_rule
from gnn_sparse_backend.ops.core.tiles.windows import instructions
from gnn_sparse_backend.ops.grouped import schedules_cuda as cuda_grouped
from gnn_sparse_backend.ops.grouped.programs.grouped_tiles import TilesSpec, grouped_tiles
from gnn_sparse_backend.ops.grouped.programs.outer_tiles import SHARED as SHARED_ROWS
from gnn_sparse_backend.ops.grouped.programs.outer_tiles import OuterSpec, chunk_of, grouped_sum_tiles
from gnn_sparse_backend.ops.message.programs.bsr_tiles import BsrTilesSpec, bsr_tiles


def test_the_layout_of_fragments_is_tvms():
    """Which lane holds what, against TVM's own table of it, which has two columns of tiles of C side by side."""
    path = Path(tvm.__file__).parent / "s_tir" / "tensor_intrin" / "cuda.py"  # whose import parses for minutes
    wanted = "shared_16x16_to_ldmatrix_32x8_layout"
    found = next(f for f in ast.parse(path.read_text()).body if getattr(f, "name", "") == wanted)
    scope: dict = {}
    exec(compile(ast.Module([found], []), str(path), "exec"), scope)
    for i in range(16):
        for j in range(16):
            lane, local = scope[found.name](i, j)
            # of A: register i // 8 + 2 (j // 8), element j % 2 of two; of C in its left half: register 2 (i // 8) + j %
            # 2
            assert lane == (i % 8) * 4 + (j % 8) // 2
            assert local == 4 * (j // 8) + 2 * (i // 8) + j % 2


@pytest.mark.short(2)
@pytest.mark.parametrize("by_columns", [False, True], ids=["by rows", "by columns"])
@pytest.mark.parametrize("dtype, run", [("float16", interpret), ("float16", run_loops), ("float32", run_loops)])
def test_fragments_give_the_product(dtype, run, by_columns):
    """The program in its own terms, and its loops without the instruction, against a product of matrices."""
    program = grouped_tiles(TilesSpec(16, 8, 1, (True, False), dtype, by_columns=by_columns))
    rng = np.random.default_rng(0)
    a, w = rng.integers(-4, 5, (9, 16)) / 4, rng.integers(-4, 5, (2, 8, 16)) / 4
    rows = rng.integers(0, 9, 12)  # a panel that is not full
    arguments = {
        "num_groups": 1,
        "num_panels": 1,
        "relations": 2,
        "rows_a": 9,
        "rows_c": 12,
        "positions": 12,
        "group_ptr": np.array([0, 1]),
        "Start": np.array([0]),
        "Stop": np.array([12]),
        "Relation": np.array([1]),
        "RowsA": rows,
        "A": a,
        "W": w if by_columns else w.swapaxes(1, 2),
        "C": np.full((12, 8), np.nan),
    }
    subject = (
        program
        if run is interpret
        else stage3(program, team_schedule(32, multiply_fragments("mma"), teams=4), serial=True)
    )
    np.testing.assert_allclose(run(subject, arguments)["C"], a[rows] @ w[1].T, rtol=0, atol=1e-12)


@pytest.mark.short(2)
@pytest.mark.parametrize(
    "widths, chunks, run, dtype, pipelined",
    [
        ((1, 7), 2, interpret, "float32", False),
        ((15, 1), 2, run_loops, "float32", False),
        ((1, 7), 2, interpret, "float32", True),
        ((15, 1), 2, run_loops, "float32", True),
        ((16, 8), 1, run_loops, "bfloat16", True),
        ((3, 2), 0, run_loops, "float16", True),
    ],
)
def test_fragments_give_the_sum_of_outer_products(widths, chunks, run, dtype, pipelined):
    """The same of a sum, of any widths: chunks of which the last is not full, or none, beside rows of others that are
    NaN.
    """
    program = grouped_sum_tiles(OuterSpec(*widths, gathered=(True, False), pipelined=pipelined, dtype=dtype))
    chunk = chunk_of(dtype)
    rng = np.random.default_rng(0)
    count, start = max(0, (chunks - 1) * chunk + 3), 2
    a, g = rng.integers(-4, 5, (9, widths[0])) / 4, np.full((start + count + 5, widths[1]), np.nan)
    g[start : start + count] = rng.integers(-4, 5, (count, widths[1])) / 4
    rows = rng.integers(0, 9, len(g))
    arguments = {
        "num_tasks": 1,
        "num_chunks": chunks,
        "slots": 2,
        "rows_a": 9,
        "rows_g": len(g),
        "positions": len(g),
        "task_ptr": np.array([0, chunks]),
        "Slot": np.array([1]),
        "Start": start + chunk * np.arange(chunks),
        "Stop": np.minimum(start + chunk * np.arange(1, chunks + 1), start + count),
        "RowsA": rows,
        "A": a,
        "G": g,
        "W": np.full((2, *widths), np.nan),
    }
    schedule = team_schedule(32, *map(multiply_fragments, instructions(pipelined)), teams=1, shared=SHARED_ROWS)
    found = run(program if run is interpret else stage3(program, schedule, serial=True), arguments)["W"]
    here = slice(start, start + count)
    np.testing.assert_allclose(found[1], a[rows[here]].T @ g[here], rtol=0, atol=1e-12)
    assert np.isnan(found[0]).all()


@pytest.mark.short(1)
@pytest.mark.parametrize("run", [interpret, run_loops])
@pytest.mark.parametrize("listed, part, pipelined", [(False, 1, True), (True, 4, True), (True, 1, False)])
def test_fragments_give_the_product_of_blocks(listed, part, pipelined, run):
    """Rows and columns that the last blocks lack, a block row of none, what a row of a block must not meet, and a block
    that has fewer elements than lanes could load at once: nothing past its end is looked at.
    """
    width = 4 if part == 4 else 3
    program = bsr_tiles(BsrTilesSpec(width, part=part, listed=listed, pipelined=pipelined, dtype="float32"))
    rng = np.random.default_rng(0)
    rows, cols = 35, 13
    mask = rng.random((rows, cols)) < 0.3
    mask[16:32] = mask[:16, 8:] = False  # blocks (0, 0), (2, 0) and (2, 1) alone
    mask[:4, 2], mask[32, ::2] = (True, False, True, False), True
    dense, x = np.where(mask, rng.integers(-4, 5, (rows, cols)) / 4, 0.0), rng.integers(-4, 5, (cols, width)) / 4
    x[2, 1] = np.inf
    padded, there = np.zeros((48, 16)), np.zeros((48, 16), np.uint8)
    padded[:rows, :cols], there[:rows, :cols] = dense, mask
    columns = np.arange(16).reshape(2, 8)[[0, 0, 1]]  # of each block, 13 and on for what the matrix lacks
    if listed:
        touched = [np.flatnonzero(mask[:16].any(0)), np.flatnonzero(mask[32:].any(0))]
        columns = np.concatenate([np.append(some, np.full(-len(some) % 8, 13)) for some in touched]).reshape(3, 8)
        arrays = {"Columns": np.where(columns < cols, columns, -1)}
    else:
        arrays = {"block_cols": 2, "indices": np.array([0, 0, 1])}
    at = np.array([0, 32, 32])[:, None, None] + np.arange(16)[:, None], columns[:, None]
    arguments = {
        "block_rows": 3,
        "blocks": 3,
        "rows": rows,
        "cols": cols,
        "indptr": np.array([0, 1, 1, 3]),
        **arrays,
        "A": padded[at][None],
        "X": x[:, None],
        "Y": np.full((rows, 1, width), -1.0),
        "Mask": there[at],
    }
    schedule = team_schedule(32, *map(multiply_fragments, instructions(pipelined)), teams=1, shared=("Rows",))
    found = run(program if run is interpret else stage3(program, schedule, serial=True), arguments)["Y"][:, 0]
    with np.errstate(invalid="ignore"):  # 0 * Inf, where the matrix stores a zero
        expected = np.stack(
            [sum((dense[i, j] * x[j] for j in np.flatnonzero(mask[i])), np.zeros(width)) for i in range(rows)]
        )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert np.isfinite(found[1]).all() and not np.isfinite(found).all()
    product = csr_spmm(width)
    rule = (sr_bcrs_rule if listed else bsr_rule)(product, (16, 8), name="b")
    names = {"block_rows": "tiles_b", "blocks": "groups_b"} if listed else {"block_rows": "mb_b", "blocks": "nnzb_b"}
    names |= {"block_cols": "nb_b", "A": "A_b", "Mask": "mask_b", "X": "B", "rows": "m", "cols": "n", "Y": "C"}
    given = {names.get(name, f"{name}_b"): value for name, value in arguments.items()}
    given |= {"A_b": arguments["A"][0], "B": x, "C": np.full((rows, width), np.nan)}
    composed = interpret(decompose_format(product, [rule], copies=False), given)["C"]
    np.testing.assert_allclose(found, composed, rtol=0, atol=1e-12)


def test_only_what_an_instruction_computes_is_replaced():
    program = grouped_tiles(TilesSpec(16, 8))
    stage2 = lower(program)
    with pytest.raises(StageIError, match="'store' is not one store over two spatial axes and a reduction"):
        multiply_fragments("store")(stage2)


def test_what_tiles_do_not_take_is_refused():
    with pytest.raises(StageIError, match=re.escape("matrices of shape (16, 0) have no elements")):
        grouped_tiles(TilesSpec(16, 0))
    with pytest.raises(StageIError, match="grouped_sum_tiles: parts of 4 do not divide rows of 18 features"):
        grouped_sum_tiles(OuterSpec(18, 8, parts=(4, 4)))
    with pytest.raises(StageIError, match="grouped_sum_tiles: Tensor Cores do not multiply float64 here"):
        grouped_sum_tiles(OuterSpec(16, 8, dtype="float64"))
    assert cuda_grouped.tiles(64, 64, "float64", "sm_90") == 0 and cuda_grouped.tiles(4096, 64, "float16", "sm_90") == 0
    assert cuda_grouped.tiles(64, 64, "float16", "sm_90a") == 2 and cuda_grouped.tiles(64, 64, "float16", "sm_75") == 0

"""Relational products in fragments, by blocks that own rows of the result."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.position.interpret import run_loops
from gnn_sparse_backend.compiler.schedules.primitives.cuda.mma import multiply_fragments
from gnn_sparse_backend.compiler.schedules.teams import team_schedule
from gnn_sparse_backend.formats.partitions.relational import relation_pairs
from gnn_sparse_backend.formats.partitions.relational_tiles import row_tiles
from gnn_sparse_backend.ops.relational.programs.rgms_rows import SHARED, RgmsRowsSpec, rgms_rows
from gnn_sparse_backend.ops.relational.schedules_cuda_rows import (
    ACCUMULATED,
    MOST_ROWS,
    SHARED_BYTES,
    ProductShape,
    rows_of_block,
    rows_spec,
)

SIZES = 20, 6, 3, 24
"""Rows, columns, relations and edges."""


def drawn_tiles(rng, spec):
    """(rows, columns and relations of edges, their tiles, arguments of a kernel on these): the last tile is not full,
    and one relation has no edges.
    """
    rows, cols, relations, edges = SIZES
    ends = rng.integers(0, rows - 1, edges), rng.integers(0, cols, edges), rng.integers(0, 2, edges) * 2
    pairs = relation_pairs(*map(torch.from_numpy, ends), rows, cols, relations)
    tiles = row_tiles(pairs, spec.rows, spec.shares, 99, 9)
    arrays = {
        "panel_ptr": tiles.panel_ptr,
        "owned_ptr": np.arange(tiles.panels + 1) * spec.shares,
        "share_ptr": tiles.share_ptr,
        "indices": tiles.indices,
        "Start": tiles.row_ptr[:-1],
        "Stop": tiles.row_ptr[1:],
        "Relation": tiles.relation,
        "Place": tiles.place,
        "Row": tiles.row,
    }
    sizes = {"num_tiles": tiles.tiles, "panels": tiles.panels, "shares": tiles.panels * spec.shares, "nnz": edges}
    sizes |= {"cols": cols, "relations": relations, "rows": rows}
    return ends, tiles, sizes | {name: np.asarray(array) for name, array in arrays.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "run, spec",
    [
        (interpret, RgmsRowsSpec(3, 5, lanes=8, weighted=True, dtype="float32", out_dtype="float32")),
        (run_loops, RgmsRowsSpec(16, 8, lanes=16, out_dtype="float32")),
        (
            interpret,
            RgmsRowsSpec(3, 5, tiles=(2, 1), across=4, lanes=8, weighted=True, dtype="float32", out_dtype="float32"),
        ),
        (run_loops, RgmsRowsSpec(8, 36, (1, 1), (2, 1), 8, 16, 1, False, 1, "float32", "float32")),
        pytest.param(
            interpret,
            RgmsRowsSpec(5, 10, tiles=(1, 2), lanes=8, dtype="float32", out_dtype="float32"),
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            interpret, RgmsRowsSpec(4, 9, tiles=(1, 2), lanes=8, out_dtype="float32"), marks=pytest.mark.exhaustive
        ),
        (interpret, RgmsRowsSpec(6, 12, tiles=(1, 2), lanes=8, dtype="bfloat16", out_dtype="float32", by_columns=True)),
        (
            interpret,
            RgmsRowsSpec(
                3,
                5,
                tiles=(2, 1),
                across=4,
                lanes=8,
                weighted=True,
                dtype="float32",
                out_dtype="float32",
                by_columns=True,
            ),
        ),
    ],
    ids=[
        "padded, interpreted",
        "whole, float16",
        "full precision, padded, interpreted",
        "full precision, vectors",
        "columns in pairs, tf32",
        "columns in pairs, padded",
        "by columns",
        "full precision, by columns",
    ],
)
def test_blocks_give_the_sums_of_products(run, spec):
    """Two tiles of rows, the last not full, one row without edges and one relation; matrices of relations that a row
    has no edges of are NaN in a term, which reaches the rows that have."""
    rng = np.random.default_rng(0)
    rows, cols, relations, edges = SIZES
    (row, col, relation), tiles, arguments = drawn_tiles(rng, spec)
    x = rng.integers(-4, 5, (cols, 1, spec.in_features)) / 4
    w = rng.integers(-4, 5, (relations, 1, spec.out_features, spec.in_features)) / 4
    w[1], w[2, 0, 0, 0] = np.nan, np.nan
    given = w if spec.by_columns else np.ascontiguousarray(w.swapaxes(2, 3))
    a = rng.integers(1, 5, edges) / 4 if spec.weighted else np.ones(edges)
    output = np.full((rows, 1, spec.out_features), -1.0)
    arguments |= {"Present": np.asarray(tiles.present), "X": x, "W": given, "O": output}
    if spec.weighted:
        arguments["A"] = a[np.asarray(tiles.edge_ids)]
    program = rgms_rows(spec)
    schedule = team_schedule(32, *map(multiply_fragments, spec.product.instruction), teams=1, shared=(SHARED,))
    found = run(program if run is interpret else stage3(program, schedule, serial=True), arguments)["O"][:, 0]
    expected = np.zeros((rows, spec.out_features))
    for e in range(edges):
        expected[row[e]] += a[e] * (w[relation[e], 0] @ x[col[e], 0])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    met = np.isin(np.arange(rows), row[relation == 2])
    assert np.array_equal(np.isnan(found[:, 0]), met) and 0 < met.sum() < rows


def test_shapes_of_blocks():
    for widths, dtype in (
        ((64, 64), "float16"),
        ((16, 16), "bfloat16"),
        ((128, 128), "float16"),
        ((64, 64), "float32"),
        ((37, 11), "float32"),
        ((8, 4), "bfloat16"),
        ((300, 500), "float16"),
    ):
        spec = rows_spec(ProductShape(*widths, dtype, "sm_90"))
        assert spec.width * spec.grid >= widths[1] and spec.tiles[0] * spec.tiles[1] <= ACCUMULATED, spec
        assert (
            16 <= spec.rows <= MOST_ROWS and spec.shared_bytes <= SHARED_BYTES and spec.warps[0] * spec.warps[1] == 4
        ), spec
        assert widths[0] % spec.part == 0 and 8 <= spec.lanes <= 32 and spec.stride >= widths[0], spec
        # rows of a fragment begin at different ones of the 32 banks of 4 bytes
        words = spec.stride * (4 if dtype == "float32" else 2) // 4
        assert len({words * row % 32 for row in range(8)}) == 8, spec
    square = rows_spec(ProductShape(64, 64, "float16", "sm_90"))
    assert (square.rows, square.grid, square.lanes, square.part, square.shares) == (64, 1, 16, 4, 8)
    assert (
        rows_spec(ProductShape(64, 512, "float16", "sm_90")).grid == 2
        and rows_spec(ProductShape(64, 4, "float16", "sm_90")).rows == 128
    )
    assert [rows_of_block(n) for n in (10_000, 20_000, 100_000, 10**7)] == [8, 16, 64, 128] and rows_of_block(
        10_000, 8
    ) == 64
    assert (
        rows_spec(ProductShape(64, 64, "float16", "sm_90"), most=32).rows == 32
        and rows_spec(ProductShape(64, 64, "float16", "sm_90"), most=8) is None
    )
    for widths, dtype, arch in (
        ((64, 64), "float64", "sm_90"),
        ((64, 64), "float16", "sm_75"),
        ((1, 1), "float16", "sm_90"),
        ((2000, 64), "float16", "sm_90"),
    ):
        assert rows_spec(ProductShape(*widths, dtype, arch)) is None


def test_shapes_of_blocks_in_full_precision():
    """On any GPU, and for a number of rows that is less than a tile of Tensor Cores has."""
    for widths in ((64, 64), (16, 16), (128, 128), (37, 11), (8, 4), (1, 1), (64, 500)):
        spec = rows_spec(ProductShape(*widths, "float32", "sm_75", full=True))
        assert spec.across in (2, 4, 8) and spec.product.rows * spec.product.columns == 128, spec
        assert spec.width * spec.grid >= widths[1] and spec.tiles[0] * spec.tiles[1] <= ACCUMULATED, spec
        assert spec.rows <= MOST_ROWS and spec.shared_bytes <= SHARED_BYTES and spec.warps[0] * spec.warps[1] == 4, spec
    square = rows_spec(ProductShape(64, 64, "float32", "sm_90", full=True))
    assert (square.rows, square.grid, square.width, square.across) == (64, 1, 64, 8)
    assert (
        rows_spec(ProductShape(64, 64, "float32", "sm_90", full=True), most=8).rows == 8
        and rows_spec(ProductShape(64, 64, "float32", "sm_90"), most=8) is None
    )
    assert rows_spec(ProductShape(64, 64, "float64", "sm_90", full=True)) is None


def test_what_blocks_do_not_take_is_refused():
    with pytest.raises(
        StageIError, match="rgms_rows: lanes in 3 stretches of columns do not multiply float32 in full precision"
    ):
        rgms_rows(RgmsRowsSpec(16, 8, across=3, dtype="float32"))
    with pytest.raises(StageIError, match="lanes in 8 stretches of columns do not multiply float16 in full precision"):
        rgms_rows(RgmsRowsSpec(16, 8, across=8))
    with pytest.raises(StageIError, match="rgms_rows: Tensor Cores do not multiply float64 here"):
        rgms_rows(RgmsRowsSpec(16, 8, dtype="float64"))
    with pytest.raises(StageIError, match="parts of 4 do not divide rows of 18 features"):
        rgms_rows(RgmsRowsSpec(18, 8, part=4))

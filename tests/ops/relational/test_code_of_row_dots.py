"""Dots of relational products at the edges, by blocks that own rows."""

from __future__ import annotations

import numpy as np
import pytest

from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.position.interpret import run_loops
from gnn_sparse_backend.compiler.schedules.primitives.cuda.mma import multiply_fragments
from gnn_sparse_backend.compiler.schedules.teams import team_schedule
from gnn_sparse_backend.ops.relational.programs.rgms_row_dots import SHARED, RgmsDotsSpec, rgms_row_dots
from gnn_sparse_backend.ops.relational.schedules_cuda_rows import (
    ACCUMULATED,
    DOTS_BYTES,
    MOST_ROWS,
    ProductShape,
    dots_spec,
)
from tests.ops.relational.test_code_of_rows import SIZES, drawn_tiles


@pytest.mark.parametrize(
    "run, spec",
    [
        (interpret, RgmsDotsSpec(3, 5, dtype="float32")),
        pytest.param(run_loops, RgmsDotsSpec(16, 8, parts=(4, 1), blocks=2), marks=pytest.mark.slow),
        pytest.param(run_loops, RgmsDotsSpec(6, 36, (1, 1), (2, 1), 4, (2, 2), 1, "float32"), marks=pytest.mark.slow),
        pytest.param(interpret, RgmsDotsSpec(4, 6, tiles=(1, 2)), marks=pytest.mark.exhaustive),
        pytest.param(interpret, RgmsDotsSpec(4, 6, tiles=(1, 2), by_columns=True), marks=pytest.mark.exhaustive),
        (interpret, RgmsDotsSpec(3, 6, (1, 1), (2, 1), 4, (1, 2), 1, "float32", by_columns=True)),
    ],
    ids=[
        "padded, interpreted",
        "two blocks of float16",
        "full precision, in turns",
        "columns in pairs",
        "by columns",
        "full precision, by columns",
    ],
)
def test_blocks_give_the_dots_of_products(run, spec):
    """Two tiles of rows, the last not full; a matrix that no edge is of is NaN, and a term of another, which reaches
    its edges.
    """
    rng = np.random.default_rng(0)
    (rows, cols, relations, edges), blocks = SIZES, spec.blocks
    (row, col, relation), tiles, arguments = drawn_tiles(rng, spec)
    g = rng.integers(-4, 5, (rows, blocks, spec.in_features)) / 4
    x = rng.integers(-4, 5, (cols, blocks * spec.out_features)) / 4
    w = rng.integers(-4, 5, (relations, blocks, spec.out_features, spec.in_features)) / 4
    w[1], w[2, 0, 0, 0] = np.nan, np.nan
    g[rows - 1] = np.nan
    given = w if spec.by_columns else np.ascontiguousarray(w.swapaxes(2, 3))
    arguments |= {"slots": rows, "numbers": edges, "Number": np.asarray(tiles.edge_ids)}
    arguments |= {"G": g, "X": x, "W": given, "O": np.full((edges, 1), -1.0)}
    program = rgms_row_dots(spec)
    schedule = team_schedule(32, *map(multiply_fragments, spec.product.instruction), teams=1, shared=SHARED)
    found = run(program if run is interpret else stage3(program, schedule, serial=True), arguments)["O"][:, 0]
    expected = np.array(
        [np.einsum("bk,bfk,bf->", g[row[e]], w[relation[e]], x[col[e]].reshape(blocks, -1)) for e in range(edges)]
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert np.array_equal(np.isnan(found), relation == 2) and 0 < (relation == 2).sum() < edges


def test_shapes_of_blocks():
    for widths, dtype, full in (
        ((64, 64), "float16", False),
        ((128, 128), "bfloat16", False),
        ((37, 11), "float32", False),
        ((64, 64), "float32", True),
        ((8, 4), "float32", True),
        ((16, 500), "float32", True),
    ):
        spec = dots_spec(ProductShape(*widths, dtype, "sm_90", full=full))
        assert spec.width * spec.turns >= widths[1] and spec.tiles[0] * spec.tiles[1] <= ACCUMULATED, spec
        assert 4 <= spec.rows <= MOST_ROWS and spec.shared_bytes <= DOTS_BYTES and spec.shares == 4, spec
        assert widths[0] % spec.parts[0] == widths[1] % spec.parts[1] == 0 and bool(spec.across) == full, spec
    assert (
        dots_spec(ProductShape(64, 64, "float16", "sm_75")) is None
        and dots_spec(ProductShape(64, 64, "float64", "sm_90", full=True)) is None
    )


def test_what_blocks_do_not_take_is_refused():
    with pytest.raises(StageIError, match="rgms_row_dots: Tensor Cores do not multiply float64 here"):
        rgms_row_dots(RgmsDotsSpec(16, 8, dtype="float64"))
    with pytest.raises(StageIError, match=r"parts of \(4, 1\) do not divide rows of 18 and of 1 times 8 features"):
        rgms_row_dots(RgmsDotsSpec(18, 8, parts=(4, 1)))

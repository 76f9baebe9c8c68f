"""Grouped products in full precision, by blocks of warps from shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.position.interpret import run_loops
from gnn_sparse_backend.compiler.schedules.teams import team_schedule
from gnn_sparse_backend.ops.grouped.programs.grouped_rows import SHARED, GroupedRowsSpec, grouped_rows
from gnn_sparse_backend.ops.grouped.schedules_cuda import BLOCK_ROWS, FULL_ROWS, WINDOW_BYTES, panel_of, rows_spec


@pytest.mark.parametrize(
    "run, spec",
    [
        (interpret, GroupedRowsSpec(6, 5, across=8, window=3, gathered=(True, True))),
        pytest.param(
            run_loops, GroupedRowsSpec(16, 36, (1, 1), (2, 1), 8, 8, 4, (False, True)), marks=pytest.mark.slow
        ),
        (run_loops, GroupedRowsSpec(4, 8, (2, 1), (1, 1), 2, 4, 2)),
        (interpret, GroupedRowsSpec(6, 5, across=8, window=3, by_columns=True)),
    ],
    ids=["two windows, interpreted", "vectors", "two warps", "by columns, interpreted"],
)
def test_blocks_multiply_the_rows_of_a_panel(run, spec):
    """Panels of one row up to all that a block has; a matrix that no panel is of is NaN, and so are rows that no panel
    has.
    """
    rng = np.random.default_rng(0)
    lengths = [1, spec.rows, 3]
    stop = np.cumsum(lengths)
    count, relation = stop[-1] + 2, np.array([2, 0, 2])
    a, w = (
        rng.integers(-4, 5, (count, spec.in_features)) / 4,
        rng.integers(-4, 5, (3, spec.in_features, spec.out_features)) / 4,
    )
    rows = [rng.permutation(count) if gathered else np.arange(count) for gathered in spec.gathered]
    a[rows[0][stop[-1] :]], w[1] = np.nan, np.nan
    arguments = {
        "num_groups": 3,
        "num_panels": 3,
        "relations": 3,
        "rows_a": count,
        "rows_c": count,
        "group_ptr": np.arange(4),
        "Start": stop - lengths,
        "Stop": stop,
        "Relation": relation,
        "A": a,
        "W": w.swapaxes(1, 2) if spec.by_columns else w,
        "C": np.full((count, spec.out_features), -1.0),
    }
    if any(spec.gathered):
        arguments["positions"] = count
    arguments |= {name: at for name, at, gathered in zip(("RowsA", "RowsC"), rows, spec.gathered) if gathered}
    program = grouped_rows(spec)
    found = run(
        program if run is interpret else stage3(program, team_schedule(32, teams=1, shared=(SHARED,)), serial=True),
        arguments,
    )["C"]
    expected = np.full_like(found, -1.0)
    for begin, end, r in zip(stop - lengths, stop, relation):
        expected[rows[1][begin:end]] = a[rows[0][begin:end]] @ w[r]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_shapes_of_blocks():
    for rows, *several in (
        (4, (128, 512), (64, 64)),
        (16, (602, 41), (16, 16)),
        (32, (37, 11), (8, 5)),
        (64, (64, 64), (16, 16), (602, 41), (3, 2)),
    ):
        for widths in several:
            spec = rows_spec(*widths, "float32", rows)
            assert (
                spec.rows == rows
                and spec.width * spec.grid >= widths[1]
                and widths[0] % spec.window == spec.window % spec.part == 0
            )
            assert rows * (spec.window + 8) * 4 <= WINDOW_BYTES and spec.warps[0] * spec.warps[1] == 4
    assert rows_spec(64, 64, "float32", 64).window == 32 and rows_spec(64, 64, "float32", 64).width == 64
    # a prime number of features that no window holds; a column among eight, and few columns of few rows; another type
    assert rows_spec(1433, 16, "float32", 64) is None and rows_spec(64, 1, "float32", 64) is None
    assert rows_spec(64, 16, "float32", 4) is None and rows_spec(64, 64, "float64", 64) is None
    assert [panel_of(n, 10) for n in (1, 39, 79, 80, 700, 10**6)] == [
        BLOCK_ROWS,
        BLOCK_ROWS,
        4,
        8,
        FULL_ROWS,
        FULL_ROWS,
    ]


def test_what_blocks_do_not_take_is_refused():
    with pytest.raises(StageIError, match="grouped_rows: windows of 5 features in parts of 1 do not divide 16"):
        grouped_rows(GroupedRowsSpec(16, 8, window=5))
    with pytest.raises(StageIError, match="in one stretch of columns at least"):
        grouped_rows(GroupedRowsSpec(16, 8, across=0, window=4))
    with pytest.raises(StageIError, match="in 3 stretches of columns do not multiply float32"):
        grouped_rows(GroupedRowsSpec(16, 8, across=3, window=4))

"""Which dataflow a sparse convolution takes on a CPU, and what threads share."""

from __future__ import annotations

from dataclasses import replace

from gnn_sparse_backend.planner.cpu.convolution import (
    CHUNK_ELEMENTS,
    LONGEST_CHUNK,
    MOST_ROWS,
    ConvCounts,
    chunk_of,
    conv_costs,
    shares_of_sum,
    shares_of_tasks,
    splits_of_sum,
    vectors_of,
)

# a submanifold convolution, whose rows meet as many sets of offsets as there are rows; one with an input each
SUBMANIFOLD = ConvCounts(9_882, 27, 53_946, 54_012, 5_300 * 6, 243_000)
TRANSPOSED = ConvCounts(9_882, 8, 9_882, 9_906, 9_894, 9_894)


def least(counts: ConvCounts, f_in: int, f_out: int, lanes: int = 8, groups: int = 1) -> str:
    costs = conv_costs(counts, groups, f_in, f_out, lanes, 4)
    assert set(costs) == {"offsets", "rows", "row", "rgms"} and min(costs.values()) > 0
    return min(costs, key=costs.__getitem__)


def test_the_dataflow_of_a_layer():
    assert {least(SUBMANIFOLD, n, n) for n in (32, 64, 96, 256)} == {"offsets"}
    assert least(SUBMANIFOLD, 4, 32) == "row"  # a row's products are too few to load and store sums for
    assert {least(TRANSPOSED, n, 96) for n in (32, 96, 256)} == {"rows"}
    # a vector is wider than the channels of a group: panels of relational products are as narrow
    assert least(SUBMANIFOLD, 64, 1) == "rgms"
    # nothing is multiplied for blocks that are full
    full = replace(SUBMANIFOLD, row_blocks=SUBMANIFOLD.rows, row_padded=SUBMANIFOLD.pairs)
    assert least(full, 64, 64) == "rows"


def test_costs_grow_with_what_is_done():
    few, many = (conv_costs(SUBMANIFOLD, 1, n, 64, 8, 4) for n in (32, 64))
    assert all(few[order] < many[order] for order in few)
    groups = conv_costs(SUBMANIFOLD, 4, 32, 64, 8, 4)
    assert groups["offsets"] == 4 * few["offsets"]


def test_tiles_cover_columns_with_the_least_arithmetic():
    assert [vectors_of(n, 8) for n in (1, 8, 16, 20, 24, 28, 96)] == [1, 1, 2, 1, 1, 2, 2]
    assert vectors_of(32, 8, (4, 2, 1)) == 4 and vectors_of(48, 8, (4, 2, 1)) == 2


def test_tasks():
    work = 1 << 30
    assert shares_of_tasks(100, 4, 1 << 10, 8) == (1, 1)  # too little for several threads
    for rows, threads in ((409, 2), (2_655, 2), (9_882, 16), (1_000_000, 64)):
        ranges, splits = shares_of_tasks(rows, 6, work, threads)
        assert ranges * splits >= min(threads, 6) and 2 * rows / ranges <= MOST_ROWS
        assert splits == 1 or rows // ranges >= 64
    assert shares_of_tasks(9_882, 6, work, 2)[0] % 2 == 0


def test_shares_of_sums():
    assert shares_of_sum(100, 1 << 20) == 1 and shares_of_sum(10**6, 64) == 30
    assert shares_of_sum(53_946, 96 * 96) == 28 and shares_of_sum(53_946, 256 * 256) == 8
    assert splits_of_sum(8, 16, 1 << 30, 2) == 1 and splits_of_sum(8, 16, 1 << 30, 16) == 4
    assert splits_of_sum(1, 16, 1 << 30, 2) == 4 and splits_of_sum(1, 16, 1 << 10, 2) == 1
    for width in (1, 16, 64, 256, 1000):
        pairs, stride = chunk_of(width)
        assert stride >= width and stride // 16 % 2 == 1 and 1 <= pairs <= LONGEST_CHUNK
        assert pairs * stride <= CHUNK_ELEMENTS
    assert chunk_of(CHUNK_ELEMENTS + 1)[0] == 0

"""hyb(c, k): the buckets against a row-by-row reading of the paper, padding, splitting, refusals, speed."""

import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnn_sparse_backend.formats import HybFormat
from gnn_sparse_backend.formats.hyb import MAX_EXPONENT, MAX_PARTITIONS, default_exponent
from tests.counting import Work
from tests.formats.structures import Structure, many, structures


def buckets_by_definition(s, c, k):
    """{(partition, width): [(row, [position, ...]), ...]}, rows ascending, parts of a row in order."""
    partition_width = max(math.ceil(s.n_cols / c), 1)
    buckets, first = defaultdict(list), 0
    for i, row in enumerate(s.rows):
        for p in range(c):
            rest = [first + j for j, col in enumerate(row) if col // partition_width == p]
            while rest:
                part, rest = rest[: 2**k], rest[2**k :]
                buckets[p, 2 ** math.ceil(math.log2(len(part)))].append((i, part))
        first += len(row)
    return buckets


@many
@given(s=structures(max_degree=19), c=st.integers(1, 4), k=st.integers(0, 5), keep_empty=st.booleans())
def test_buckets_are_those_of_the_paper(s, c, k, keep_empty):
    fmt = HybFormat.from_csr(*s.csr, c, k, keep_empty=keep_empty)
    expected = buckets_by_definition(s, c, k)
    keys = sorted(expected) if not keep_empty else [(p, 2**b) for p in range(c) for b in range(k + 1)]
    assert [(bucket.partition, bucket.width) for bucket in fmt.buckets] == keys
    columns = [col for row in s.rows for col in row]
    for bucket in fmt.buckets:
        rows = expected[bucket.partition, bucket.width]
        assert bucket.row_indices.tolist() == [row for row, _ in rows] and bucket.num_rows == len(rows)
        assert bucket.value_position.shape == bucket.indices.shape == (len(rows), bucket.width)
        assert bucket.value_position.tolist() == [part + [-1] * (bucket.width - len(part)) for _, part in rows]
        assert bucket.indices.tolist() == [
            [columns[p] for p in part] + [-1] * (bucket.width - len(part)) for _, part in rows
        ]
        assert bucket.nnz == sum(len(part) for _, part in rows)
        assert bucket.padding == (len(rows) * bucket.width / bucket.nnz - 1 if rows else 0.0)
        assert bucket.padding < 1
    occurrences = [row for rows in expected.values() for row, _ in rows]
    assert fmt.disjoint == (len(occurrences) == len(set(occurrences)))
    assert fmt.padding < 1 and fmt.partition_width == math.ceil(s.n_cols / c)


def test_a_long_row_is_split_into_adjacent_parts():
    s = Structure(((0,), tuple(range(11)), (1, 2)), 11, torch.int32)
    fmt = HybFormat.from_csr(*s.csr, c=1, k=2)
    assert [(b.width, b.row_indices.tolist()) for b in fmt.buckets] == [(1, [0]), (2, [2]), (4, [1, 1, 1])]
    assert not fmt.disjoint and fmt.num_slots == 15
    # The rest of 13 = 4 + 4 + 4 + 1 goes to the narrow bucket.
    longer = Structure((tuple(range(13)),), 13, torch.int32)
    fmt = HybFormat.from_csr(*longer.csr, c=1, k=2)
    assert [(b.width, b.row_indices.tolist()) for b in fmt.buckets] == [(1, [0]), (4, [0, 0, 0])] and fmt.padding == 0


def test_unsplit_rows_of_one_partition_are_disjoint():
    s = Structure(((0, 1), (), (2,)), 4, torch.int64)
    assert HybFormat.from_csr(*s.csr, c=1, k=1).disjoint
    assert HybFormat.from_csr(*s.csr, c=2, k=1).disjoint
    assert not HybFormat.from_csr(*s.csr, c=4, k=1).disjoint


@many
@given(st.integers(0, 3000), st.integers(1, 50))
def test_default_exponent_is_the_rounded_up_logarithm_of_the_mean_degree(nnz, n_rows):
    k = default_exponent(nnz, n_rows)
    assert nnz <= n_rows * 2**k and (k == 0 or nnz > n_rows * 2 ** (k - 1))


def test_default_exponent_of_an_empty_matrix():
    fmt = HybFormat.from_csr(torch.tensor([0]), torch.tensor([], dtype=torch.int64), (0, 0))
    assert (fmt.exponent, fmt.buckets, fmt.padding, fmt.nbytes) == (0, (), 0.0, 0)
    assert fmt.device == torch.device("cpu") and fmt.pad_values(torch.ones(0)) == ()


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        (dict(c=0), ValueError, "c must be at least 1, got 0"),
        (dict(c=1.0), TypeError, "c must be an integer, got 1.0"),
        (dict(k=-1), ValueError, "k must be at least 0, got -1"),
        (dict(k=True), TypeError, "k must be an integer, got True"),
        (dict(k=MAX_EXPONENT + 1), ValueError, f"got c = 1 and k = {MAX_EXPONENT + 1}"),
        (dict(c=MAX_PARTITIONS + 1, k=0), ValueError, f"got c = {MAX_PARTITIONS + 1} and k = 0"),
        (dict(c=3, max_slots=5), ValueError, "more than the limit of 5"),
    ],
)
def test_parameters_out_of_range_are_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        HybFormat.from_csr(torch.tensor([0, 1, 2]), torch.tensor([0, 1]), (2, 2), **arguments)


@pytest.mark.parametrize("k", [0, MAX_EXPONENT])
def test_extreme_widths(k):
    s = Structure(((3, 1, 3), (0,)), 4, torch.int32)
    fmt = HybFormat.from_csr(*s.csr, k=k)
    assert [(b.width, b.num_rows) for b in fmt.buckets] == ([(1, 4)] if k == 0 else [(1, 1), (4, 1)])
    assert fmt.index_dtype == torch.int32


def skewed(rows):
    """A matrix of ten edges a row, most of them in few rows."""
    rng = np.random.default_rng(0)
    degrees = np.minimum(rng.pareto(1.5, rows) + 1, 4000)
    degrees = np.ceil(degrees * (10 * rows / degrees.sum())).astype(np.int64)
    indptr = torch.from_numpy(np.concatenate([[0], degrees.cumsum()]))
    return indptr, torch.from_numpy(rng.integers(0, rows, int(indptr[-1]))), (rows, rows)


def test_two_million_edges_take_the_operators_of_twenty_thousand():
    few, many = skewed(2_000), skewed(200_000)
    with Work() as little:
        HybFormat.from_csr(*few, c=2)
    with Work() as much:
        fmt = HybFormat.from_csr(*many, c=2)
    edges = many[1].numel()
    assert edges >= 2_000_000 and much.calls == little.calls < 400 and much.elements < 40 * edges
    positions = torch.cat([b.value_position[b.value_position >= 0] for b in fmt.buckets])
    assert torch.equal(positions.sort().values, torch.arange(edges))

"""Products with so many columns that short rows are summed in a table: beside SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from gnn_sparse_backend import tensor as st
from gnn_sparse_backend.tensor.expressions.assembled.hashed import FACTOR, MOST, TABLE, WIDE


def product(a, b):
    found = st.evaluate("A[i,j] = B[i,k] * C[k,j]", B=a, C=b, format="csr").to_scipy()
    wanted = a @ b
    wanted.sort_indices()
    np.testing.assert_array_equal(found.indptr, wanted.indptr)
    np.testing.assert_array_equal(found.indices, wanted.indices)
    np.testing.assert_allclose(found.data, wanted.data, rtol=1e-12, atol=1e-12)


def matrix(rows, width, seed=0):
    """Numbers at columns that are given for each row."""
    rng = np.random.default_rng(seed)
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    indices = np.concatenate([np.sort(row) for row in rows])
    return scipy.sparse.csr_matrix((rng.standard_normal(len(indices)), indices, indptr), (len(rows), width))


def left(rows, seed=1):
    return scipy.sparse.random(rows, 12, 0.3, "csr", random_state=seed)


@pytest.mark.parametrize("longest", [5, MOST // 2, 3 * MOST])
def test_rows_of_any_length(longest):
    """None, those that fit the table, and those that do not, which meet the same columns several times."""
    rng = np.random.default_rng(longest)
    pool = rng.choice(WIDE + 1, 4 * longest, replace=False)
    rows = [rng.choice(pool, rng.integers(0, longest + 1), replace=False) for _ in range(12)]
    product(left(40), matrix(rows, WIDE + 1))


@pytest.mark.parametrize("count", [MOST - 1, MOST, MOST + 1, MOST + 2])
def test_as_many_columns_as_the_table_has_room_for_and_more(count):
    columns = np.random.default_rng(count).choice(2 * WIDE, count, replace=False)
    rows = [columns[n::12] for n in range(12)]
    product(scipy.sparse.csr_matrix(np.ones((3, 12))), matrix(rows, 2 * WIDE))


def test_columns_of_one_hash():
    columns = np.arange(2 * WIDE)
    hashes = columns * FACTOR // 2**16 % TABLE
    alike = columns[hashes == hashes[-1]]
    assert len(alike) > 2 * MOST
    rows = [alike[n : n + MOST // 2] for n in range(12)]
    product(left(20), matrix(rows, 2 * WIDE))


def test_as_wide_as_a_table_is_not_used_for():
    rows = [np.random.default_rng(n).choice(WIDE, 7, replace=False) for n in range(12)]
    product(left(20), matrix(rows, WIDE))

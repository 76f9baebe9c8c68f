"""Generated patterns of pruned weights: their density, their empty rows and their skew."""

from __future__ import annotations

import pytest
import torch

from models.patterns import block_pattern, skew_of, unstructured_pattern


def blocks_of(pattern, block):
    """(rows of blocks, columns of blocks) whether one is kept; blocks are whole."""
    parts = pattern.unflatten(1, (-1, block)).unflatten(0, (-1, block)).sum((1, 3))
    assert ((parts == 0) | (parts == block * block)).all()
    return parts > 0


@pytest.mark.parametrize("rows, columns", [(3072, 768), (768, 3072), (768, 768), (96, 64)])
@pytest.mark.parametrize("block, density, empty_rows", [(32, 0.07, 0.4), (16, 0.5, 0.25), (32, 0.1, 0.0)])
def test_blocks_have_the_density_and_the_empty_rows(rows, columns, block, density, empty_rows):
    pattern = block_pattern(rows, columns, block, density, 0.6, empty_rows)
    assert pattern.dtype is torch.bool and pattern.shape == (rows, columns)
    blocks = blocks_of(pattern, block)
    down, across = blocks.shape
    assert int(blocks.sum()) == round(density * down * across)
    used = down - round(empty_rows * down)
    assert int(blocks.any(1).sum()) == min(used, int(blocks.sum()))


@pytest.mark.parametrize("skew", [0.0, 0.3, 0.6, 1.0])
def test_rows_are_skewed_as_asked(skew):
    blocks = blocks_of(block_pattern(3072, 3072, 32, 0.15, skew, 0.25), 32).sum(1)
    assert skew_of(blocks) == pytest.approx(skew, abs=0.03, rel=0.12)
    rows = unstructured_pattern(3072, 768, 0.06, skew).sum(1)
    assert skew_of(rows) == pytest.approx(skew, abs=0.03) and int(rows.min()) >= 1
    assert skew_of(torch.zeros(3)) == 0.0


@pytest.mark.parametrize("density", [0.0, 0.0001, 0.06, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("skew", [0.0, 5.0])
def test_single_weights_have_the_density(density, skew):
    pattern = unstructured_pattern(70, 33, density, skew)
    assert int(pattern.sum()) == round(density * 70 * 33)


def test_full_rows_leave_their_surplus_to_the_others():
    counts = unstructured_pattern(100, 10, 0.9, 2.0).sum(1)
    assert int(counts.sum()) == 900 and int(counts.max()) == 10 and int((counts < 10).sum()) > 5


def test_a_seed_gives_one_pattern():
    first = block_pattern(256, 128, 16, 0.2)
    assert torch.equal(first, block_pattern(256, 128, 16, 0.2, seed=0))
    other = block_pattern(256, 128, 16, 0.2, seed=1)
    assert not torch.equal(first, other) and first.sum() == other.sum()
    assert not torch.equal(unstructured_pattern(64, 64), unstructured_pattern(64, 64, seed=1))


def test_columns_are_used_evenly():
    counts = unstructured_pattern(4000, 50, 0.1).sum(0)
    assert int(counts.min()) > 320 and int(counts.max()) < 480


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: block_pattern(100, 64), r"got 100 x 64 and block=32"),
        (lambda: block_pattern(0, 64), r"got 0 x 64"),
        (lambda: unstructured_pattern(4, 4, density=1.5), "density must be from 0 to 1, got 1.5"),
        (lambda: block_pattern(64, 64, empty_rows=-0.1), r"empty_rows must be from 0 to 1, got -0.1"),
        (lambda: unstructured_pattern(4, 4, skew=-1.0), "skew must be at least 0, got -1.0"),
        (lambda: unstructured_pattern(4, 4, skew=float("nan")), "got nan"),
        (
            lambda: block_pattern(128, 128, density=0.7, empty_rows=0.5),
            r"density=0.7 of 4 x 4 blocks is 11, but empty_rows=0.5 leaves 8",
        ),
    ],
)
def test_bad_input_is_quoted(make, words):
    with pytest.raises(ValueError, match=words):
        make()

"""Which weights pruning leaves: generated patterns, skewed as those of pruned encoders are."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def block_pattern(
    rows: int,
    columns: int,
    block: int = 32,
    density: float = 0.07,
    skew: float = 0.6,
    empty_rows: float = 0.5,
    seed: int = 0,
) -> Tensor:
    """(rows, columns) True where a weight is kept: whole blocks, as block movement pruning leaves them.

    Some rows of blocks are empty, as those of pruned heads are: of a BERT that kept 7.5 % of its weights in blocks of
    32 (madlag/bert-base-uncased-squad1.1-block-sparse-0.07-v1), 106 of 144 heads were. The others keep more or fewer
    blocks, log-normally.

    Args:
        rows, columns: of the matrix, divisible by ``block``.
        block: side of a square block.
        density: share of the blocks that is kept, to the nearest block.
        skew: coefficient of variation (standard deviation over mean) of the numbers of blocks in the rows of blocks
            that are not empty. They are whole, and at most all of a row, so that it is met nearly.
        empty_rows: share of the rows of blocks that keep nothing, to the nearest one. There are more where fewer blocks
            are kept than rows are left.
        seed: another one for another pattern of the same numbers.

    Raises:
        ValueError: an argument is not as above, or the other rows have too few blocks for ``density``; it is quoted.
    """
    _check("block_pattern", rows, columns, block, density, skew, empty_rows)
    down, across = rows // block, columns // block
    kept, used = round(density * down * across), down - round(empty_rows * down)
    if kept > used * across:
        raise ValueError(
            f"block_pattern: density={density} of {down} x {across} blocks is {kept}, but empty_rows={empty_rows} "
            f"leaves {used * across} to choose from"
        )
    generator = torch.Generator().manual_seed(seed)
    counts = torch.zeros(down, dtype=torch.int64)
    counts[torch.randperm(down, generator=generator)[:used]] = _shared_out(kept, used, across, skew)
    order = torch.rand(down, across, generator=generator).argsort(1)
    blocks = torch.zeros(down, across, dtype=torch.bool)
    blocks.scatter_(1, order, torch.arange(across) < counts[:, None])
    return blocks.repeat_interleave(block, 0).repeat_interleave(block, 1)


def unstructured_pattern(rows: int, columns: int, density: float = 0.06, skew: float = 0.5, seed: int = 0) -> Tensor:
    """(rows, columns) True where a weight is kept: single ones, as movement pruning leaves them.

    Rows keep more or fewer weights, log-normally. Arguments and errors are those of `block_pattern`.
    """
    return block_pattern(rows, columns, 1, density, skew, 0.0, seed)


def skew_of(counts: Tensor) -> float:
    """Coefficient of variation of the counts that are not zero."""
    some = counts[counts > 0].double()
    return (some.std(correction=0) / some.mean()).item() if some.numel() else 0.0


def _shared_out(total: int, rows: int, most: int, skew: float) -> Tensor:
    """(rows,) whole numbers that sum to ``total``, at most ``most`` each and at least 1 if there are enough: the
    quantiles of a log-normal distribution, scaled.
    """
    least = 1 if total >= rows else 0
    spread = math.sqrt(math.log1p(skew**2))
    quantiles = torch.special.ndtri((torch.arange(rows, dtype=torch.float64) + 0.5) / max(rows, 1))
    shares = torch.exp(spread * quantiles)
    low, high = 0.0, (most + 1) / max(shares.min().item(), 1e-300) if rows else 0.0
    for _ in range(200):  # a scale at which they sum to the total after those that are too large are cut
        middle = (low + high) / 2
        low, high = (middle, high) if (shares * middle).clamp(least, most).sum() < total else (low, middle)
    exact = (shares * high).clamp(least, most)
    counts = exact.floor().long()
    while (lacking := total - int(counts.sum())) > 0:  # to those that rounding took most from
        open_ = torch.where(counts < most, exact - counts, -math.inf)
        counts[open_.topk(min(lacking, int((counts < most).sum()))).indices] += 1
    return counts


def _check(name: str, rows: int, columns: int, block: int, density: float, skew: float, empty_rows: float) -> None:
    if rows < 1 or columns < 1 or block < 1 or rows % block or columns % block:
        raise ValueError(f"{name}: block must divide rows and columns, got {rows} x {columns} and block={block}")
    for word, value in (("density", density), ("empty_rows", empty_rows)):
        if not 0 <= value <= 1:
            raise ValueError(f"{name}: {word} must be from 0 to 1, got {value}")
    if not 0 <= skew < math.inf:
        raise ValueError(f"{name}: skew must be at least 0, got {skew}")

"""nm(n, m): at most n non-zeros of each m neighbouring columns of a row, each with its place among them in a byte.

Rows and groups are all there, so that nothing but the places is read beside the values (Mishra et al., Accelerating
Sparse Deep Neural Networks, 2021, section 3: 2:4 sparsity).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..counts import numbered_runs
from ..structure import check_slots
from .indices import Indices, NonZeros

if TYPE_CHECKING:
    from ...compiler.transforms.rewrite_rule import FormatRewriteRule


def check_nm(n: int, m: int) -> tuple[int, ...]:
    """The numbers of nm(n, m)."""
    if not 1 <= n <= m <= 256:
        raise ValueError(f"nm(n, m) keeps n of m neighbouring columns, 1 <= n <= m <= 256, got {n} of {m}")
    return n, m


def rule_nm(n: int, m: int) -> FormatRewriteRule:
    """A[i, g * m + Place[i, g, p]] for p < n, of every row i and group g."""
    from ...compiler.language.axes import Size, dense_fixed
    from ...compiler.language.program import Buffer
    from ...compiler.transforms.rewrite_rule import FormatRewriteRule
    from ...compiler.transforms.rule_shape import COLUMNS, HEIGHT, ROWS

    groups = Size("groups")
    I, G, P = dense_fixed(ROWS, HEIGHT), dense_fixed("G", groups), dense_fixed("P", n)
    Place = Buffer("Place", (I, G, P), "uint8")
    return FormatRewriteRule(
        "nm",
        (groups,),
        (G, P),
        ("A",),
        (ROWS, COLUMNS),
        (ROWS, "G", "P"),
        {ROWS: (ROWS,), COLUMNS: ("G", "P")},
        None,
        lambda i, g, p: (i, g * m + Place[i, g, p]),
        (Place,),
        masked=True,
    )


def infer_nm(matrix: NonZeros, n: int, m: int) -> Indices:
    """Take the groups of at most n non-zeros, if these fill the places of all groups as far as ``fill`` says."""
    groups = -(-matrix.shape[1] // m)
    slots = matrix.shape[0] * groups * n
    key = matrix.rows * groups + matrix.columns // m
    taken = matrix.sharing(key) <= n
    if not matrix.last and int(taken.sum()) < matrix.fill * slots:
        taken = torch.zeros_like(taken)
    matrix, key = matrix.those(taken), key[taken]
    check_slots(slots, matrix.nnz, None, f"nm({n}, {m}) of {matrix.shape[0]} x {matrix.shape[1]}")
    found = key * n + numbered_runs(key)[1]
    place = torch.zeros(slots, dtype=torch.uint8, device=key.device)
    place[found] = (matrix.columns % m).to(torch.uint8)
    return Indices({"groups": groups, "Place": place.view(-1, n)}, found, taken)

"""What formats find of a matrix: their indices, which non-zeros they take, and whether a user's agree with its rule."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from .indices import Indices, NonZeros
from .registry import find
from .spec import FormatSpec

Found = tuple[FormatSpec, Indices, Tensor]
"""A format, its indices, and the positions of the non-zeros that it takes."""


def shares(matrix: NonZeros, specs: tuple[FormatSpec, ...], rest: tuple[FormatSpec, ...] = ()) -> list[Found]:
    """What each format takes of what those before it have left, without those that get nothing.

    rest: the format for what the last one leaves, if it may leave any.

    Raises:
        ValueError: the last format leaves non-zeros.
    """
    found: list[Found] = []
    left = torch.arange(matrix.nnz, device=matrix.rows.device)
    for spec in (*specs, *rest):
        matrix = replace(matrix, fill=0.0, last=True) if spec is specs[-1] else matrix
        own, remains = inferred(spec, matrix)
        found += [(part, indices, left[taken]) for part, indices, taken in own]
        left, matrix = left[remains], matrix.those(remains)
        if matrix.last and not matrix.nnz:
            return [each for each in found if each[2].numel()] or found[-1:]
    raise ValueError(
        f"decompose: {specs[-1]} is the last format and leaves {matrix.nnz} non-zeros; put one behind it that takes "
        "all, such as csr"
    )


def inferred(spec: FormatSpec, matrix: NonZeros) -> tuple[list[Found], Tensor]:
    """(what the format finds, a piece each; (nnz,) bool, the non-zeros that it leaves).

    Raises:
        TypeError, ValueError: quoting what a user's ``infer`` gave that disagrees with the rule or with the matrix.
    """
    infer = spec.format.infer
    assert infer is not None
    own = bool(spec.format.version)
    given = infer(matrix, *spec.numbers)
    several = [given] if isinstance(given, Indices) else given
    if not isinstance(several, list | tuple) or not all(isinstance(each, Indices) for each in several):
        raise TypeError(f"format {str(spec)!r}: infer must give gsb.formats.Indices, got {type(given).__name__}")
    found: list[Found] = []
    rest = torch.ones(matrix.nnz, dtype=torch.bool, device=matrix.rows.device)
    for each in several:
        part = spec if each.format is None else _part(spec, *each.format)
        positions = _positions(spec, each.taken, matrix, rest if own else None)
        if own:
            from .verify import verified

            each = verified(part, each, matrix, positions)
        rest[positions] = False
        found.append((part, each, positions))
    return found, rest


def _part(spec: FormatSpec, name: str, numbers: tuple[int, ...]) -> FormatSpec:
    known = find(name)
    if known is None or known.rule is None:
        raise ValueError(f"format {str(spec)!r}: infer names the format {name!r}, which has no rule")
    return FormatSpec(known, tuple(numbers))


def _positions(spec: FormatSpec, taken: Tensor | None, matrix: NonZeros, rest: Tensor | None) -> Tensor:
    """The positions of the non-zeros that are taken. rest: those that may be, where this is looked at."""
    if taken is None:
        positions = torch.arange(matrix.nnz, device=matrix.rows.device)
    elif rest is not None and (not isinstance(taken, Tensor) or taken.dim() != 1):
        raise ValueError(f"format {str(spec)!r}: taken must be a tensor of one dimension, got {taken!r}")
    elif taken.dtype == torch.bool:
        if taken.numel() != matrix.nnz:
            raise ValueError(
                f"format {str(spec)!r}: taken has {taken.numel()} entries, and the matrix {matrix.nnz} non-zeros"
            )
        positions = taken.nonzero().reshape(-1)
    else:
        positions = taken.long()
    if rest is None:
        return positions
    if positions.numel() and not bool(((positions >= 0) & (positions < matrix.nnz)).all()):
        wrong = positions[(positions < 0) | (positions >= matrix.nnz)][0]
        raise ValueError(f"format {str(spec)!r}: taken must lie in [0, {matrix.nnz}), got {int(wrong)}")
    counts = torch.bincount(positions, minlength=matrix.nnz) + (~rest).long()
    if bool((counts > 1).any()):
        at = int((counts > 1).nonzero()[0])
        place = int(matrix.rows[at]), int(matrix.columns[at])
        raise ValueError(f"format {str(spec)!r}: the non-zero at {place} is taken twice")
    return positions

"""The ways in which NumPy's einsum is called, to subscripts with a letter for each mode."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from .array import array
from .errors import NotationError
from .product_indices import aligned
from .storage.values import integer

LETTERS = string.ascii_uppercase + string.ascii_lowercase
"""Letters of the indices 0 to 51, in their order."""


def written_out(subscripts: Any, operands: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """(subscripts without an ellipsis, operands) of subscripts in a text, and of operands each with a list of indices.

    Raises TypeError for lists that are not of integers, NotationError for an ellipsis that does not fit.
    """
    if not isinstance(subscripts, str) and operands and isinstance(operands[0], (list, tuple)):
        subscripts, operands = _of_lists((subscripts, *operands))
    if isinstance(subscripts, str) and "." in subscripts:
        subscripts = _without_ellipsis(subscripts, operands)
    return subscripts, operands


def _of_lists(given: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The text of `einsum(a, [0, 1], b, [1, 2], [0, 2])`, where the last list may be missing, and the operands."""
    pairs = len(given) // 2
    terms = [_text(each) for each in given[1 : 2 * pairs : 2]]
    result = [f"->{_text(each)}" for each in given[2 * pairs :]]
    return ",".join(terms) + "".join(result), given[: 2 * pairs : 2]


def _text(indices: Any) -> str:
    if not isinstance(indices, (list, tuple)):
        raise TypeError(f"indices {indices!r:.60} are not a list of integers behind each operand")
    found = ""
    for each in indices:
        number = integer(each)
        if each is not Ellipsis and (number is None or not 0 <= number < len(LETTERS)):
            raise TypeError(f"indices {indices!r:.60} are not integers from 0 to {len(LETTERS) - 1}, or Ellipsis")
        found += "..." if number is None else LETTERS[number]
    return found


def _without_ellipsis(text: str, operands: Sequence[Any]) -> str:
    """Subscripts in which a letter for each mode stands where an ellipsis did. Raises NotationError."""
    for at, sign in enumerate(text.replace("...", "   ")):
        if sign == ".":
            raise NotationError("'.' is not an index, nor one of the three dots of an ellipsis", text, at)
    inputs, arrow, output = text.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(operands):
        reason = f"there are subscripts of {len(terms)} operands, and {len(operands)} are given"
        raise NotationError(reason, text, 0, len(text))
    shapes = [_wide(term, x, text) for term, x in zip(terms, operands)]
    modes = max(map(len, shapes))
    fresh = _letters(text)
    wide = [next(fresh) for _ in range(modes)]
    for n, (term, own) in enumerate(zip(terms, aligned(*shapes))):
        letters = [next(fresh) if alone else wide[at] for at, alone in own]
        terms[n] = term.replace("...", "".join(letters))
    if not arrow:
        named = [letter for letter in inputs if letter.isalpha()]
        output = "..." + "".join(sorted(letter for letter in set(named) if named.count(letter) == 1))
    elif modes and "..." not in output:
        reason = f"the result has no ellipsis, and those of the operands stand for {modes} modes"
        raise NotationError(reason, text, text.index("->"), len(text) - text.index("->"))
    return f"{','.join(terms)}->{output.replace('...', ''.join(wide), 1)}"


def _wide(term: str, x: Any, text: str) -> tuple[int, ...]:
    """The extents that an ellipsis stands for; none of a term without one. Raises NotationError."""
    if "..." not in term:
        return ()
    shape = tuple(x.shape if hasattr(x, "shape") else array(x).shape)
    before, _, behind = term.partition("...")
    if "..." in behind or len(before) + len(behind) > len(shape):
        reason = f"an ellipsis stands once for modes of the shape {shape}, beside the indices of others"
        raise NotationError(reason, text, max(text.find(term), 0), len(term))
    return shape[len(before) : len(shape) - len(behind)]


def _letters(text: str) -> Iterator[str]:
    """Letters that do not occur in a text."""
    return (letter for letter in map(chr, count(ord("a"))) if letter.isalpha() and letter not in text)

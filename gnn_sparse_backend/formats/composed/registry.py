"""The formats that matrices are decomposed into, one table: this package's and those of users stand there alike.

gsb.formats.register("bitmap", rule, infer)
parts = gsb.formats.decompose(weight, ["bitmap(8)", "csr"])
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from ...compiler.language.definition import digest_of, is_own
from ...frozen import dataclass
from .indices import Indices

Numbers = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Format:
    """A format of the table.

    Attributes:
        name: the word, without numbers.
        rule: gives the rule of a matrix of these numbers; None of a format whose indices are those of others.
        infer: finds the indices; None of a format that is no word of users, but a part of another one.
        numbers: how few and how many stand behind the word.
        example: a word of it.
        check: gives the numbers of a word as they are kept, or raises what is wrong with them.
        transposed: gives the numbers for the transpose.
        begins: the format with the same values in the same order whose rows are all there, of one that lists its rows.
        candidates: what ``gsb.tune_format`` tries of it.
        version: a digest of a user's functions; "" of a format of this package.
    """

    name: str
    rule: Callable[..., Any] | None
    infer: Callable[..., Any] | None
    numbers: tuple[int, int]
    example: str
    check: Callable[..., Numbers] | None = None
    transposed: Callable[..., Numbers] | None = None
    begins: str = ""
    candidates: tuple[str, ...] = ()
    version: str = ""


FORMATS: dict[str, Format] = {}


def register(
    name: str,
    rule: Callable[..., Any] | None,
    infer: Callable[..., Indices | Sequence[Indices]] | None,
    *,
    candidates: Sequence[str] | None = None,
    check: Callable[..., Numbers] | None = None,
    transposed: Callable[..., Numbers] | None = None,
    begins: str = "",
    example: str = "",
    replace: bool = False,
) -> None:
    """Make a format a word, as ``"bsr(8)"`` is one: of ``decompose``, the products, ``gsb.tune_format`` and
    ``gsb.explain``.

        gsb.formats.register("bitmap", rule, infer)
        parts = gsb.formats.decompose(weight, ["bitmap(8)", "csr"])

    Every format of this package is registered by this function, too. What is kept of a format, kernels and measured
    choices, is kept under its definition: under the code of both functions and of what they call.

    Args:
        name: lower-case letters, digits and ``_``. The numbers behind it are given to both functions.
        rule: ``rule(*numbers)`` gives a ``gnn_sparse_backend.compiler.FormatRewriteRule`` (SparseTIR, section 3.2.1) of
            a matrix with rows ``I``, columns ``J``, values ``A`` and run-time sizes ``m`` and ``n``. Its rows are a
            dense root axis, ``I`` itself or blocks, and hang on no columns. With ``masked=True`` it may have padding.
        infer: ``infer(matrix, *numbers)`` gives the `Indices` of a `NonZeros`, or several of them, in formats by name.
            Which non-zeros they take, and where these lie, is checked against the rule.
        candidates: words with ``" + "`` between them that ``gsb.tune_format`` tries; None: the format without numbers,
            if it can do without, by itself and with csr behind it.
        check: ``check(*numbers)`` gives the numbers that a word stands for, or raises ValueError.
        transposed: ``transposed(*numbers)`` gives the numbers for the transpose; None: the same.
        begins: the name of the format with the same values in the same order and all rows, where a rule lists its rows.
        example: a word, for errors.
        replace: put it in the place of the format of this name, if there is one.

    Raises:
        TypeError, ValueError: quoting a name that is no word or exists, or what is no function of numbers.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"register: a format is called by lower-case letters, digits and _, got {name!r}")
    known = FORMATS.get(name)
    if known is not None and not known.version:
        raise ValueError(f"register: {name!r} is a format of this package; give yours another name")
    if known is not None and not replace:
        raise ValueError(
            f"register: there is a format {name!r} already; give yours another name, pass replace=True, or call "
            f"gsb.formats.unregister({name!r}) before"
        )
    for what, function in (("rule", rule), ("infer", infer)):
        if function is not None and not callable(function):
            raise TypeError(f"register: {what} of {name!r} must be a function, got {type(function).__name__}")
    given = [function for function in (rule, infer) if function is not None]
    version = "" if all(map(is_own, given)) else digest_of(*given)
    if version and (rule is None or infer is None):
        raise TypeError(f"register: {name!r} needs both a rule and an infer, got rule={rule!r} and infer={infer!r}")
    numbers, names = _numbers(name, rule, infer)
    example = example or (f"{name}({', '.join(names)})" if names else name)
    if candidates is None:
        candidates = (name, f"{name} + csr") if version and not numbers[0] else ()
    FORMATS[name] = Format(name, rule, infer, numbers, example, check, transposed, begins, tuple(candidates), version)


def unregister(name: str) -> None:
    """Take a format of a user out of the table. Decompositions into it go on to work.

    Raises:
        ValueError: there is none of this name, or it is a format of this package.
    """
    known = FORMATS.get(name) if isinstance(name, str) else None
    if known is None:
        raise ValueError(f"unregister: there is no format {name!r}; {known_formats()}")
    if not known.version:
        raise ValueError(f"unregister: {name!r} is a format of this package, which stays")
    del FORMATS[name]


def find(name: str) -> Format | None:
    """The format of this name, a part of another one too."""
    return FORMATS.get(name)


def words() -> list[Format]:
    """The formats that are words, in the order in which they came."""
    return [each for each in FORMATS.values() if each.infer is not None]


def registered_formats() -> list[Format]:
    """The formats of users, in the order in which they came."""
    return [each for each in words() if each.version]


def known_formats() -> str:
    """Which formats there are, in words."""
    own, users = (
        ", ".join(each.example for each in words() if bool(each.version) == theirs) for theirs in (False, True)
    )
    return f"formats are {own}" + (f"; registered are {users}" if users else "")


def _numbers(name: str, rule: Any, infer: Any) -> tuple[tuple[int, int], list[str]]:
    """(how few and how many numbers a word has, what they are called), of the parameters of both functions."""
    counts = {}
    for what, function, own in (("rule", rule, 0), ("infer", infer, 1)):
        if function is None:
            continue
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        found = list(inspect.signature(function).parameters.values())
        if any(each.kind not in kinds for each in found) or len(found) < own:
            raise TypeError(
                f"register: {what} of {name!r} must be a function of {'a matrix and ' * own}the numbers of a word, "
                f"each a parameter, got {function.__name__}{inspect.signature(function)}"
            )
        least = sum(each.default is each.empty for each in found[own:])
        counts[what] = (least, len(found) - own), [each.name for each in found[own:]]
    fewest, most = max(least for (least, _), _ in counts.values()), min(most for (_, most), _ in counts.values())
    if fewest > most:
        raise TypeError(
            f"register: rule and infer of {name!r} must take the same numbers, got {counts['rule'][1]} and "
            f"{counts['infer'][1]}"
        )
    return (fewest, most), counts["infer" if rule is None else "rule"][1]

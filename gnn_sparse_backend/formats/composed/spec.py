"""The formats of a decomposition as words: ``"bsr(32)"``, ``"sr_bcrs(8, 4)"``, ``"dia"``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...compiler.cache.bounded import kept
from ...frozen import dataclass
from .registry import Format, Numbers, find, known_formats

# imported where rules are made: a process that makes none starts without the compiler
if TYPE_CHECKING:
    from ...compiler.transforms.rewrite_rule import FormatRewriteRule
    from ...compiler.transforms.rule_shape import RuleShape

SEPARATOR = " + "
"""What stands between the words of several formats, where they are one."""
VERSION = "@"
"""What stands between the word of a user's format and the digest of its definition, where something is kept by it."""


@dataclass(frozen=True)
class FormatSpec:
    """One format of the table, and its numbers. A block of one number is square."""

    format: Format
    numbers: Numbers = ()

    @property
    def kind(self) -> str:
        """The format's name."""
        return self.format.name

    @property
    def rule(self) -> FormatRewriteRule:
        """The rule of a matrix in this format."""
        return _rule(self)

    @property
    def shape(self) -> RuleShape:
        """How the rule stores rows and columns."""
        return _shape(self)

    @property
    def block(self) -> tuple[int, int]:
        """(rows, columns) of what is stored whole: (1, 1) where single non-zeros are."""
        return self.shape.height, self.shape.width

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns that a program goes through together, whose multiples operands must have."""
        return self.shape.unit

    @property
    def names_columns(self) -> bool:
        """Whether each of its values has a column of its own, and padding none: then it is never multiplied."""
        return not self.rule.masked

    @property
    def lists_rows(self) -> bool:
        """Whether rows are listed: for tasks of rows these are looked up."""
        return bool(self.shape.listed)

    @property
    def beside(self) -> bool:
        """Whether rows and columns stand side by side: what is accumulated for several rows shares what it loads."""
        return self.shape.beside

    @property
    def as_first(self) -> FormatSpec | None:
        """The format of these values where results begin with them, whose program visits every row; None: there is
        none.
        """
        if not self.lists_rows:
            return self
        begins = find(self.format.begins)
        return None if begins is None else FormatSpec(begins, self.numbers)

    @property
    def is_bsr(self) -> bool:
        """Whether it is stored as blocks of BSR are, one column after the other, under whatever name."""
        return _is_bsr(self)

    def transposed(self) -> FormatSpec:
        """The format for the transpose."""
        turn = self.format.transposed
        return self if turn is None else FormatSpec(self.format, turn(*self.numbers))

    @property
    def key(self) -> str:
        """Words and, of a user's format, the digest of its definition."""
        version = self.format.version
        return f"{self}{VERSION}{version}" if version else str(self)

    def __str__(self) -> str:
        numbers, check = self.numbers, self.format.check
        if check and self.format.numbers == (1, 2) and len(set(numbers)) == 1:  # as the word may be written
            numbers = numbers[:1] if check(numbers[0]) == numbers else numbers
        return f"{self.kind}({', '.join(map(str, numbers))})" if numbers else self.kind

    def __repr__(self) -> str:
        return str(self)

    def __reduce__(self) -> Any:
        return _found_again, (self.key,)


def _found_again(key: str) -> FormatSpec:
    name = key.partition(VERSION)[0]
    part = re.fullmatch(r"([a-z0-9_]+)(?:\(([^()]*)\))?", name)
    assert part is not None
    known = find(part[1])
    if known is not None and known.infer is None:
        return FormatSpec(known, tuple(map(int, part[2].split(","))) if part[2] else ())
    return parse_format(key)


def plain(words: str) -> str:
    """Words of formats without the digests of `FormatSpec.key`."""
    return re.sub(f"{VERSION}[0-9a-f]+", "", words)


def key_of(specs: Sequence[FormatSpec]) -> str:
    """The formats of a decomposition as one word, under which it is kept."""
    return SEPARATOR.join(spec.key for spec in specs)


def readable(key: str) -> bool:
    """Whether formats under which something was kept are those of the table."""
    try:
        parse_formats(key.split(SEPARATOR))
    except ValueError:
        return False
    return True


@kept
def _rule(spec: FormatSpec) -> FormatRewriteRule:
    from ...compiler.language.axes import StageIError
    from ...compiler.transforms.rewrite_rule import FormatRewriteRule

    make = spec.format.rule
    if make is None:
        raise StageIError(f"there is no program for {spec}")
    try:
        found = make(*spec.numbers)
    except ValueError as error:
        raise ValueError(f"format {str(spec)!r}: its rule refuses the numbers: {error}") from error
    if not isinstance(found, FormatRewriteRule):
        raise TypeError(
            f"format {str(spec)!r}: its rule must give a gnn_sparse_backend.compiler.FormatRewriteRule, got "
            f"{type(found).__name__}"
        )
    return found


@kept
def _shape(spec: FormatSpec) -> RuleShape:
    from ...compiler.language.axes import StageIError
    from ...compiler.transforms.place_rule import content
    from ...compiler.transforms.rule_shape import shape_of

    try:
        if spec.format.version:
            content(spec.rule)  # the names in a user's rule are looked at
        return shape_of(spec.rule)
    except StageIError as error:
        raise ValueError(f"format {str(spec)!r}: {error}") from error


@kept
def _is_bsr(spec: FormatSpec) -> bool:
    from ...compiler.transforms.place_rule import content

    bsr, block = find("bsr"), spec.block
    return bsr is not None and bsr.rule is not None and content(spec.rule) == content(bsr.rule(*block))


def parse_formats(formats: object) -> tuple[FormatSpec, ...]:
    """The formats of a decomposition: words, or one of them. Errors quote what they cannot read."""
    words = [formats] if isinstance(formats, (str, FormatSpec)) else formats
    if not isinstance(words, Sequence) or not words:
        raise TypeError(f'formats must be words such as ["bsr(32)", "csr"], got {formats!r}')
    return tuple(word if isinstance(word, FormatSpec) else parse_format(word) for word in words)


def parse_format(word: object) -> FormatSpec:
    """One format; of a user's the version, where one stands behind the word, must be that of the table."""
    if not isinstance(word, str):
        raise TypeError(f"a format must be a word; {known_formats()}; got {word!r}")
    text, _, version = word.partition(VERSION)
    found = re.fullmatch(r"\s*([a-z][a-z0-9_]*)\s*(?:\(([^()]*)\))?\s*", text)
    known = None if found is None else find(found[1])
    if found is None or known is None or known.infer is None:
        raise ValueError(f"unknown format {word!r}; {known_formats()}")
    if version and version != known.version:
        raise ValueError(f"format {text!r} is registered with another definition than it was, {version}")
    fewest, most = known.numbers
    texts = [part.strip() for part in found[2].split(",")] if found[2] is not None and found[2].strip() else []
    if not fewest <= len(texts) <= most or not all(re.fullmatch(r"\d{1,9}", part) for part in texts):
        count = str(fewest) if fewest == most else f"{fewest} or {most}"
        raise ValueError(f"format {word!r}: {known.name} takes {count} whole numbers; {known_formats()}")
    numbers = tuple(map(int, texts))
    if known.check is not None:
        try:
            numbers = known.check(*numbers)
        except ValueError as error:
            raise ValueError(f"format {word!r}: {error}") from None
    spec = FormatSpec(known, numbers)
    if known.version:  # what a user wrote is looked at before anything is made of it
        spec.shape  # noqa: B018
    return spec

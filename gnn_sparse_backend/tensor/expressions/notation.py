"""Index notation: `A[i,j] = B[i,k,l] * C[k,j] * D[l,j]`, and subscripts of einsum, to the same statement.

    statement   = access "=" sum
    sum         = product (("+" | "-") product)*
    product     = factor (("*" | "/") factor)*
    factor      = number | access | function "(" sum ")" | "(" sum ")" | "-" factor
    access      = name "[" index ("," index)* "]" | name

An index that the result has not is summed over, in each product by itself. A function is applied before the sum.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import NoReturn, TypeAlias

from ...compiler.language.program import WORDS
from ...frozen import dataclass
from ..errors import NotationError
from ..semirings import PLUS_TIMES, Semiring

FUNCTIONS = ("exp", "log", "sqrt", "tanh", "sigmoid", "abs", "relu")
TRUTH = "truth"
"""The function of a comparison, or of truth values that are joined: 1 where it holds, otherwise 0. Texts have none."""
_TOKENS = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<sign>[][()+\-*/=,]))"
)


@dataclass(frozen=True)
class Number:
    value: float | int


@dataclass(frozen=True)
class Access:
    """`name[indices]`; at: where it stands in the text."""

    name: str
    indices: tuple[str, ...]
    at: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.name}[{','.join(self.indices)}]" if self.indices else self.name


@dataclass(frozen=True)
class Call:
    function: str
    argument: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Operation:
    """`a + b`, `a - b`, `a * b` or `a / b`, and in `TRUTH` one of `< > != & |`; at: where the sign stands."""

    sign: str
    a: Expression
    b: Expression
    at: int = field(default=0, compare=False)


Expression: TypeAlias = Number | Access | Call | Operation


@dataclass(frozen=True)
class Statement:
    """What is computed. text: as it was written, for errors. semiring: what `+`, `*` and the sums over indices mean."""

    result: Access
    expression: Expression
    text: str = field(default="", compare=False)
    semiring: Semiring = PLUS_TIMES

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the operands."""
        return frozenset(access.name for access in accesses(self.expression))

    def refuse(self, reason: str, at: int, length: int = 1) -> NoReturn:
        """Raise NotationError that shows where."""
        raise NotationError(reason, self.text, at, length)

    def under(self, semiring: Semiring) -> Statement:
        """The statement with another meaning of sums and products. Raises NotationError where it has other parts."""
        if not semiring.is_ordinary:
            self._check_products(self.expression, semiring)
        return replace(self, semiring=semiring)

    def _check_products(self, expression: Expression, semiring: Semiring) -> None:
        reason = f"the semiring {semiring.name} has sums and products of tensors alone, not {{}}; compute it before"
        match expression:
            case Number():
                self.refuse(reason.format(f"the number {expression.value}"), self.result.at, len(str(self.result)))
            case Call():
                self.refuse(reason.format(expression.function), expression.at, len(expression.function))
            case Operation(sign):
                if sign not in "+*":
                    self.refuse(reason.format(repr(sign)), expression.at)
                self._check_products(expression.a, semiring)
                self._check_products(expression.b, semiring)

    def __str__(self) -> str:
        meaning = "" if self.semiring.is_ordinary else f" ({self.semiring.name})"
        return f"{self.result} = {written(self.expression)}{meaning}"


def written(expression: Expression, inside: str = "") -> str:
    """The text of an expression, with the brackets that it needs."""
    match expression:
        case Number():
            return repr(expression.value)
        case Call():
            return f"{expression.function}({written(expression.argument)})"
        case Operation():
            left = "+" if expression.sign in "+-" else "*"
            text = f"{written(expression.a, left)} {expression.sign} {written(expression.b, expression.sign)}"
            loose = expression.sign in "+-"
            return f"({text})" if inside == "/" or (loose and inside in ("*", "-")) else text
    return str(expression)


def accesses(expression: Expression) -> Iterator[Access]:
    """Every access in an expression, from left to right."""
    match expression:
        case Access():
            yield expression
        case Call():
            yield from accesses(expression.argument)
        case Operation():
            yield from accesses(expression.a)
            yield from accesses(expression.b)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while text[at:].strip():
        match = _TOKENS.match(text, at)
        if match is None:
            wrong = at + len(text[at:]) - len(text[at:].lstrip())
            raise NotationError(f"{text[wrong]!r} has no meaning here", text, wrong)
        kind = str(match.lastgroup)
        found.append(_Token(kind, match[kind], match.start(kind)))
        at = match.end()
    return [*found, _Token("end", "the end", len(text))]


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.at = text, _tokens(text), 0

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def take(self) -> _Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def refuse(self, reason: str) -> NoReturn:
        token = self.next
        raise NotationError(reason, self.text, token.at, len(token.text) if token.kind != "end" else 1)

    def expect(self, sign: str, where: str) -> None:
        if self.next.text != sign or self.next.kind != "sign":
            self.refuse(f"{where} wants {sign!r}, not {self.next.text!r}")
        self.take()

    def statement(self) -> Statement:
        if self.next.kind != "name":
            self.refuse("a statement begins with its result, as in A[i,j] = B[i,k] * C[k,j]")
        result = self.access()
        self.expect("=", f"the result {result}")
        expression = self.sum()
        if self.next.kind != "end":
            self.refuse(f"{self.next.text!r} is not expected here; the expression is complete before it")
        return Statement(result, expression, self.text)

    def sum(self) -> Expression:
        found = self.product()
        while self.next.kind == "sign" and self.next.text in "+-":
            sign = self.take()
            found = Operation(sign.text, found, self.product(), sign.at)
        return found

    def product(self) -> Expression:
        found = self.factor()
        while self.next.kind == "sign" and self.next.text in "*/":
            sign = self.take()
            found = Operation(sign.text, found, self.factor(), sign.at)
        return found

    def factor(self) -> Expression:
        token = self.next
        if token.kind == "number":
            self.take()
            return Number(int(token.text) if token.text.isdigit() else float(token.text))
        if token.text == "-":
            self.take()
            found = self.factor()
            if isinstance(found, Number):
                return Number(-found.value)
            return Operation("*", Number(-1), found, token.at)
        if token.text == "(":
            self.take()
            found = self.sum()
            self.expect(")", "the bracket")
            return found
        if token.kind != "name":
            self.refuse(f"a tensor, a number, a function or a bracket is wanted, not {token.text!r}")
        if self.tokens[self.at + 1].text != "(":
            return self.access()
        if token.text not in FUNCTIONS:
            self.refuse(f"function {token.text!r} is not one of {', '.join(FUNCTIONS)}")
        self.take()
        self.take()
        argument = self.sum()
        self.expect(")", f"function {token.text}")
        return Call(token.text, argument, token.at)

    def access(self) -> Access:
        name = self.take()
        indices: list[str] = []
        if self.next.text == "[":
            self.take()
            while self.next.text != "]":
                if self.next.kind != "name":
                    self.refuse(f"an index of {name.text} is a name such as i, not {self.next.text!r}")
                indices.append(self.take().text)
                if self.next.text == ",":
                    self.take()
                elif self.next.text != "]":
                    self.refuse(
                        f"the indices of {name.text} are parted by ',' and end with ']', not {self.next.text!r}"
                    )
            self.take()
        return Access(name.text, tuple(indices), name.at)


def parse(text: str) -> Statement:
    """The statement of a text. Raises NotationError, which shows where it is wrong."""
    if not isinstance(text, str):
        raise TypeError(f"an expression is a text such as 'A[i,j] = B[i,k] * C[k,j]', not {text!r:.60}")
    statement = _Parser(text).statement()
    result = statement.result
    for index in result.indices:
        if result.indices.count(index) > 1:
            statement.refuse(f"index {index!r} occurs twice in the result", result.at, len(str(result)))
    for access in (result, *accesses(statement.expression)):
        if keyword.iskeyword(access.name) or access.name in WORDS:
            statement.refuse(
                f"the name {access.name!r} has a meaning in the text of programs; choose another",
                access.at,
                len(access.name),
            )
    for access in accesses(statement.expression):
        if access.name == result.name:
            statement.refuse(
                f"the result {result.name} is read; give the operand another name", access.at, len(access.name)
            )
    return statement


def parse_einsum(subscripts: str, count: int) -> Statement:
    """The statement of subscripts as NumPy's einsum takes them, of `count` operands: `T0`, `T1`, and so on.

    Without "->" the result has the indices that occur once, in alphabetical order. Raises NotationError.
    """
    if not isinstance(subscripts, str):
        raise TypeError(f"subscripts are a text such as 'ij,jk->ik', not {subscripts!r:.60}")
    for at, letter in enumerate(subscripts):
        if not (letter.isalpha() or letter in ",-> "):
            reason = "an ellipsis is not known; write an index for each mode" if letter == "." else "is not an index"
            raise NotationError(f"{letter!r}: {reason}", subscripts, at)
    inputs, arrow, output = subscripts.partition("->")
    for part, begins in ((inputs, 0), (output, len(inputs) + 2)):
        if "-" in part or ">" in part:
            at = begins + min(part.index(sign) for sign in "->" if sign in part)
            raise NotationError("'->' stands once, between the operands and the result", subscripts, at)
    found, at = [], 0
    for n, part in enumerate(inputs.split(",")):
        found.append(Access(f"T{n}", tuple(part.replace(" ", "")), at))
        at += len(part) + 1
    if len(found) != count:
        at = found[count].at if count < len(found) else len(inputs)
        raise NotationError(f"there are subscripts of {len(found)} operands, and {count} are given", subscripts, at)
    letters = [index for access in found for index in access.indices]
    if arrow:
        result = tuple(output.replace(" ", ""))
        for index in result:
            at = len(inputs) + 2 + output.index(index)
            if index not in letters:
                raise NotationError(f"index {index!r} of the result is in no operand", subscripts, at)
            if result.count(index) > 1:
                raise NotationError(f"index {index!r} occurs twice in the result", subscripts, at)
    else:
        result = tuple(sorted(index for index in set(letters) if letters.count(index) == 1))
    return Statement(Access("R", result), product(found), subscripts)


def product(factors: Sequence[Expression]) -> Expression:
    """The factors multiplied, from the left."""
    found = factors[0]
    for factor in factors[1:]:
        found = Operation("*", found, factor)
    return found

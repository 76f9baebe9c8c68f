"""Random expressions, formats, shapes and commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gnn_sparse_backend import tensor as st
from gnn_sparse_backend.tensor.expressions.notation import written
from gnn_sparse_backend.tensor.expressions.terms import Term
from gnn_sparse_backend.tensor.scheduling.nest import Assign, expression_of
from gnn_sparse_backend.tensor.scheduling.statement import Statement
from tests.tensor.dense_values import accesses, result_indices
from tests.tensor.scheduling.cases import FLOATS, Case, Command, Given
from tests.tensor.scheduling.checks import apply

Choose = Callable[[Sequence[Any]], Any]
"""Takes one of several things."""

EXPRESSIONS = (
    "y[i] = A[i,j] * x[j]",
    "y[j] = A[i,j] * x[i]",
    "a = A[i,j] * B[i,j]",
    "C[i,j] = A[i,k] * B[k,j]",
    "C[i,j] = A[i,j] * B[i,j]",
    "C[i,j] = A[i,j] + B[i,j]",
    "C[i,j] = A[i,j] + B[i,j] - 2 * D[i,j] + E[i,j]",
    "S[i,j] = A[i,j] * U[i,k] * V[j,k]",
    "S[i,j] = A[i,j] * B[i,k] * C[k,j] / P[i]",
    "y[i] = A[i,j] * B[j,k] * x[k]",
    "y[i] = 2 * A[i,j] * x[j] + b[i]",
    "y[i] = A[i,i]",
    "y[i] = A[i,j] * A[i,j]",
    "y[i,j] = T[i,j,k] * x[k]",
    "M[i,r] = T[i,j,k] * C[j,r] * D[k,r]",
    "M[i,r] = T[i,j,k,l] * C[j,r] * D[k,r] * E[l,r]",
    "y[i,j] = T[i,j,k,l,m] * x[k] * z[l] * w[m]",
    "a = T[i,j,k,l] * W[i,j,k,l]",
    "Y[i,j,r] = T[i,j,k] * C[k,r]",
    "Z[i,j,k,l] = T[i,j,k,l] + 2 * W[i,j,k,l]",
    "y[i] = relu(A[i,j]) * x[j] - b[i]",
    "y[i] = tanh(A[i,j] * x[j]) * exp(z[j])",
    "a = x[i] * z[i]",
)
FORMATS = {
    1: ("dense", ("compressed",)),
    2: ("dense", "csr", "csr", "csc", "dcsr", "coo", "ell", "bsr(2)", "dia", ("compressed", "dense")),
    3: (
        "dense",
        "csf",
        "csf",
        "coo",
        ("dense", "dense", "compressed"),
        ("dense", "compressed", "compressed"),
        ("compressed", "dense", "compressed"),
        ("dense", "compressed", "dense"),
    ),
    4: ("dense", "csf", "csf", "coo", ("dense", "compressed", "dense", "compressed")),
    5: ("dense", "csf", "csf", "coo"),
}
RESULTS: dict[int, tuple[Any, ...]] = {
    1: (("compressed",),),
    2: ("csr", "csc", "dcsr"),
    3: ("csf",),
    4: ("csf",),
}
COMMANDS = (
    *("split", "split", "divide", "fuse", "fuse", "pos", "pos", "coord", "reorder", "reorder"),
    *("parallelize", "parallelize", "parallelize", "unroll", "bound", "precompute", "precompute"),
)
TYPES = ("float64", "float64", *FLOATS, "int64", "int32", "int16", "int8")


class Draw:
    """Draws parts of an expression, of operands that it names: P, of powers of two, where they are divided by."""

    def __init__(self, choose: Choose) -> None:
        self.choose, self.names = choose, 0

    def one_in(self, count: int) -> bool:
        return bool(self.choose(range(count)) == 0)

    def access(self, indices: Sequence[str], kind: str = "X") -> str:
        name, self.names = f"{kind}{self.names}", self.names + 1
        return f"{name}[{','.join(indices)}]" if indices else name

    def some(self, letters: Sequence[str], count: int) -> list[str]:
        left, found = list(letters), []
        while len(found) < count and left:
            found.append(left.pop(self.choose(range(len(left)))))
        return found

    def factor(self, indices: Sequence[str]) -> str:
        """An access, a function, a bracket or a fraction."""
        choose, x = self.choose, self.access(indices)
        fewer = self.some(indices, choose((0, 1, 2)))
        match choose((*("access",) * 9, "keeps", "keeps", "function", "bracket", "divided", "negated", "positive")):
            case "keeps":
                return f"{choose(('relu', 'abs', 'tanh'))}({choose((x, x, f'{x} * {self.access(fewer)}'))})"
            case "function":
                inner = choose((x, x, f"{x} + {self.access(fewer)}", f"2 - {x}"))
                return f"{choose(('exp', 'sigmoid', 'tanh', 'relu', 'abs'))}({inner})"
            case "bracket":
                return f"({x} {choose('+-')} {choose((self.access(indices), self.access(fewer), '2', '0.5'))})"
            case "divided":
                below = self.access(fewer, "P")
                return f"{x} / {choose((below, f'(2 * {below})', '4', f'abs({below})'))}"
            case "negated":
                return f"-{x}"
            case "positive":
                return f"{choose(('log', 'sqrt', 'sqrt'))}({self.access(indices, 'P')})"
        return x

    def expression(self, orders: Sequence[int]) -> str:
        """A sum of up to four products of up to five operands; the first has every index of the result."""
        choose = self.choose
        letters = ("i", "j", "k", "l", "m")
        result = letters[: choose((0, 1, 1, 2, 2, 3))]
        terms, count = [], choose((1, 1, 1, 2, 3, 4))
        for n in range(count):
            missing, factors = list(result) if n == 0 else [], list[str]()
            for _ in range(choose((1, 2, 2, 3, 4, 5) if count < 3 else (1, 2, 2, 3))):
                order = max(choose(orders), min(len(missing), 2))
                indices = [missing.pop(0) for _ in range(min(order, len(missing)))]
                left = [letter for letter in letters[: choose((2, 3, 4, 5))] if letter not in indices]
                indices += self.some(left, order - len(indices))
                if choose((False, True)):
                    indices.reverse()
                again = choose(factors) if factors and self.one_in(6) else ""
                factors.append(again or self.factor(indices))
            terms.append(" * ".join([*choose(([], [], [], ["2"], ["0.5"])), *factors]))
        made = f"y[{','.join(result)}]" if result else "y"
        whole = terms[0]
        for term in terms[1:]:
            whole += f" {choose('+-')} {term}"
        return f"{made} = {whole}"

    def product(self) -> str:
        """A product of accesses, for einsum."""
        factors = [
            self.access(self.some("ijklm"[: self.choose((2, 3, 4))], self.choose((1, 1, 2, 2, 3))))
            for _ in range(self.choose((1, 2, 2, 3, 4)))
        ]
        has = list(dict.fromkeys(i for _, each in accesses(" * ".join(factors)) for i in each))
        result = self.some(has, self.choose((0, 1, 2, 2, 3)))
        return f"{f'y[{chr(44).join(result)}]' if result else 'y'} = {' * '.join(factors)}"

    def operators(self, shape: Sequence[str], deep: int = 3) -> str:
        """An expression of Python of a shape, where "o" is one element that is repeated."""
        choose = self.choose
        if not deep or self.one_in(5):
            return self.access(shape)
        kinds = ("+", "-", "*", "*", "/", "neg", "abs", "number", "sum", "repeated")
        match choose((*kinds, "@", "@", "@", "T") if 0 < len(shape) < 3 else kinds):
            case "neg":
                return f"(-{self.operators(shape, deep - 1)})"
            case "abs":
                return f"abs({self.operators(shape, deep - 1)})"
            case "number":
                x, number = self.operators(shape, deep - 1), choose(("2", "0.5", "-1"))
                return choose(
                    (f"({x} * {number})", f"({number} * {x})", f"({x} + {number})", f"({number} - {x})", f"({x} / 2)")
                )
            case "/":
                return f"({self.operators(shape, deep - 1)} / {self.access(shape, 'P')})"
            case "sum" if len(shape) < 3:
                at = choose(range(len(shape) + 1))
                return f"{self.operators([*shape[:at], 's', *shape[at:]], deep - 1)}.sum({at})"
            case "@":
                left, right = [*shape[:-1], "k"], ["k", *shape[-1:]]
                if len(shape) == 1:
                    left, right = choose((([*shape, "k"], ["k"]), (["k"], ["k", *shape])))
                return f"({self.operators(left, deep - 1)} @ {self.operators(right, deep - 1)})"
            case "T":
                return f"{self.operators(shape[::-1], deep - 1)}.T" if len(shape) == 2 else self.access(shape)
            case "repeated":
                fewer = choose((shape[1:], [*shape[:-1], "o"])) if shape else shape
                both = self.operators(shape, deep - 1), self.operators(fewer, deep - 1)
                return f"({both[0]} {choose('+*-')} {both[1]})"
            case sign:
                sign = sign if sign in "+-*" else "+"
                return f"({self.operators(shape, deep - 1)} {sign} {self.operators(shape, deep - 1)})"


def random_format(choose: Choose, modes: int) -> Any:
    """One with a name, or levels in any order of the modes."""
    if not modes or choose((True, True, True, False)):
        return choose(FORMATS[modes]) if modes else "dense"
    levels = tuple(choose(("dense", "compressed", "compressed", "slots")) for _ in range(modes))
    if choose((False, False, True)):
        levels = ("compressed-nonunique", *("singleton",) * (modes - 1))
    return st.Format(levels, tuple(Draw(choose).some(range(modes), modes)))


def random_case(choose: Choose, most: int = 6, sparse: bool = False, way: str = "schedule") -> Case:
    """A case with commands of which some are legal, or of another way of `WAYS`; sparse: its result is so."""
    draw = Draw(choose)
    match way:
        case "einsum":
            expression = draw.product()
        case "operators":
            expression = draw.operators(choose(("", "i", "ij", "ij", "ij", "ijl")))
        case _:
            orders = choose(((0, 1, 1, 2, 2, 3), (0, 1, 2, 3, 4, 5)))
            expression = draw.expression(orders) if choose((False, True, True)) else choose(EXPRESSIONS)
    found = accesses(expression)
    indices = dict.fromkeys([i for _, each in found for i in each])
    extents = {3: (0, 1, 3, 5, 7, 4, 9), 4: (1, 0, 3, 2, 4)}.get(max(len(indices), 3), (1, 2, 3, 2, 0))
    sizes = {index: 1 if index == "o" else choose(extents) for index in indices}
    formats = {
        name: "dense" if name.startswith("P") and not draw.one_in(6) else random_format(choose, len(each))
        for name, each in found
    }
    result = () if way == "operators" else result_indices(expression)
    wanted = choose((*(() if sparse and result else ("dense", "dense", None)), *RESULTS.get(len(result), ())))
    if way in ("evaluate", "einsum") and draw.one_in(4):
        wanted = random_format(choose, len(result))
    case = Case(expression, formats, sizes, (), choose((0, 20, 40, 40, 100)), choose(range(4)), wanted, way)
    case = replace(case, given=random_given(draw, list(formats), way), gradient=draw.one_in(3))
    if way == "schedule":
        case = replace(case, commands=random_commands(case, draw, most))
    return case


def random_given(draw: Draw, names: Sequence[str], way: str) -> dict[str, Given]:
    """What operands are made from; those of most cases are of one type, and of half of them NumPy's float64."""
    choose = draw.choose
    if choose((True, False)):
        return {}
    kinds = FLOATS[:2] + ("int64", "int32") if way == "operators" else TYPES  # of 16 bits each operator rounds
    common, mixed = choose(kinds), draw.one_in(4)
    made = choose(
        (["torch"], ["numpy", "torch"], ["coordinates", "torch"], ["numpy", "coordinates", "scipy", "sparse"])
    )
    return {
        name: Given(choose(made), choose(kinds) if mixed else common, choose((None, None, "int32", "int64")))
        for name in names
    }


def random_commands(case: Case, draw: Draw, most: int) -> tuple[Command, ...]:
    choose = draw.choose
    try:
        made, _ = case.statement()
    except (ValueError, NotImplementedError):  # checked by whoever runs the case
        return ()
    commands: list[Command] = []
    for n in range(choose(range(most + 1)) if any(nest.loops for nest in made.nests) else 0):
        command = random_command(made, choose, n, case.sizes)
        commands.append(command)
        try:
            made = apply(made, command)
        except st.ScheduleError:
            continue
    return tuple(commands)


def random_command(made: Statement, choose: Choose, n: int, sizes: dict[str, int]) -> Command:
    """A command on loops that there are."""
    nests = [each for nest in made.nests for each in nest.nests() if each.loops]
    nest = choose(nests)
    loops = [loop.name for loop in nest.loops]
    loop = choose(loops)
    new = [f"v{n}", f"u{n}"]
    sparse = [str(a) for term in made.source.terms for a in term.accesses if made.source.operands[a.name].is_sparse]
    match choose(COMMANDS):
        case "split":
            return "split", loop, *new, choose((4, 1, 2, 3, 8, 32))
        case "divide":
            return "divide", loop, *new, choose((2, 1, 3))
        case "fuse":
            at = loops.index(loop)
            return "fuse", loop, loops[(at + 1) % len(loops)], new[0]
        case "pos":
            return "pos", loop, new[0], choose(sparse or ["x[i]"])
        case "coord":
            return "coord", loop, new[0]
        case "reorder":
            left, order = list(loops), []
            while left:
                order.append(left.pop(choose(range(len(left)))))
            return "reorder", *order
        case "parallelize":
            unit = choose(("threads", "lanes", "threads", "block", "warp", "thread"))
            return "parallelize", loop, unit, choose(("none", "atomics", "temporary", "parallel_reduction"))
        case "unroll":
            return "unroll", loop
        case "bound":
            return "bound", loop, new[0], choose((sizes.get(loop, 4) or 1, 9, 3)), choose(("exact", "most"))
    assign = choose([assign for each in made.nests for assign in each.assigns()])
    factors = [str(factor.of) for factor in assign.term.factors if hasattr(factor.of, "indices")] or ["x[i]"]
    count = 1 + choose(range(len(factors)))
    picked = factors[:count] if choose((True, False)) else factors[-count:]
    names = loops[: 1 + choose(range(len(loops)))] if choose((False, False, True)) else [loop]
    others = [each.body.term for each in made.nests if isinstance(each.body, Assign) and each.holds(loop)]
    if len(others) > 1 and choose((False, True)):
        return "precompute", _sum(others[: 2 + choose(range(len(others) - 1))]), tuple(names), *_inside(new, names)
    return "precompute", " * ".join(picked), tuple(names), *_inside(new, names)


def _inside(new: Sequence[str], names: Sequence[str]) -> tuple[tuple[str, ...], str]:
    return tuple(f"{new[0]}_{name}" for name in names), new[1]


def _sum(terms: Sequence[Term]) -> str:
    return " + ".join(written(expression_of(term)) for term in terms)

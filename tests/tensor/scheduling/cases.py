"""Random expressions, formats, shapes and commands, and what they must compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pytest

from gnn_sparse_backend import tensor as st
from gnn_sparse_backend.compiler import Program, interpret, run_loops, stage3
from gnn_sparse_backend.tensor.evaluation import arrays_of
from gnn_sparse_backend.tensor.expressions import kernel as expressions_kernel
from gnn_sparse_backend.tensor.expressions.kernel import TensorKernel
from gnn_sparse_backend.tensor.expressions.notation import written
from gnn_sparse_backend.tensor.expressions.terms import Term
from gnn_sparse_backend.tensor.scheduling.assembled import AssembledStatement
from gnn_sparse_backend.tensor.scheduling.nest import Assign, expression_of
from gnn_sparse_backend.tensor.scheduling.statement import Statement
from gnn_sparse_backend.tensor.storage.stored import Stored

T = TypeVar("T")
Choose = Callable[[Sequence[Any]], Any]
"""Takes one of several things."""

EXPRESSIONS = (
    "y[i] = A[i,j] * x[j]",
    "y[j] = A[i,j] * x[i]",
    "a = A[i,j] * B[i,j]",
    "C[i,j] = A[i,k] * B[k,j]",
    "C[i,j] = A[i,j] * B[i,j]",
    "C[i,j] = A[i,j] + B[i,j]",
    "S[i,j] = A[i,j] * U[i,k] * V[j,k]",
    "y[i] = A[i,j] * B[j,k] * x[k]",
    "y[i] = 2 * A[i,j] * x[j] + b[i]",
    "y[i] = A[i,i]",
    "y[i] = A[i,j] * A[i,j]",
    "y[i,j] = T[i,j,k] * x[k]",
    "M[i,r] = T[i,j,k] * C[j,r] * D[k,r]",
    "Y[i,j,r] = T[i,j,k] * C[k,r]",
    "y[i] = relu(A[i,j]) * x[j] - b[i]",
    "a = x[i] * z[i]",
)
FORMATS = {
    0: ("dense",),
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
}
RESULTS: dict[int, tuple[Any, ...]] = {0: (), 1: (("compressed",),), 2: ("csr", "csc", "dcsr"), 3: ("csf",)}
COMMANDS = (
    *("split", "split", "divide", "fuse", "fuse", "pos", "pos", "coord", "reorder", "reorder"),
    *("parallelize", "parallelize", "parallelize", "unroll", "bound", "precompute", "precompute"),
)
Command = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """An expression, the format of each operand, the extent of each index, and commands, to be tried in order.

    fill: elements of a hundred that are not zero. wanted: the format of the result.
    """

    expression: str
    formats: dict[str, Any]
    sizes: dict[str, int]
    commands: tuple[Command, ...] = ()
    fill: int = 40
    seed: int = 0
    wanted: Any = "dense"

    def operands(self) -> dict[str, np.ndarray]:
        """The operands, of small whole numbers, so that sums are exact in any order."""
        rng = np.random.default_rng(self.seed)
        found = {}
        for name, indices in accesses(self.expression):
            if name not in found:
                shape = tuple(self.sizes[index] for index in indices)
                there = rng.random(shape) < self.fill / 100
                found[name] = np.where(there, rng.integers(-3, 4, shape), 0).astype(np.float64)
        return found

    def expected(self) -> np.ndarray:
        """What NumPy computes."""
        result, terms = products(self.expression)
        dense = self.operands()
        total = np.zeros(tuple(self.sizes[index] for index in result))
        letters = {index: chr(97 + n) for n, index in enumerate(self.sizes)}
        for coefficient, factors in terms:
            arrays = [np.maximum(dense[n], 0) if f == "relu" else dense[n] for f, n, _ in factors]
            inputs = ["".join(letters[i] for i in indices) for _, _, indices in factors]
            has = "".join(dict.fromkeys("".join(inputs)))
            kept = [letters[i] for i in result if letters[i] in has]
            part = np.einsum(f"{','.join(inputs)}->{''.join(kept)}", *arrays)
            shape = [self.sizes[i] if letters[i] in has else 1 for i in result]
            total = total + coefficient * part.reshape(shape)
        return total

    def statement(self) -> tuple[Statement, dict[str, Any]]:
        """The statement before any command, and its operands."""
        dense = self.operands()
        given = {name: st.array(x, self.formats[name]) if x.ndim else float(x) for name, x in dense.items()}
        return st.statement(self.expression, format=self.wanted, **given), given


def accesses(expression: str) -> list[tuple[str, tuple[str, ...]]]:
    """Every operand with its indices."""
    return [(name, indices) for _, factors in products(expression)[1] for _, name, indices in factors]


def products(expression: str) -> tuple[tuple[str, ...], list[tuple[int, list[tuple[str, str, tuple[str, ...]]]]]]:
    """(indices of the result, (coefficient, (function, name, indices) of each factor) of each term)."""
    left, right = expression.split(" = ")
    terms = []
    for part in right.replace(" - ", " + -").split(" + "):
        coefficient, factors = 1, []
        if part.startswith("-"):
            coefficient, part = -1, part[1:]
        for factor in part.split(" * "):
            if factor.isdigit():
                coefficient *= int(factor)
                continue
            function = "relu" if factor.startswith("relu(") else ""
            factors.append((function, *_split(factor[len("relu(") : -1] if function else factor)))
        terms.append((coefficient, factors))
    return _split(left)[1], terms


def _split(access: str) -> tuple[str, tuple[str, ...]]:
    name, _, inside = access.partition("[")
    return name, tuple(inside.rstrip("]").split(",")) if inside else ()


def random_expression(choose: Choose) -> str:
    """A sum of up to three products of up to three operands of up to three modes; the first has every index of the
    result."""
    letters = ("i", "j", "k", "l")
    result = letters[: choose((0, 1, 1, 2, 2))]
    terms, names = [], 0
    for n in range(choose((1, 1, 1, 2, 3))):
        missing = list(result) if n == 0 else []
        factors: list[str] = []
        for _ in range(choose((1, 2, 2, 3))):
            left = list(letters[: choose((2, 3, 4))])
            count = max(choose((0, 1, 1, 2, 2, 3)), min(len(missing), 2))
            indices = [missing.pop(0) for _ in range(min(count, len(missing)))]
            left = [letter for letter in left if letter not in indices]
            while len(indices) < count and left:
                indices.append(left.pop(choose(range(len(left)))))
            if choose((False, True)):
                indices.reverse()
            access = f"X{names}[{','.join(indices)}]" if indices else f"X{names}"
            names += 1
            again = choose(factors) if factors and choose((False, False, False, False, True)) else ""
            factors.append(again or (f"relu({access})" if choose((False, False, False, False, True)) else access))
        terms.append(" * ".join([*choose(([], [], ["2"])), *factors]))
    made = f"y[{','.join(result)}]" if result else "y"
    return f"{made} = {choose((' + ', ' - ')).join(terms)}"


def random_case(choose: Choose, most: int = 6, sparse: bool = False) -> Case:
    """A case with commands of which some are legal; sparse: its result is stored sparse, if there is such a format."""
    expression = random_expression(choose) if choose((False, True)) else choose(EXPRESSIONS)
    found = accesses(expression)
    indices = dict.fromkeys([i for _, each in found for i in each])
    sizes = {index: choose((0, 1, 3, 5, 7, 4, 9) if len(indices) < 4 else (0, 1, 3, 2, 4)) for index in indices}
    formats = {name: choose(FORMATS[len(each)]) for name, each in found}
    result = products(expression)[0]
    wanted = choose((*(() if sparse and result else ("dense", "dense", None)), *RESULTS[len(result)]))
    case = Case(expression, formats, sizes, (), choose((0, 20, 40, 40, 100)), choose(range(4)), wanted)
    try:
        made, _ = case.statement()
    except (st.ScheduleError, st.CoIterationError):
        case = replace(case, wanted="dense")
        made, _ = case.statement()
    commands: list[Command] = []
    for n in range(choose(range(most + 1)) if any(nest.loops for nest in made.nests) else 0):
        command = random_command(made, choose, n, sizes)
        commands.append(command)
        try:
            made = apply(made, command)
        except st.ScheduleError:
            continue
    return replace(case, commands=tuple(commands))


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


def apply(made: Statement, command: Command) -> Statement:
    """The statement after a command. Raises ScheduleError where it is not legal."""
    name, *given = command
    done: Statement = getattr(made, name)(*given)
    return done


@dataclass
class Stage:
    """Runs a program as a kernel would, by an interpreter: of stage I, or of the loops of stage III."""

    made: Statement
    loops: bool = False
    runs: int = field(default=0)

    def __call__(self, *arguments: Any) -> None:
        program = self.made.program
        given = dict(zip(program.parameter_names, arguments, strict=True))
        if self.loops:
            function = stage3(program, self.made.schedule, serial=self.made.schedule.on_gpu)
            found = run_loops(function, given)
        else:
            found = interpret(program, given)
        result = program.buffer(self.made.source.notation.result.name).name
        given[result][...] = found[result]


def interpreted(made: AssembledStatement, loops: bool = False) -> TensorKernel:
    """The kernel of a statement whose programs, the one that counts and the one that fills, are interpreted; loops: at
    stage III."""

    def kernel(program: Program, schedule: Any) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            given = dict(zip(program.parameter_names, arguments, strict=True))
            found_of = run_loops(stage3(program, schedule), given) if loops else interpret(program, given)
            for name, found in found_of.items():
                given[name][...] = found

        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expressions_kernel, "compile_program", kernel)
        return made.kernel()


def check(case: Case, how: Sequence[str] = ("stage1",)) -> Statement:
    """Apply the commands that are legal, and compare what comes out with what NumPy computes, exactly.

    how: "stage1" and "stage3" interpret these stages, "kernel" compiles.
    """
    made, given = case.statement()
    for command in case.commands:
        try:
            made = apply(made, command)
        except st.ScheduleError:
            continue
    arrays = arrays_of(made.source.notation, given)
    expected = case.expected()
    for stage in how:
        if isinstance(made, AssembledStatement):
            kernel = made.kernel() if stage == "kernel" else interpreted(made, stage == "stage3")
        elif stage == "kernel":
            kernel = made.kernel(serial=made.schedule.on_gpu)
        else:
            kernel = made._of(Stage(made, stage == "stage3"))
        try:
            found = kernel.run(arrays)
        except ValueError as error:
            if ("bound(" in str(error) or "was compiled for" in str(error)) and is_true(case, made) is not True:
                return made
            raise
        assert is_true(case, made) is not False, f"a bound that is not true was not caught: {case}"
        message = f"{stage} of {case}\n{made}\n{made.program.script()}"
        np.testing.assert_array_equal(found.to_dense(), expected, err_msg=message)
        if isinstance(made, AssembledStatement):
            assert ascends(kernel.computed(arrays)), f"coordinates of a row are not in order: {message}"
    return made


def ascends(found: Stored) -> bool:
    """Whether the coordinates under each element of the last level but one ascend, and occur once."""
    last = found.structure.levels[-1]
    offsets, indices = np.asarray(last.offsets), np.asarray(last.indices)
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return bool(np.all((np.diff(rows) > 0) | (np.diff(indices) > 0)))


def is_true(case: Case, made: Statement) -> bool | None:
    """Whether what was said of extents is true; None where that takes more than the extents of indices."""
    found: bool | None = True
    for promise in made._promises():
        size, said = case.sizes.get(promise.bound.of), promise.bound
        if size is None:
            found = None
        elif size > said.extent or (said.kind == "exact" and size != said.extent):
            return False
    return found

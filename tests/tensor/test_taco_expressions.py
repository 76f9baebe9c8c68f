"""The tests of the Tensor Algebra Compiler for expressions: values against NumPy, and TACO where GSB_TACO names it.

Values are small integers, so that every sum is exact in any order. docs/testing/taco-expressions.md says what they are.
"""

from __future__ import annotations

import ast
import itertools
import os
import re

import numpy as np
import pytest

from benchmarks.support.cells import Unable
from gnn_sparse_backend import tensor as st
from tests.tensor.taco_cases import EXHAUSTED, HASHED, SUMS, Case, expressions, instead, refused, scheduled
from tests.tensor.taco_peer import computed

LEVELS = {"d": "dense", "s": "compressed", "q": "slots"}
EXPRESSIONS, SCHEDULED, INSTEAD = list(expressions()), list(scheduled()), list(instead())
BINARY = {ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide}
MEETING = {ast.Add: np.logical_or, ast.Sub: np.logical_or, ast.Mult: np.logical_and, ast.Div: np.logical_and}


def format_of(letters: str) -> st.Format:
    kinds, _, order = letters.partition(":")
    modes = tuple(map(int, order.split(","))) if order else None
    return st.Format(tuple(LEVELS[kind] for kind in kinds), modes)


def values_of(case: Case) -> dict[str, np.ndarray]:
    """Integers from -4 to 8 in half of the places; one in a row where that is all that a level holds."""
    found = {}
    for name, (shape, letters) in case.operands.items():
        rng = np.random.default_rng([*name.encode(), *shape])
        x = rng.integers(-4, 9, shape).astype(float)
        if name == "ones" or name.startswith("place"):
            x = np.ones(shape) if name == "ones" else np.arange(float(*shape))
        elif not shape or letters.startswith("q") or "/" in case.expression:
            x = np.exp2(rng.integers(0, 4, shape))
        elif "q" in letters:
            column = rng.integers(0, shape[-1], shape[:-1])
            x = x * (np.arange(shape[-1]) == column[..., None]) * (rng.random(shape[:-1]) < 0.8)[..., None]
        else:
            x *= rng.random(shape) < 0.6
        found[name] = np.asarray(x)
    return found


def arrays_of(case: Case, values: dict[str, np.ndarray]) -> dict[str, st.Array]:
    return {name: st.array(values[name], format_of(letters)) for name, (_, letters) in case.operands.items()}


def reference(expression: str, operands: dict[str, np.ndarray], how=BINARY, sum_=np.sum) -> np.ndarray:
    """An expression by NumPy alone, read by Python's own parser.

    Each product is an array with a dimension for every index, which is summed along those that the result has not.
    how: what each sign does; sum_: what is done along an index.
    """
    left, right = (side.strip() for side in expression.split(" = "))
    kept = re.findall(r"\w+", left.partition("[")[2])
    every = [*kept, *(i for i in dict.fromkeys(re.findall(r"[\[,](\w+)", right)) if i not in kept)]

    def spread(node) -> np.ndarray:
        match node:
            case ast.BinOp():
                return how[type(node.op)](spread(node.left), spread(node.right))
            case ast.UnaryOp():
                inside = spread(node.operand)
                return inside if inside.dtype == bool else -inside
            case ast.Constant():
                return np.asarray(node.value if how is BINARY else True).reshape((1,) * len(every))
            case ast.Name():
                return operands[node.id].reshape((1,) * len(every))
        indices = [each.id for each in getattr(node.slice, "elts", [node.slice])]
        x = operands[node.value.id].transpose(np.argsort([every.index(i) for i in indices]))
        return x.reshape([x.shape[sorted(indices, key=every.index).index(i)] if i in indices else 1 for i in every])

    def terms(node, sign=1):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            yield from terms(node.left, sign)
            yield from terms(node.right, -sign if isinstance(node.op, ast.Sub) else sign)
        else:
            yield sign, node

    found = None
    for sign, node in terms(ast.parse(right, mode="eval").body):
        x = sum_(spread(node), axis=tuple(range(len(kept), len(every))))
        x = x if x.dtype == bool else sign * x
        found = x if found is None else how[ast.Add](found, x)
    assert found is not None
    return found


def places(case: Case, values: dict[str, np.ndarray]) -> np.ndarray:
    """Where the result has an element, by the algebra of sets: everywhere in an operand whose modes are all dense."""
    stored = {
        name: np.ones(shape, bool) if set(letters.partition(":")[0]) <= {"d"} else values[name] != 0
        for name, (shape, letters) in case.operands.items()
    }
    return reference(case.expression, stored, MEETING, np.any)


def agree(found: st.Array, want: np.ndarray) -> None:
    np.testing.assert_array_equal(found.to_dense(), np.broadcast_to(want, found.shape))


def agree_in_structure(found: st.Array, stored: np.ndarray) -> None:
    """Index arrays: the coordinates of each compressed level, and how many there are under each element above."""
    stored = np.broadcast_to(stored, found.shape)
    order = found.format.order
    at = np.argwhere(stored.transpose(order))
    for n, level in enumerate(found.structure.levels):
        if level.kind != "compressed":
            continue
        prefixes = np.unique(at[:, : n + 1], axis=0)
        assert level.indices.tolist() == prefixes[:, n].tolist()
        assert level.offsets[-1] == len(prefixes)


@pytest.mark.short(14)
@pytest.mark.parametrize("case", EXPRESSIONS, ids=str)
def test_values_and_where_they_are_stored(case):
    values = values_of(case)
    found = st.evaluate(case.expression, format=format_of(case.format), **arrays_of(case, values))
    want = reference(case.expression, values)
    agree(found, want)
    if "s" in case.format:
        agree_in_structure(found, places(case, values))


@pytest.mark.slow
@pytest.mark.skipif("GSB_TACO" not in os.environ, reason="GSB_TACO names no folder in which TACO was built")
@pytest.mark.parametrize("case", [*EXPRESSIONS, *SCHEDULED], ids=str)
def test_values_and_index_arrays_are_those_of_taco(case):
    """Of an expression without its schedule, which changes nothing of the values."""
    values = values_of(case)
    arrays = arrays_of(case, values)
    if case.test == "matrix_add_vec_mul_composite" or case.test.startswith("transpose"):
        with pytest.raises(Unable):  # its command has no sum(j, ...); its library refuses the others on purpose
            computed(case, arrays)
        return
    found, theirs = st.evaluate(case.expression, format=format_of(case.format), **arrays), computed(case, arrays)
    agree(found, theirs.values)
    mine = [level for level in found.structure.levels if level.kind == "compressed"]
    for level, (offsets, indices) in zip(mine, theirs.levels, strict=True):
        assert level.offsets.tolist() == offsets.tolist() and level.indices.tolist() == indices.tolist()


LATTICES = [case for case in EXPRESSIONS if case.file == "tests-merge_lattice.cpp"]


@pytest.mark.short(4)
@pytest.mark.parametrize("case", [case for case in LATTICES if "s" in case.formats], ids=str)
def test_a_lattice_visits_what_the_algebra_of_sets_says(case):
    """A sparse result has an element for each that is visited."""
    values = values_of(case)
    found = st.evaluate(case.expression, format=st.Format(("compressed",)), **arrays_of(case, values))
    agree(found, reference(case.expression, values))
    agree_in_structure(found, places(case, values))


@pytest.mark.short(2)
@pytest.mark.parametrize("test", EXHAUSTED)
def test_operands_with_nothing_more(test):
    """One kernel, with every choice of operands that store nothing."""
    right, formats = EXHAUSTED[test]
    case = Case("tests-expr.cpp", test, f"A[i,j] = {right}", "ss", tuple(formats.split()), (("i", 3), ("j", 3)))
    values = values_of(case)
    kernel = st.compile(case.expression, format=format_of("ss"), **arrays_of(case, values))
    for empty in itertools.product([0, 1], repeat=len(values)):
        given = {name: x * keep for (name, x), keep in zip(values.items(), empty)}
        found = kernel(**arrays_of(case, given))
        agree(found, reference(case.expression, given))
        agree_in_structure(found, places(case, given))


def made(case: Case, values: dict[str, np.ndarray]) -> st.Statement:
    statement = st.statement(case.expression, format=format_of(case.format), **arrays_of(case, values))
    for command, *arguments in case.schedule:
        statement = getattr(statement, command)(*arguments)
    return statement


@pytest.mark.short(3)
@pytest.mark.parametrize("case", SCHEDULED, ids=lambda case: case.test)
def test_schedules(case):
    values = values_of(case)
    found = st.compile(made(case, values))(**arrays_of(case, values))
    agree(found, reference(case.expression, values))


# What is refused.


@pytest.mark.parametrize("file, test, expression, words", list(refused()), ids=lambda value: value)
def test_refusals(file, test, expression, words):
    operands = {name: np.ones(3) for name in ("a", "b", "d1", "h1", "s1") if f"{name}[i]" in expression}
    if "b[i,j]" in expression:
        operands["b"] = np.eye(3)
    if "b[j]" in expression:
        operands["b"] = np.ones(3)
    with pytest.raises(st.NotationError, match=words):
        st.evaluate(expression, **operands)


def test_levels_that_are_hash_tables_are_refused():
    assert len(HASHED) == 12
    with pytest.raises(st.FormatError, match="level 'hashed' is not one of 'dense', 'compressed'"):
        st.Format(("hashed",))


@pytest.mark.parametrize("test", SUMS)
def test_a_sum_in_a_workspace(test):
    case = next(case for case in INSTEAD if case.test == test)
    expression, loops, inside, workspace = SUMS[test]
    values = values_of(case)
    scheduled = made(case, values).precompute(expression, loops, inside, workspace)
    agree(st.compile(scheduled)(**arrays_of(case, values)), reference(case.expression, values))


@pytest.mark.short(2)
@pytest.mark.parametrize("case", INSTEAD, ids=lambda case: case.test)
def test_what_computes_the_same(case):
    values = values_of(case)
    found = st.evaluate(case.expression, format=format_of(case.format), **arrays_of(case, values))
    agree(found, reference(case.expression, values))

"""Which walks a merged iteration becomes, and what is left of its body in each case."""

from __future__ import annotations

import pytest

from gnn_sparse_backend.compiler.language.printer import text
from gnn_sparse_backend.compiler.language.program import Store
from gnn_sparse_backend.compiler.lowering import lower
from gnn_sparse_backend.compiler.lowering.lattice import merge_lattices
from gnn_sparse_backend.compiler.schedules.primitives.cpu import parallelize, vectorize
from tests.compiler.merged_programs import CASES


def points_of(name: str, iteration: str = "columns"):
    return merge_lattices(CASES[name].make("int32")).iteration(iteration).points


def walked(name: str) -> list[str]:
    """The axes of each point, the letter of each alone."""
    return ["".join(axis.name[1:] for axis in point.axes) for point in points_of(name)]


def cases_of(point) -> dict[str, list[str]]:
    """What is stored in each case."""
    return {
        "".join(axis.name[1:] for axis in case.present): [text(s.value) for s in case.body if isinstance(s, Store)]
        for case in point.cases
    }


@pytest.mark.parametrize(
    "name, points",
    [
        ("union", ["AB", "A", "B"]),
        ("both", ["AB"]),
        ("difference", ["AB", "A"]),
        ("exclusive", ["AB", "A", "B"]),
        ("product_and_sum", ["ABC", "AB", "C"]),  # neither A nor B alone is worth a walk
        ("three", ["ABC", "AB", "AC", "BC", "A", "B", "C"]),
    ],
)
def test_only_sets_that_matter_have_a_point(name, points):
    assert walked(f"merged_{name}") == points
    assert not any(point.every for point in points_of(f"merged_{name}"))


def test_a_condition_that_nothing_decides_visits_every_coordinate():
    (point,) = points_of("merged_one_with_all")
    assert point.every and cases_of(point) == {
        "AB": ["A[i, j] + B[i, j]"],
        "A": ["A[i, j] + number(0.0, 'float32')"],
        "B": ["number(0.0, 'float32') + B[i, j]"],
        "": ["number(0.0, 'float32') + number(0.0, 'float32')"],
    }


def test_what_is_absent_reads_as_zero_and_decides_conditions():
    both, *_ = points_of("merged_difference")
    assert cases_of(both) == {"AB": [], "A": ["A[i, j] - number(0.0, 'float32')"], "B": []}
    three, *_ = points_of("merged_product_and_sum")
    zero = "number(0.0, 'float32')"
    assert cases_of(three) == {
        "ABC": ["A[i, j] * B[i, j] + C[i, j]"],
        "AB": [f"A[i, j] * B[i, j] + {zero}"],
        "AC": [f"{zero} + C[i, j]"],
        "BC": [f"{zero} + C[i, j]"],
        "A": [],
        "B": [],
        "C": [f"{zero} + C[i, j]"],
    }


def test_a_walk_within_a_case_is_along_what_is_there():
    program = merge_lattices(CASES["merged_rows_and_columns"].make("int32"))
    both, only_a, only_b = program.iteration("rows").points
    inner = {len(case.present): case.body[0] for case in both.cases}[2]
    assert [len(point.axes) for point in inner.points] == [2, 1, 1]
    for point, axis in ((only_a, "JA"), (only_b, "JB")):
        ((alone,),) = ([p.axes for p in case.body[0].points] for case in point.cases)
        assert [a.name for a in alone] == [axis]
    names = [it.name for point in (both, only_a, only_b) for case in point.cases for it in case.body]
    assert len(set(names)) == len(names) == 5


def test_programs_without_merged_iterations_stay_the_same():
    from gnn_sparse_backend.compiler.library.products import csr_spmm

    program = csr_spmm(4)
    assert merge_lattices(program) is program


def test_walks_are_neither_parallel_nor_vectors():
    stage2 = lower(CASES["merged_vectors"].make("int32"))
    walk = stage2.program.iteration("columns")
    for refuses in (lambda: parallelize.refuses(stage2, walk), lambda: vectorize.refuses(walk)):
        assert refuses() == "walks along sparse axes, one element after the other"
    # what stands in a case is scheduled as ever
    stage2 = lower(CASES["merged_features"].make("int32"))
    inner = next(it for it in stage2.program.iteration("rows").body if it.points).points[0].cases[0].body[0]
    assert vectorize.refuses(inner) is None
    vectorize.vectorize_spatial(inner.name)(stage2)

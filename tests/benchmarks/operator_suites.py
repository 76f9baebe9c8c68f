"""What holds of every operator's benchmark, on a tiny graph."""

import pytest

from benchmarks.operators.suite import CannotDo


def check_all_agree(contenders, graph, problem):
    """Every contender that is here and can do the problem gives its float64 answer."""
    for contender in contenders:
        try:
            contender.prepare(graph)
            results = contender.bind(problem)()
        except ImportError as missing:
            pytest.skip(f"{contender.name}: {missing}")
        except CannotDo:
            continue
        assert problem.mismatch(results) is None, contender.name


def check_a_wrong_answer_is_noticed(contender, graph, problem, result: int):
    """A spoiled entry of one of the results, another shape and a missing result are named."""
    contender.prepare(graph)
    right = [r.detach().clone() for r in contender.bind(problem)()]
    assert problem.mismatch(tuple(right)) is None
    for spoil in (1.001, float("nan")):
        wrong = [r.clone() for r in right]
        wrong[result].view(-1)[wrong[result].abs().argmax()] *= spoil
        assert problem.mode.results[result] in problem.mismatch(tuple(wrong))
    assert "shape" in problem.mismatch((right[0][:-1], *right[1:]))
    assert "instead of 3" in problem.mismatch(tuple(right[:2]))

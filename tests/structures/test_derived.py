"""Facts of structures: computed once for each structure and what tells them apart, and known by a name."""

import numpy as np
import pytest

import gnn_sparse_backend as gsb
from gnn_sparse_backend.structures.accounting.held import name_of
from gnn_sparse_backend.structures.derived import Keeps, fact


@pytest.fixture
def graphs():
    return [gsb.Graph.from_coo(np.zeros(edges, np.int64), np.zeros(edges, np.int64), (1, 1)) for edges in (2, 3)]


def test_a_fact_is_computed_once_for_what_tells_it_apart(graphs):
    made = []

    @fact
    def many_edges(graph, factor: int, more: int = 0) -> int:
        """The edges, many times."""
        made.append((graph.num_edges, factor, more))
        return graph.num_edges * factor + more

    assert [many_edges(graph, 5) for graph in graphs for _ in range(2)] == [10, 10, 15, 15]
    assert many_edges(graphs[0], 5, more=1) == many_edges(graphs[0], factor=5, more=1) == 11
    assert made == [(2, 5, 0), (3, 5, 0), (2, 5, 1)]
    assert many_edges.__doc__ == "The edges, many times."
    names = [name_of(key) for key in graphs[0].facts if "Many" in name_of(key)]
    assert names == ["ManyEdges(factor=5, more=0)", "ManyEdges(factor=5, more=1)"]
    graphs[0].release()
    assert many_edges(graphs[0], 5) == 10 and made[-1] == (2, 5, 0) and len(made) == 4


def test_a_fact_without_fields_is_a_property_of_a_structure():
    class Owner(Keeps):
        def __init__(self, name: str):
            self.name, self.facts = name, {}

        @property
        @fact
        def twice(self) -> str:
            return 2 * self.name

    one, other = Owner("a"), Owner("b")
    assert (one.twice, other.twice) == ("aa", "bb") and [name_of(key) for key in one.facts] == ["Twice"]
    assert one.twice is one.twice
    one.facts[next(iter(one.facts))] = "kept"
    assert one.twice == "kept"


def test_facts_of_one_name_are_not_one_another(graphs):
    def made(value):
        @fact
        def same_name(graph) -> int:
            return value

        return same_name

    assert [made(value)(graphs[0]) for value in (1, 2)] == [1, 2]

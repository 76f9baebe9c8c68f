"""``gsb.memory`` and ``release``: what a structure holds is counted once, by its bytes, and goes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.structures import derived
from gnn_sparse_backend.structures.derived import Derived
from gnn_sparse_backend.structures.facts import IN_DEGREES, OFFSETS, InverseInDegrees


def graph_of(edges: int = 12, rows: int = 5, cols: int = 7) -> gsb.Graph:
    generator = torch.Generator().manual_seed(0)
    row, col = (torch.randint(0, count, (edges,), generator=generator) for count in (rows, cols))
    return gsb.Graph.from_coo(row, col, (rows, cols))


def own_bytes(graph: gsb.Graph) -> int:
    return sum(x.untyped_storage().nbytes() for x in (graph.indptr, graph.indices, graph.edge_ids) if x is not None)


def test_a_new_graph_holds_its_arrays():
    graph = graph_of()
    held = gsb.memory(graph)
    assert (held.nbytes, held.derived, held.plans) == (own_bytes(graph), 0, 0)
    assert [(row.of, row.what) for row in held.rows] == [("graph", "index arrays")]


def test_a_fact_is_listed_with_its_bytes():
    graph = graph_of()
    graph.derived(InverseInDegrees(torch.float64))
    held = gsb.memory(graph)
    assert held.derived == 5 * 8
    assert held.rows[1].what == "InverseInDegrees(dtype=torch.float64)"


def test_storage_that_facts_share_is_counted_once():
    graph = graph_of()

    class Firsts(Derived[tuple]):
        def compute(self, structure):
            degrees = structure.derived(IN_DEGREES)
            return degrees[:2], degrees[2:]  # views of what another fact has

    graph.derived(OFFSETS)  # a view of the graph's own
    graph.derived(Firsts())
    assert gsb.memory(graph).derived == 5 * 4


def test_the_transpose_is_a_part_of_it():
    graph = graph_of()
    gsb.spmm(graph, torch.ones(7, 3, requires_grad=True)).sum().backward()
    held = gsb.memory(graph)
    assert {row.of for row in held.rows} == {"graph", "transpose"}
    assert held.nbytes >= own_bytes(graph) + own_bytes(graph.transpose()) and held.plans > 0
    assert gsb.memory(graph.transpose()).nbytes == held.nbytes


@pytest.mark.parametrize("kind", ["graph", "relational graph", "segments"])
def test_what_is_released_is_derived_again(kind):
    x = torch.randn(7, 4, requires_grad=True)
    if kind == "graph":
        structure = graph_of()
        run = lambda: gsb.spmm(structure, x, reduce="mean")
    elif kind == "segments":
        structure = gsb.Segments.from_lengths(torch.tensor([2, 0, 5]))
        run = lambda: gsb.segment_reduce(x, structure, "mean")
    else:
        structure = gsb.RelGraph.from_graph(graph_of(), torch.arange(12) % 3)
        run = lambda: gsb.rgms(structure, x, torch.ones(3, 4, 4), reduce="mean")
    new, expected = gsb.memory(structure), run()
    wanted = torch.autograd.grad(expected.sum(), x)
    assert gsb.memory(structure).derived > new.derived
    structure.release()
    held = gsb.memory(structure)
    assert (held.rows, held.calls, held.plans) == (new.rows, 0, 0)
    again = run()
    assert torch.equal(again, expected) and torch.equal(*torch.autograd.grad(again.sum(), x), *wanted)


def test_facts_are_bounded(monkeypatch):
    @dataclass(frozen=True)
    class Number(Derived[int]):
        number: int

        def compute(self, structure):
            computed.append(self.number)
            return self.number

    monkeypatch.setattr(derived, "MOST_FACTS", 4)
    graph, computed = graph_of(), []
    for number in (0, 1, 2, 3, 4, 4, 2, 0):
        assert graph.derived(Number(number)) == number
    assert computed == [0, 1, 2, 3, 4, 0]


def test_prints_a_table():
    graph = graph_of()
    graph.derived(InverseInDegrees(torch.float32))
    text = str(gsb.memory(graph))
    assert "index arrays" in text and "InverseInDegrees" in text and f"{own_bytes(graph) + 20:,}" in text


def test_refuses_what_is_no_structure():
    with pytest.raises(TypeError, match=r"memory: expected a gsb.Graph, RelGraph or Segments, got Tensor"):
        gsb.memory(torch.ones(3))

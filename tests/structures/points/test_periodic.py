"""Radius graphs in periodic cells, against all images of all points."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import gnn_sparse_backend as gsb


def brute(pos: Tensor, r: float, cell: Tensor, pbc: Tensor, batch: Tensor) -> set[tuple]:
    """(source, destination, *shift) of each edge. cell, pbc: by structure."""
    found, x = set(), pos.double()
    for b in batch.unique().tolist():
        at = (batch == b).nonzero().view(-1)
        points, vectors = x[at], cell[b].double()
        spread = int((points[:, None] - points).norm(dim=2).max() + r)
        within = vectors[pbc[b]]
        # the height over each face, from the volumes of boxes
        gram = (within @ within.T).inverse() if len(within) else within
        reach = iter((spread * gram.diagonal().sqrt()).ceil().long().tolist() if len(within) else [])
        spans = [range(-n, n + 1) for n in (next(reach) + 1 if periodic else 0 for periodic in pbc[b].tolist())]
        for shift in itertools.product(*spans):
            moved = torch.tensor(shift).double() @ (vectors * pbc[b][:, None])
            near = (points[None] - points[:, None] + moved).square().sum(2) < r * r
            if not any(shift):
                near.fill_diagonal_(False)
            for i, j in near.nonzero().tolist():
                found.add((int(at[i]), int(at[j]), *shift))
    return found


def edges_of(graph) -> list[tuple]:
    return [(*ends, *shift) for ends, shift in zip(graph.edge_index.t().tolist(), graph.shifts.tolist())]


@st.composite
def crystals(draw):
    """(pos, r, cells, pbc, batch): skewed cells, some smaller than the radius, and points outside of them."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    d, count = draw(st.sampled_from((1, 2, 3))), draw(st.integers(1, 3))
    sizes = torch.randint(0, 7, (count,), generator=generator)
    batch = torch.arange(count).repeat_interleave(sizes)
    cells = torch.eye(d) * (1 + 2 * torch.rand(count, 1, 1, generator=generator))
    cells = cells + draw(st.sampled_from((0.0, 0.4))) * torch.randn(count, d, d, generator=generator).clamp(-1, 1)
    pbc = torch.rand(count, d, generator=generator) < draw(st.sampled_from((0.5, 1.0)))
    pos = 4 * torch.randn(len(batch), d, generator=generator).double()
    if draw(st.booleans()):  # on a lattice, with points on walls and at the same places
        pos, cells = pos.round(), torch.eye(d).expand(count, d, d) * 2
    return pos, draw(st.sampled_from((0.8, 1.0, 2.9))), cells.double(), pbc, batch


@settings(max_examples=40, deadline=None)
@given(crystals(), st.sampled_from((torch.float32, torch.float64)))
def test_edges_are_those_of_all_images(crystal, dtype):
    pos, r, cells, pbc, batch = crystal
    pos, cells = pos.to(dtype), cells.to(dtype)
    graph = gsb.radius_graph(pos, r, cells, pbc, batch)
    found = edges_of(graph)
    assert len(set(found)) == len(found)
    assert set(found) == brute(pos, r, cells, pbc, batch)
    source, destination = graph.edge_index
    assert torch.equal(destination, destination.sort().values)
    assert {(j, i, *(-s for s in shift)) for i, j, *shift in found} == set(found)
    moved = torch.einsum("nd,nde->ne", graph.shifts.to(dtype), cells[batch[source]])
    torch.testing.assert_close(graph.vectors, pos[destination] - pos[source] + moved, atol=1e-5, rtol=1e-5)
    assert bool((graph.distances < r * (1 + 1e-6)).all())


def test_a_cell_without_vectors_along_open_axes():
    """A layer of atoms, as structures of surfaces are written: the third vector is 0, and points are far above it."""
    generator = torch.Generator().manual_seed(3)
    pos = torch.rand(20, 3, generator=generator) * torch.tensor([3.0, 3.0, 40.0])
    cell = torch.tensor([[3.0, 0, 0], [1.0, 3.0, 0], [0, 0, 0]])
    pbc = torch.tensor([True, True, False])
    graph = gsb.radius_graph(pos, 2.5, cell, pbc.tolist())
    expected = brute(pos, 2.5, cell[None], pbc[None], torch.zeros(20, dtype=torch.int64))
    assert set(edges_of(graph)) == expected and len(expected) > 20
    assert not gsb.radius_graph(pos, 2.5).shifts.any()
    none = gsb.radius_graph(pos[:0], 2.5, cell, pbc)
    assert none.edge_index.shape == (2, 0) and none.vectors.shape == (0, 3)


def test_one_atom_in_a_cubic_cell_has_its_images():
    """6, 12 and 8 of them lie at 1, the root of 2 and the root of 3."""
    graph = gsb.radius_graph(torch.tensor([[7.3, -2.1, 0.4]]), 1.8, torch.eye(3))
    assert graph.edge_index.sum() == 0 and graph.edge_index.shape == (2, 26)
    counts = [int((graph.distances - d**0.5).abs().lt(1e-5).sum()) for d in (1, 2, 3)]
    assert counts == [6, 12, 8]


@pytest.mark.parametrize("most", [0, 1, 5, 100])
def test_the_nearest_are_kept_in_their_order(most):
    pos = torch.rand(30, 3, generator=torch.Generator().manual_seed(1)).double()
    every, graph = (gsb.radius_graph(pos, 0.6, torch.eye(3), max_num_neighbors=m) for m in (None, most))
    for node in range(30):
        all_of, kept = (g.distances[g.edge_index[1] == node] for g in (every, graph))
        torch.testing.assert_close(kept, all_of.sort().values[:most])


def test_gradients_reach_positions_and_cell():
    generator = torch.Generator().manual_seed(2)
    pos = (3 * torch.rand(8, 3, generator=generator).double()).requires_grad_()
    cells = (torch.eye(3).double() * 2.5 + 0.2 * torch.rand(2, 3, 3, generator=generator).double()).requires_grad_()
    batch = torch.arange(2).repeat_interleave(4)

    def energy(pos: Tensor, cells: Tensor) -> Tensor:
        return torch.exp(-gsb.radius_graph(pos, 2.2, cells, batch=batch).distances.square()).sum()

    assert torch.autograd.gradcheck(energy, (pos, cells))
    assert torch.autograd.gradgradcheck(energy, (pos, cells), atol=1e-4)
    one = cells[0].detach()
    assert torch.autograd.gradcheck(lambda x: gsb.radius_graph(x, 2.2, one).distances, (pos,))
    with torch.no_grad():
        assert not gsb.radius_graph(pos, 2.2, one).vectors.requires_grad


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"pos": torch.full((2, 3), torch.nan)}, "finite"),
        ({"pos": torch.zeros(2, 3, dtype=torch.int64)}, "floating point"),
        ({"r": 0.0}, "above 0"),
        ({"r": 1e9}, "too large"),
        ({"cell": torch.ones(2, 2)}, r"cell must be \(3, 3\)"),
        ({"cell": torch.ones(3, 3)}, "span"),
        ({"pbc": [True, True]}, "pbc must be"),
        ({"cell": None, "pbc": True}, "wants a cell"),
        ({"batch": torch.tensor([1, 0])}, "ascend"),
    ],
)
def test_mistakes_are_told(options, told):
    given = {"pos": torch.rand(2, 3), "r": 1.0, "cell": torch.eye(3)} | options
    with pytest.raises(ValueError, match=told):
        gsb.radius_graph(**given)

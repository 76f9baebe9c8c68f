"""Pairs of rows and relations, and their panels, against sets of Python."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnn_sparse_backend.formats import structure
from gnn_sparse_backend.formats.partitions.relational import pairs_of_ends, relation_pairs, relation_tasks, row_tasks

few = settings(max_examples=60, deadline=None)


@st.composite
def edges(draw):
    """(row, col, relation, (rows, cols, relations)): any order, repeated edges, relations and rows without edges."""
    rows, cols, relations, count = (draw(st.integers(1, most)) for most in (9, 7, 5, 60))
    count = draw(st.sampled_from([0, count]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    dtype = draw(st.sampled_from([torch.int32, torch.int64]))
    arrays = [torch.randint(0, n, (count,), generator=generator).to(dtype) for n in (rows, cols, relations)]
    return *arrays, (rows, cols, relations)


def triples(row, col, relation):
    return list(zip(row.tolist(), col.tolist(), relation.tolist()))


def assert_covers(given_edges, row, relation, indptr, indices, edge_ids):
    """Every edge stands under its own pair, once."""
    pair = torch.repeat_interleave(indptr.diff())
    assert sorted(edge_ids.tolist()) == list(range(len(given_edges)))
    assert triples(row[pair], indices, relation[pair]) == [given_edges[e] for e in edge_ids.tolist()]


@given(edges())
@few
def test_pairs(case):
    row, col, relation, sizes = case
    pairs = relation_pairs(row, col, relation, *sizes)
    every = triples(row, col, relation)
    assert list(zip(pairs.relation.tolist(), pairs.row.tolist())) == sorted({(r, i) for i, _, r in every})
    assert_covers(every, pairs.row, pairs.relation, pairs.indptr, pairs.indices, pairs.edge_ids)
    assert pairs.row.dtype == row.dtype == pairs.indptr.dtype
    # edges of one pair in their order
    within = torch.repeat_interleave(pairs.indptr.diff())
    assert all(
        a < b
        for a, b, p, q in zip(
            pairs.edge_ids.tolist(), pairs.edge_ids[1:].tolist(), within.tolist(), within[1:].tolist()
        )
        if p == q
    )
    assert pairs.relation_ptr.diff().tolist() == [sum(r == s for s in pairs.relation.tolist()) for r in range(sizes[2])]
    of_edge = pairs.pair_of_edge()
    assert triples(pairs.row[of_edge], col, pairs.relation[of_edge]) == every


@given(edges())
@few
def test_pairs_of_both_ends(case):
    row, col, relation, sizes = case
    found = pairs_of_ends(row, col, relation, *sizes)
    for pairs, expected in zip(
        found, (relation_pairs(*case[:3], *sizes), relation_pairs(col, row, relation, sizes[1], sizes[0], sizes[2]))
    ):
        for name in (field.name for field in dataclasses.fields(pairs)):
            a, b = getattr(pairs, name), getattr(expected, name)
            assert (torch.equal(a, b) and a.dtype == b.dtype) if isinstance(a, torch.Tensor) else a == b, name


@given(edges(), st.integers(1, 6), st.sampled_from([1, 2, 4]), st.sampled_from(["none", "all", "some"]))
@few
def test_tasks_of_rows(case, tasks, most, kind):
    row, col, relation, sizes = case
    rows, columns = (
        relation_pairs(row, col, relation, *sizes),
        relation_pairs(col, row, relation, sizes[1], sizes[0], sizes[2]),
    )
    seen = {}

    def by_column(*counts):
        seen["counts"] = [count.tolist() for count in counts]
        number = torch.arange(counts[0].numel())
        return {"none": number < 0, "all": number >= 0, "some": number % 3 == 1}[kind]

    row_ptr, gathers, scatters = row_tasks(rows, columns, tasks, most, 3.0, by_column)
    assert row_ptr[0] == 0 and row_ptr[-1] == sizes[0]
    assert gathers.tasks == scatters.tasks == tasks == row_ptr.numel() - 1
    found = {}
    for panels, flipped in ((gathers, False), (scatters, True)):
        assert_within(panels, most)
        for task in range(tasks):
            first, last = panels.panel_ptr[task : task + 2].tolist()
            assert panels.relation[first:last].tolist() == sorted(panels.relation[first:last].tolist())
            for panel in range(first, last):
                slot = task * sizes[2] + panels.relation[panel].item()
                assert {"none": False, "all": True, "some": slot % 3 == 1}[kind] is flipped
                for pair in range(*panels.pair_ptr[panel : panel + 2].tolist()):
                    assert panels.indptr[pair] < panels.indptr[pair + 1]
                    for at in range(*panels.indptr[pair : pair + 2].tolist()):
                        ends = (panels.row[pair].item(), panels.indices[at].item())
                        ends = ends[::-1] if flipped else ends
                        assert row_ptr[task] <= ends[0] < row_ptr[task + 1]
                        found[panels.edge_ids[at].item()] = (*ends, panels.relation[panel].item())
    every = triples(row, col, relation)
    assert found == dict(enumerate(every)) and gathers.indices.numel() + scatters.indices.numel() == len(every)
    task_of = (torch.searchsorted(row_ptr, row, right=True) - 1).tolist()
    slots = [t * sizes[2] + r for t, (_, _, r) in zip(task_of, every)]
    distinct = [{(s, i) for s, (i, _, _) in zip(slots, every)}, {(s, j) for s, (_, j, _) in zip(slots, every)}]
    for slot in range(tasks * sizes[2]):
        expected = [sum(s == slot for s, _ in pairs) for pairs in distinct] + [slots.count(slot)]
        assert [counts[slot] for counts in seen["counts"]] == expected


@given(edges())
@few
def test_pairs_of_some_relations(case):
    row, col, relation, sizes = case
    pairs = relation_pairs(row, col, relation, *sizes)
    chosen = torch.arange(sizes[2]) % 2 == 0
    part = pairs.of_relations(chosen)
    pair = torch.repeat_interleave(part.indptr.diff())
    every = triples(row, col, relation)
    assert sorted(part.edge_ids.tolist()) == [e for e, (_, _, r) in enumerate(every) if r % 2 == 0]
    assert triples(part.row[pair], part.indices, part.relation[pair]) == [every[e] for e in part.edge_ids.tolist()]


@given(edges(), st.sampled_from([1.0, 7.0, 1e9]), st.sampled_from([1, 3, 4]))
@few
def test_tasks_of_relations(case, limit, most):
    row, col, relation, sizes = case
    pairs = relation_pairs(row, col, relation, *sizes)
    of_task, panels = relation_tasks(pairs, limit, most, 2.0)
    assert of_task.tolist() == sorted(of_task.tolist()) and panels.tasks == of_task.numel()
    assert_panels(panels, most, triples(row, col, relation))
    assert torch.equal(panels.relation, torch.repeat_interleave(of_task, panels.panel_ptr.diff()))
    if limit > 1e8:
        assert len(set(of_task.tolist())) == of_task.numel() == len(set(relation.tolist()))
    for task in range(panels.tasks):
        first, last = panels.pair_ptr[panels.panel_ptr[task : task + 2].long()].tolist()
        cost = panels.indptr[last] - panels.indptr[first] + 2.0 * (last - first)
        heaviest = 2.0 + panels.indptr.diff()[first:last].max()
        assert cost <= limit + heaviest


def assert_panels(panels, most, every):
    assert_within(panels, most)
    relation = torch.repeat_interleave(panels.relation, panels.size)
    assert_covers(every, panels.row, relation, panels.indptr, panels.indices, panels.edge_ids)


def assert_within(panels, most):
    """Sizes fit, and a panel has no node twice."""
    assert panels.size.tolist() == panels.pair_ptr.diff().tolist()
    assert panels.panel_ptr[-1] == panels.size.numel() and panels.pair_ptr[-1] == panels.row.numel()
    assert all(1 <= size <= most for size in panels.size.tolist())
    for start, stop in zip(panels.pair_ptr.tolist(), panels.pair_ptr[1:].tolist()):
        rows = panels.row[start:stop].tolist()
        assert len(set(rows)) == len(rows)


def test_indices_widen_where_they_would_overflow(monkeypatch):
    monkeypatch.setattr(structure, "INT32_MAX", 10)
    small = torch.tensor([0, 1, 1], dtype=torch.int32)
    assert relation_pairs(small, small, small, 2, 2, 2).row.dtype == torch.int32
    wide = relation_pairs(small, small, small, 20, 2, 2)
    assert {a.dtype for a in (wide.row, wide.indptr, wide.indices, wide.edge_ids, wide.relation)} == {torch.int64}


@pytest.mark.parametrize("sizes", [(0, 0, 0), (4, 3, 0), (4, 3, 2)])
def test_no_edges(sizes):
    none = torch.empty(0, dtype=torch.int32)
    pairs = relation_pairs(none, none, none, *sizes)
    assert pairs.count == 0 and pairs.indptr.tolist() == [0]
    back = relation_pairs(none, none, none, sizes[1], sizes[0], sizes[2])
    row_ptr, *both = row_tasks(pairs, back, 2, 4, 1.0, lambda rows, columns, edges: columns < rows)
    assert all(panels.panel_ptr.tolist() == [0, 0, 0] for panels in both) and row_ptr[-1] == sizes[0]
    assert relation_tasks(pairs, 5.0, 4, 1.0)[1].tasks == 0

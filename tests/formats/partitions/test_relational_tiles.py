"""Tiles of rows of a relational structure, against sets of Python."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnn_sparse_backend.formats import structure
from gnn_sparse_backend.formats.partitions.relational import relation_pairs
from gnn_sparse_backend.formats.partitions.relational_tiles import row_tiles
from tests.formats.partitions.test_relational import edges, triples
from tests.ops.waits import without_waiting

few = settings(max_examples=60, deadline=None)


def check(row, col, relation, sizes, slots, shares, longest, part):
    """Every edge stands once, at a place of its own row, in the panel of its relation, in one share with the others of
    both.
    """
    every = triples(row, col, relation)
    found = row_tiles(relation_pairs(row, col, relation, *sizes), slots, shares, longest, part)
    owner = {number: number for number in range(sizes[0])}
    for at, number in enumerate(found.long_rows.tolist()):
        parts = found.part[found.part_ptr[at] : found.part_ptr[at + 1]].tolist()
        assert parts[0] == number and len(parts) > 1
        owner.update(dict.fromkeys(parts, number))
    # every row, and every part, in one place; tiles are full or have enough edges
    assert sorted(found.row.tolist()) == sorted(owner) == list(range(len(owner)))
    bounds = found.row_ptr.tolist()
    assert (
        bounds[0] == 0 and bounds[-1] == len(owner) and all(0 < b - a <= slots for a, b in itertools.pairwise(bounds))
    )
    assert (found.tiles, found.panels) == (len(bounds) - 1, found.relation.numel())
    seen, lengths, of_share = [], dict.fromkeys(owner, 0), {}
    for tile in range(found.tiles):
        rows, panels = (
            found.row[bounds[tile] : bounds[tile + 1]].tolist(),
            range(*found.panel_ptr[tile : tile + 2].tolist()),
        )
        relations = found.relation[panels.start : panels.stop].tolist()
        assert relations == sorted(set(relations))
        for panel in panels:
            present = set()
            for share in range(panel * shares, (panel + 1) * shares):
                last = None
                for edge in range(*found.share_ptr[share : share + 2].tolist()):
                    place, first = divmod(int(found.place[edge]), 2)
                    assert bool(first) == (place != last) and (not first or place not in present)
                    last = place
                    present.add(place)
                    of_share.setdefault((panel, place), share)
                    assert of_share[panel, place] == share
                    number, r = int(found.edge_ids[edge]), int(found.relation[panel])
                    seen.append(number)
                    lengths[rows[place]] += 1
                    assert every[number] == (owner[rows[place]], int(found.indices[edge]), r)
            assert found.present[panel].nonzero().flatten().tolist() == sorted(present) != []
    assert sorted(seen) == list(range(len(every)))
    degree = torch.bincount(row.long(), minlength=sizes[0]).tolist()
    for number, length in lengths.items():
        assert length <= (part if degree[owner[number]] > longest else longest)
    assert set(found.long_rows.tolist()) == {i for i, d in enumerate(degree) if d > longest}
    return found


@given(edges(), st.sampled_from([1, 2, 16]), st.sampled_from([1, 3, 8]), st.sampled_from([(4, 2), (3, 3), (100, 10)]))
@few
def test_tiles(case, slots, shares, cut):
    *arrays, sizes = case
    check(*arrays, sizes, slots, shares, *cut)


def test_rows_of_like_relations_meet():
    """Rows of two kinds in turns, and one relation that all have: a tile has rows of one kind, and of none other."""
    row = torch.arange(64)
    relation = torch.where(row % 2 == 0, 5, 7)
    row, relation = torch.cat([row, row]), torch.cat([relation, torch.full((64,), 2)])
    found = check(row, row % 3, relation, (64, 3, 9), 16, 4, 1000, 100)
    assert found.tiles == 4 and found.panels == 8 and bool(found.present.all())
    assert [set(rows.tolist()) for rows in (found.row.view(4, 16) % 2)] in ([{0}, {0}, {1}, {1}], [{1}, {1}, {0}, {0}])


def test_edges_of_one_row_and_relation_keep_their_order_and_shares_are_even():
    row, relation = torch.arange(32).repeat(8), torch.zeros(256, dtype=torch.int64)
    found = check(row, torch.arange(256), relation, (32, 256, 1), 32, 4, 1000, 100)
    assert found.share_ptr.diff().tolist() == [64] * 4
    assert found.edge_ids.view(32, 8).diff().min() > 0


def test_tiles_of_heavy_rows_have_fewer_of_them():
    """A row of most edges takes most of a tile, though it is not cut."""
    row = torch.cat([torch.zeros(60), torch.arange(1, 33)]).long()
    found = check(row, row, torch.zeros_like(row), (33, 33, 1), 16, 4, 60, 30)
    sizes = found.row_ptr.diff().tolist()
    assert found.row[0] == 0 and sizes[0] < max(sizes) == 16 and found.long_rows.numel() == 0


@pytest.mark.parametrize("longest", [100, 30, 3], ids=["no row may be cut", "none is", "all are"])
def test_a_gpu_is_waited_for_once(longest, monkeypatch):
    """For all sizes, whether rows are cut or not."""
    row, relation = torch.arange(40) % 8, torch.arange(40) % 3
    pairs = without_waiting(lambda: relation_pairs(row, row, relation, 8, 8, 3), monkeypatch, sizes=1)
    found = without_waiting(lambda: row_tiles(pairs, 4, 2, longest, 2), monkeypatch, sizes=1)
    assert found.long_rows.numel() == (8 if longest < 5 else 0)


def test_large_structures_have_wide_indices(monkeypatch):
    row = torch.arange(9, dtype=torch.int32)
    pairs = relation_pairs(row, row, row % 2, 9, 9, 2)
    assert row_tiles(pairs, 4, 2, 10, 5).indices.dtype == torch.int32
    monkeypatch.setattr(structure, "INT32_MAX", 10)  # shares are more
    wide = row_tiles(pairs, 4, 4, 10, 5)
    assert {array.dtype for array in (wide.row_ptr, wide.row, wide.share_ptr, wide.indices)} == {torch.int64}


def test_a_place_fits_its_byte():
    pairs = relation_pairs(*[torch.zeros(1, dtype=torch.int64)] * 3, 1, 1, 1)
    with pytest.raises(ValueError, match="from 1 to 128 rows, not 129"):
        row_tiles(pairs, 129, 1, 10, 5)

"""What is kept by shape and type: the newer half stays when it is full, and statistics count what came and went."""

from __future__ import annotations

import gc

import pytest

from gnn_sparse_backend.compiler.cache import bounded
from gnn_sparse_backend.compiler.cache.bounded import CacheStatistics, KernelCache, kept, make_room, shared, statistics


def of_name(name: str) -> list[CacheStatistics]:
    return [entry for entry in statistics() if entry.name == name]


@pytest.mark.parametrize("most, left", [(1, [1]), (4, [2, 3, 4]), (5, [3, 4, 5])])
def test_the_older_half_goes(most, left):
    cache = KernelCache("numbers", most)
    for number in range(most + 1):
        assert cache.keep(number, str(number)) == str(number)
        assert len(cache) <= most
    assert list(cache) == left
    assert (cache.made, cache.dropped) == (most + 1, most + 1 - len(left))


def test_what_is_there_is_not_made_again():
    cache, made = KernelCache("numbers"), []
    for _ in range(2):
        assert cache.found("one", lambda: made.append(1) or 1) == 1
    assert made == [1] and cache.get("two") is None


def test_caches_are_told_apart_by_identity():
    one, other = KernelCache("a"), KernelCache("a")
    assert one == one and one != other and len({one, other, one}) == 2


def test_room_in_any_dict():
    facts = dict.fromkeys(range(6), "a fact")
    assert make_room(facts, 7) == 0 and len(facts) == 6
    assert make_room(facts, 6) == 3 and list(facts) == [3, 4, 5]


def test_statistics_of_a_name_are_those_of_all_its_caches_that_live():
    name = "only of this test"
    caches = [shared(name, 2) for _ in range(2)]
    for number in range(3):
        caches[0].keep(number, number)
    caches[1].keep(0, 0)
    assert of_name(name) == [CacheStatistics(name, entries=3, made=4, dropped=1)]
    KernelCache(name).keep(0, 0)  # one of a structure, which is not counted
    del caches[1:]
    gc.collect()
    assert of_name(name) == [CacheStatistics(name, entries=2, made=3, dropped=1)]


def test_a_function_is_kept(monkeypatch):
    monkeypatch.setattr(bounded, "_functions", [])
    monkeypatch.setattr(bounded, "MOST", 2)

    @kept
    def squared(number):
        return number * number

    assert [squared(number) for number in (1, 2, 2, 3)] == [1, 4, 4, 9]
    (entry,) = [entry for entry in statistics() if entry.name.endswith("squared")]
    assert (entry.entries, entry.made, entry.dropped) == (2, 3, 1)

"""Batches that are made ahead."""

import threading
import time

import pytest
import torch

import gnn_sparse_backend as gsb

from .test_layers import random_graph


def threads():
    return [each for each in threading.enumerate() if each.name == "gsb.Prefetcher"]


def test_batches_come_in_order_each_time():
    graph, _, _ = random_graph(500, 500, 4000, 1)
    x = torch.randn(500, 8)

    def make(seeds):
        sample = gsb.sample_neighbors(graph, seeds, [3, 3], seed=int(seeds[0]))
        return sample, x.index_select(0, sample.nodes)

    order = torch.randperm(500).split(50)
    batches = gsb.Prefetcher(order, make, ahead=3)
    assert len(batches) == 10
    for _ in range(2):
        for (sample, rows), seeds in zip(batches, order, strict=True):
            expected, gathered = make(seeds)
            assert torch.equal(sample.edges, expected.edges) and torch.equal(rows, gathered)
    assert not threads()


def test_the_next_batches_are_made_while_one_is_used():
    made = []
    for at in gsb.Prefetcher(range(9), lambda at: made.append(at) or at, ahead=2):
        deadline = time.monotonic() + 300
        while len(made) < min(at + 3, 9) and time.monotonic() < deadline:
            time.sleep(0.001)
        assert len(made) >= min(at + 3, 9)
        assert len(made) <= at + 4  # two wait, one is on its way


def test_errors_come_where_their_batch_would():
    def make(at):
        if at == 2:
            raise KeyError("of batch 2")
        return at

    seen = []
    with pytest.raises(KeyError, match="of batch 2"):
        for at in gsb.Prefetcher(range(5), make):
            seen.append(at)
    assert seen == [0, 1] and not threads()


def test_leaving_a_loop_ends_the_thread():
    iterator = iter(gsb.Prefetcher(range(1000)))
    assert next(iterator) == 0
    iterator.close()
    assert not threads()


@pytest.mark.parametrize(
    "arguments, error, words",
    [((3,), TypeError, "got int"), (([], 3), TypeError, "got 3"), (([], None, 0), ValueError, "got 0")],
)
def test_bad_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        gsb.Prefetcher(*arguments)

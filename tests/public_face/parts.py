"""Random right calls of ``gsb.distributed``, in a process alone; ``d`` draws what they are given (`calls.Drawn`)."""

from __future__ import annotations

import tempfile
from typing import Any

import gnn_sparse_backend as gsb

from . import oracles


def partition(d) -> dict:
    features, labels = d.pick(None, d.floats(d.cols, d.width)), d.pick(None, d.integers(3, d.rows))
    given = dict(graph=d.pick(d.graph(), d.rel_graph()), parts=d.pick(1, 3), method=d.pick("range", "random"))
    given |= dict(sample=d.pick(1.0, 0.5), coarsen=d.pick(None, False, True))
    return given | dict(features=features, labels=labels, seed=d.pick(0, 3), progress=False)


def cut(**arguments: Any) -> Any:
    """`gsb.distributed.partition` into a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        return gsb.distributed.partition(folder=folder, **arguments)


def dropout(d) -> dict:
    return dict(rows=d.integers(9, d.rows), p=d.pick(0.5, 0), seed=d.pick(0, 7))


def mean_loss(d) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        gsb.distributed.partition(d.graph(), 1, folder, "range", progress=False)
        part = gsb.distributed.DistGraph.load(folder)
    return dict(graph=part, total=d.floats(), count=d.pick(0, 3))


def halo_exchange(d) -> dict:
    given = mean_loss(d)
    return dict(graph=given["graph"], x=d.floats(given["graph"].shape[1], d.width))


FUNCTIONS = {
    "distributed.Dropout": (dropout, gsb.distributed.Dropout, None),
    "distributed.halo_exchange": (halo_exchange, gsb.distributed.halo_exchange, oracles.halo_exchange),
    "distributed.mean_loss": (mean_loss, gsb.distributed.mean_loss, oracles.mean_loss),
    "distributed.partition": (partition, cut, None),
}

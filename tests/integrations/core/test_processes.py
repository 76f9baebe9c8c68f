"""Processes that are started while a framework is enabled have it enabled, however they are started."""

from __future__ import annotations

import multiprocessing
from multiprocessing.process import BaseProcess

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.core.registry import IMMEDIATE


def report(queue) -> None:
    queue.put((gsb.status().enabled, tuple(sorted(IMMEDIATE))))


def report_of_rank(rank: int, queue) -> None:
    report(queue)


def started(method: str):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=report, args=(queue,))
    process.start()
    found = queue.get(timeout=120)
    process.join()
    return found


@pytest.mark.short(1)
@pytest.mark.parametrize("framework, method", [("pyg", "forkserver"), ("pyg", "fork"), ("dgl", "spawn")])
def test_a_process_has_what_its_parent_has(framework, method):
    pytest.importorskip("torch_geometric" if framework == "pyg" else framework)
    with gsb.enabled(framework, deferred=method == "forkserver"):
        assert started(method) == ((framework,), () if method == "forkserver" else (framework,))


def test_torchs_processes_are_pythons():
    assert issubclass(torch.multiprocessing.get_context("spawn").Process, BaseProcess)


@pytest.mark.slow
def test_processes_that_torch_spawns():
    pytest.importorskip("torch_geometric")
    queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    with gsb.enabled("pyg"):
        torch.multiprocessing.spawn(report_of_rank, (queue,), nprocs=1)
    assert queue.get() == (("pyg",), ())


def test_nothing_is_taken_along_when_nothing_is_enabled():
    pytest.importorskip("torch_geometric")
    before = BaseProcess.__init__
    with gsb.enabled("pyg"):
        assert BaseProcess.__init__ is not before
    assert BaseProcess.__init__ is before


@pytest.mark.slow
def test_nothing_is_enabled_when_nothing_is_taken_along():
    with gsb.enabled("pyg"):
        pass
    assert started("spawn") == ((), ())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_loaders_of_pyg_sample_in_processes_of_their_own(method):
    loader = pytest.importorskip("torch_geometric.loader")
    data = pytest.importorskip("torch_geometric.data").Data(
        x=torch.arange(50.0)[:, None], edge_index=torch.randint(50, (2, 300)), num_nodes=50
    )
    with gsb.enabled("pyg"):
        batches = loader.NeighborLoader(
            data, [3, 2], batch_size=25, num_workers=1, multiprocessing_context=method, input_nodes=torch.arange(50)
        )
        for batch in batches:
            assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])


def test_loaders_of_dgl_sample_in_processes_of_their_own():
    dgl = pytest.importorskip("dgl")
    graph = dgl.rand_graph(50, 300)
    with gsb.enabled("dgl"):
        sampler = dgl.dataloading.NeighborSampler([3, 2])
        batches = dgl.dataloading.DataLoader(graph, torch.arange(50), sampler, batch_size=25, num_workers=1)
        for _, output, blocks in batches:
            assert len(output) == 25 and blocks[-1].num_dst_nodes() == 25

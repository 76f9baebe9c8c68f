"""``gsb.memory()`` adds up to what the system says of the process, and knows structures and what is kept."""

from __future__ import annotations

import sys

import pytest
import torch

import gnn_sparse_backend as gsb
from benchmarks.support import memory
from gnn_sparse_backend.runtime import accounts
from tests.ops.operators import some_graph

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux says what a process takes, and of what kind")


def bytes_of(held, what: str, of: str = "") -> int:
    return sum(row.nbytes for row in held.rows if row.what == what and of in row.of)


def test_it_adds_up_to_the_resident_set():
    held = gsb.memory()
    assert sum(row.nbytes for row in held.rows) == held.nbytes
    assert abs(held.nbytes - memory.resident()) < 16 << 20 and held.peak >= held.nbytes
    text = str(held)
    assert "PyTorch, Python, kernels" in text and f"the most at a time: {held.peak:,}" in text


def test_structures_count_with_what_they_derive():
    before = gsb.memory()
    graph = some_graph(3000, 2500, 60_000)
    gsb.spmm(graph, torch.ones(2500, 4, requires_grad=True)).sum().backward()
    rel = gsb.RelGraph.from_graph(some_graph(30, 25, 600), torch.arange(600) % 3, 3)
    after = gsb.memory()
    own = gsb.memory(graph)
    grown = bytes_of(after, "index arrays", "Graph") - bytes_of(before, "index arrays", "Graph")
    assert grown >= own.nbytes - own.derived
    assert bytes_of(after, "derived", "Graph") - bytes_of(before, "derived", "Graph") > 0
    assert bytes_of(after, "index arrays", "RelGraph") >= rel.source.nbytes + rel.relation.nbytes


def test_tensors_of_the_program_are_told_by_what_they_are():
    before = gsb.memory()
    layer = torch.nn.Linear(512, 512)
    layer(torch.ones(4, 512)).sum().backward()
    x = torch.ones(1 << 20)
    again = x[4:].view(4, -1)  # the same memory
    after = gsb.memory()
    for what, least in (("parameters", 1 << 20), ("their gradients", 1 << 20), ("tensors", x.nbytes)):
        grown = bytes_of(after, what, "program") - bytes_of(before, what, "program")
        assert least <= grown < least * 1.5
    assert sum(row.nbytes for row in after.rows) == after.nbytes and again.numel() > 0


def test_sparse_tensors_count_and_those_of_transforms_do_not():
    table = torch.nn.Embedding(1000, 256, sparse=True)
    table(torch.arange(900)).sum().backward()
    before = bytes_of(gsb.memory(), "their gradients", "program")
    table.weight.grad = None
    assert 900 * 256 * 4 <= before - bytes_of(gsb.memory(), "their gradients", "program") < 1 << 20

    def counted(x):
        return x * (1 if gsb.memory().nbytes else 0)

    assert torch.equal(torch.vmap(counted)(torch.ones(3, 2)), torch.ones(3, 2))
    matrix = torch.eye(4).to_sparse_csr()
    assert gsb.memory().nbytes and matrix.values().numel() == 4


def test_what_is_kept_says_so_itself(monkeypatch):
    monkeypatch.setattr(accounts, "ACCOUNTS", {})
    monkeypatch.setattr("gnn_sparse_backend.structures.accounting.process.ACCOUNTS", accounts.ACCOUNTS)

    @accounts.account("something large")
    def large() -> int:
        return 12345

    held = gsb.memory()
    assert bytes_of(held, "something large", "kept") == large() == 12345
    assert sum(row.nbytes for row in held.rows) == held.nbytes

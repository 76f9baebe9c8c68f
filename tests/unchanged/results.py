"""The bits of every operator's result and gradients, on one and two threads, at the first and the ninth call."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from tests.ops.operators import OPERATORS, RGMS, some_graph

TYPES = {name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")}
CALLS = 9


def found() -> dict[str, str]:
    """By operator, type, graph, threads and call: a hash of the result, its gradients, and theirs."""
    before = torch.get_num_threads()
    hashes = {}
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for name, dtype, size in _cases():
                hashes.update(_of_calls(name, dtype, size, threads))
    finally:
        torch.set_num_threads(before)
    return hashes


def _cases():
    for name in {**OPERATORS, **RGMS}:
        for dtype in TYPES:
            yield name, dtype, "small"
    for name in (*OPERATORS, *RGMS):
        if "segment" not in name and "gather" not in name:
            yield name, "float32", "large"


def _graph(name: str, size: str):
    """A fresh graph: what it keeps decides what later calls do. The large one has long rows, and work for two."""
    graph = some_graph() if size == "small" else some_graph(3000, 2500, 60_000)
    if name in RGMS:
        return gsb.RelGraph.from_graph(graph, torch.arange(graph.num_edges) % 3, 3)
    return graph


def _of_calls(name: str, dtype: str, size: str, threads: int) -> dict[str, str]:
    operator = {**OPERATORS, **RGMS}[name]
    graph = _graph(name, size)
    torch.manual_seed(0)
    operands = operator.operands(graph, TYPES[dtype])
    hashes = {}
    for call in range(1, CALLS + 1):
        tensors = _step(operator, graph, operands)
        if call in (1, CALLS):
            hashes[f"{name}, {dtype}, {size}, {threads} threads, call {call}"] = _hash(tensors)
    return hashes


def _step(operator, graph, operands: list[Tensor]) -> list[Tensor]:
    """The result, its gradients, and the gradients of these with a cotangent that is none of them."""
    out = operator.run(graph, *operands)
    cotangent = _pattern(out).requires_grad_()
    first = torch.autograd.grad(out, operands, cotangent, create_graph=True)
    wanted = [*operands, cotangent]
    second = torch.autograd.grad(first, wanted, [_pattern(x) for x in first], allow_unused=True)
    return [out, *first, *(x for x in second if x is not None)]


def _pattern(like: Tensor) -> Tensor:
    """Numbers of both signs that no random generator decides."""
    return (torch.arange(like.numel()) % 7 - 3).div(4).view(like.shape).to(like.dtype)


def _hash(tensors: list[Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=12)
    for x in tensors:
        digest.update(f"{tuple(x.shape)} {x.dtype}".encode())
        digest.update(x.detach().contiguous().view(torch.uint8).numpy().tobytes() if x.numel() else b"")
    return digest.hexdigest()

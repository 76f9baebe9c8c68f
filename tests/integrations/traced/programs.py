"""What tests of traced programs share: edges, features, and a program compiled against the program itself."""

from __future__ import annotations

import torch

import gnn_sparse_backend as gsb

NODES, EDGES = 23, 140

VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
"""Of PyTorch. What is said of versions was seen with 2.4, 2.8 and 2.13, and takes what lies between for the older."""


def counted() -> dict[str, int]:
    calls = gsb.status().to_dict()["calls"].get("torch.compile", {})
    return {name: found["ours"] for name, found in calls.items() if found["ours"]}


def edges(seed: int = 0, count: int = EDGES) -> torch.Tensor:
    found = torch.randint(NODES - 2, (2, count), generator=torch.Generator().manual_seed(seed))  # two isolated nodes
    return found


def features(*shape: int, seed: int = 1, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def check(program, *operands: torch.Tensor, tolerance: float = 1e-12, **kwargs) -> dict[str, int]:
    """The program compiled gives what it gives, and the same gradients; what ran here."""
    outcomes = []
    for function in (program, gsb.compile(program, backend="aot_eager", **kwargs)):
        given = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in operands]
        result = function(*given)
        cotangent = features(*result.shape, seed=9).to(result.dtype)
        wanted = [x for x in given if x.requires_grad]
        outcomes.append([result, *torch.autograd.grad(result, wanted, cotangent, allow_unused=True)])
    for ours, theirs in zip(outcomes[1], outcomes[0]):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    return counted()


def expanded(index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return index.view(-1, *(1,) * (x.dim() - 1)).expand_as(x)


def into(x: torch.Tensor, size: int) -> torch.Tensor:
    return x.new_zeros(size, *x.shape[1:])

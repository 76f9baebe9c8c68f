"""The same model and inputs through PyG alone and through PyG with the backend."""

from __future__ import annotations

from functools import partial

import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import reset_status

NODES = 23


def edges(name: str = "random", nodes: int = NODES) -> torch.Tensor:
    """A (2, E) edge index. Node ``nodes - 1`` has no edges in any of them but ``self_loops``."""
    generator = torch.Generator().manual_seed(7)
    if name == "random":
        return torch.randint(0, nodes - 1, (2, 90), generator=generator)
    if name == "large":  # more edges than the store samples
        return torch.randint(0, nodes - 1, (2, 700), generator=generator)
    if name == "none":
        return torch.empty((2, 0), dtype=torch.int64)
    if name == "duplicates":
        return torch.tensor([[0, 3, 0, 0, 5, 3], [1, 1, 1, 4, 4, 1]])
    if name == "self_loops":
        return torch.arange(nodes).repeat(2, 1)
    if name == "hub":
        return torch.stack([torch.arange(nodes - 1), torch.full((nodes - 1,), 2)])
    raise ValueError(name)


EDGES = ("random", "large", "none", "duplicates", "self_loops", "hub")


def features(width: int, nodes: int = NODES, dtype=torch.float64, seed: int = 0) -> torch.Tensor:
    return torch.randn(nodes, width, dtype=dtype, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def step(model, *args, **kwargs) -> dict[str, torch.Tensor]:
    """Output, and gradients of every input and parameter for a random cotangent."""
    leaves = {}
    for position, arg in enumerate((*args, *kwargs.values())):
        for place, one in enumerate(arg if isinstance(arg, tuple) else (arg,)):
            if isinstance(one, torch.Tensor) and one.requires_grad:
                leaves[f"input {position}.{place}"] = one
    if isinstance(model, torch.nn.Module):
        leaves |= dict(model.named_parameters())
    out = model(*args, **kwargs)
    cotangent = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(1))
    grads = torch.autograd.grad(out, list(leaves.values()), cotangent, allow_unused=True)
    return {"output": out.detach()} | dict(zip(leaves, grads))


DEGREES = "a sum of one number per edge is no faster on a kernel"
"""Why ``gcn_norm`` counts edges by itself."""


def in_autocast(model, *args) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """`step` under autocast to bfloat16, without the backend and with it."""

    def once():
        with torch.autocast("cpu", torch.bfloat16):
            return step(model, *args)

    expected = once()
    with gsb.enabled("pyg"):
        return expected, once()


def calls() -> dict:
    """``{operator: n}`` of ours and ``{operator: {reason: n}}`` of the framework's, but for ``DEGREES``."""
    found = {}
    for name, row in gsb.status().to_dict()["calls"].get("pyg", {}).items():
        reasons = {reason: n for reason, n in row["fallbacks"].items() if reason != DEGREES}
        if row["ours"] or reasons:
            found[name] = row["ours"] or reasons
    return found


def check_pair(model, *args, rtol: float = 1e-10, equal_nan: bool = False, **kwargs) -> dict:
    """The backend changes neither output nor gradients; returns ``calls()`` of one forward and backward pass."""
    expected = step(model, *args, **kwargs)
    reset_status()
    with gsb.enabled("pyg"):
        actual = step(model, *args, **kwargs)
        assert type(actual["output"]) is torch.Tensor
    counts = calls()
    assert expected.keys() == actual.keys()
    for name, value in expected.items():
        if value is None:
            assert actual[name] is None, name
        else:
            torch.testing.assert_close(
                actual[name], value, rtol=rtol, atol=rtol, equal_nan=equal_nan, msg=partial("{}: {}".format, name)
            )
    return counts

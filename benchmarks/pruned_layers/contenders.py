"""Whoever can compute a layer. A contender makes of a problem a call that returns its answer, or says why it cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear

from benchmarks.pruned_layers.problem import BLOCK, TWO_OF_FOUR, Place, Problem
from benchmarks.support.cells import Unable
from gnn_sparse_backend.nn import SparseLinear

OURS = "gsb"
VARIANTS = {"csr": "csr", "bsr": f"bsr({BLOCK})", "dbsr": f"dbsr({BLOCK})"}
"""Formats that are timed beside the one that ``auto`` takes."""
NOTES = {
    OURS: "gsb.nn.SparseLinear in the format that auto takes",
    **{f"{OURS} {name}": f'gsb.nn.SparseLinear, format="{words}"' for name, words in VARIANTS.items()},
    "dense": "torch.nn.functional.linear with the zeros",
    "torch bsr": f"torch.nn.functional.linear with a weight in BSR of {BLOCK} x {BLOCK}",
    "torch csr": "x times a weight in torch CSR (MKL), and the bias",
}
CONTENDERS = tuple(NOTES)
Call = Callable[[], tuple[Tensor, ...]]


def call_of(name: str, problem: Problem) -> Call:
    """A call that gives (result,), in a step (result, gradients of x, the weights and the bias). Raises Unable."""
    if name == "dense":
        layer = problem.linear
        return stepped(problem, layer, (layer.weight, layer.bias), lambda weight: weight[problem.kept])
    if name in ("torch bsr", "torch csr", "torch 2:4"):
        return _of_torch(name, problem)
    words = "auto" if name == OURS else VARIANTS[name.removeprefix(f"{OURS} ")]
    if name != OURS and problem.place.pattern != "blocks" and words != "csr":
        raise Unable("blocks are for weights in blocks")
    sparse = SparseLinear.from_dense(problem.linear, problem.kept, format=words)

    def row_by_row(gradient: Tensor) -> Tensor:
        if sparse.format == "csr":
            return gradient
        return gradient[problem.kept] if sparse.format == "dense" else sparse._matrix.unpack(gradient)

    call = stepped(problem, sparse, (sparse.values, sparse.bias), row_by_row)
    call.format = sparse.format
    return call


def _of_torch(name: str, problem: Problem) -> Call:
    if problem.place.op == "step":
        raise Unable("PyTorch has no gradient of sparse weights in this layout that is sparse")
    weight, bias, x = problem.linear.weight.detach(), problem.linear.bias.detach(), problem.x
    if name == "torch bsr":
        if problem.place.pattern != "blocks":
            raise Unable("blocks around single weights are the whole matrix")
        blocked = weight.to_sparse_bsr(BLOCK)
        return lambda: (linear(x, blocked, bias),)
    if name == "torch 2:4":
        if problem.place.pattern != TWO_OF_FOUR or weight.dtype is torch.float32 or weight.device.type != "cuda":
            raise Unable("two of each four weights, in half types on a GPU")
        halved = torch.sparse.to_sparse_semi_structured(weight)
        return lambda: (linear(x, halved, bias),)
    rows = weight.to_sparse_csr()
    return lambda: ((rows @ x.t()).t() + bias,)


class Given(Protocol):
    """What a call takes from a problem."""

    place: Place
    x: Tensor
    cotangent: Tensor


def stepped(
    problem: Given,
    layer: Callable[[Tensor], Tensor],
    parameters: Sequence[Tensor],
    row_by_row: Callable[[Tensor], Tensor] | None = None,
) -> Call:
    """The call of a place's operator. row_by_row: makes of the gradient of the weights that of the kept ones row by
    row, for comparing alone.
    """
    x = problem.x

    def forward() -> tuple[Tensor, ...]:
        with torch.no_grad():
            return (layer(x),)

    def step() -> tuple[Tensor, ...]:
        y = layer(x)
        return y, *torch.autograd.grad(y, (x, *parameters), problem.cotangent)

    if problem.place.op == "forward":
        return forward
    if row_by_row is not None:
        step.in_our_order = lambda answer: (*answer[:2], row_by_row(answer[2]), answer[3])
    return step

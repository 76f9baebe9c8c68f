"""What networks of one shape cost: times in turns, and memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

import gnn_sparse_backend as gsb
from benchmarks.support import memory
from models.patterns import block_pattern, unstructured_pattern
from models.pruning.network import Layer

BERT = (768, 12, 3072)
"""Width, heads and inner width of a layer."""


@dataclass(frozen=True)
class Cost:
    """forward: seconds without gradients. step: of training, with AdamW.

    weights: bytes of parameters, and ``structure`` of the masks or indices beside them. peak: bytes that a step takes
    at most, beside what is there before it; None where the system does not tell.
    """

    forward: float
    step: float
    weights: int
    structure: int
    peak: int | None

    def to_dict(self) -> dict:
        return asdict(self)


def compare(models: Mapping[str, nn.Module], loss: Callable[[nn.Module], Tensor], rounds: int) -> dict[str, Cost]:
    """Medians of so many rounds, in each of which every model has its turn; two more go before them."""
    optimizers = {name: torch.optim.AdamW(model.parameters(), 1e-5) for name, model in models.items()}

    def forward(name: str) -> None:
        with torch.inference_mode():
            loss(models[name])

    def step(name: str) -> None:
        optimizers[name].zero_grad()
        loss(models[name]).backward()
        optimizers[name].step()

    times: dict = {(name, call): [] for name in models for call in (forward, step)}
    for _ in range(rounds + 2):
        for (name, call), found in times.items():
            begin = time.perf_counter()
            call(name)
            found.append(time.perf_counter() - begin)
    for optimizer in optimizers.values():
        optimizer.zero_grad()
    costs = {}
    for name, model in models.items():
        medians = [statistics.median(times[name, call][2:]) for call in (forward, step)]
        weights, structure = (sum(x.nbytes for x in held) for held in (model.parameters(), model.buffers()))
        costs[name] = Cost(*medians, weights, structure, _peak(lambda name=name: step(name)))
        optimizers[name].zero_grad()
    return costs


def of_layer(tokens: int, density: float, block: int, rounds: int, sizes=BERT, seed: int = 0) -> dict[str, Cost]:
    """One layer, dense and sparse, with a generated pattern of pruned weights; nothing for no tokens.

    block: 1 for single weights. sizes: width, heads and inner width.
    """
    if not tokens:
        return {}
    torch.manual_seed(seed)
    dense, sparse = Layer(*sizes), Layer(*sizes)
    masks = {}
    for at, (name, layer) in enumerate(each for each in dense.named_modules() if isinstance(each[1], nn.Linear)):
        shape = layer.out_features, layer.in_features
        if block == 1:
            masks[name] = unstructured_pattern(*shape, density, seed=seed + at)
        else:
            masks[name] = block_pattern(*shape, block, density, seed=seed + at)
        with torch.no_grad():
            layer.weight.mul_(masks[name])
    sparse.load_state_dict(dense.state_dict())
    gsb.nn.sparsify(sparse, masks=masks, at_least=0)
    x = torch.randn(max(tokens // 128, 1), min(tokens, 128), sizes[0], generator=torch.Generator().manual_seed(seed))
    return compare({"dense": dense, "sparse": sparse}, lambda layer: layer(x).square().mean(), rounds)


def _peak(call: Callable[[], object]) -> int | None:
    try:
        return memory.of_call(call)["step"]
    except memory.CannotMeasure:
        return None

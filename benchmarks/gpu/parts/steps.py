"""What a step has to be on a GPU: on the current stream, captured in a CUDA graph, without waiting; and whole trainings
under PyG, with the backend and without.
"""

from __future__ import annotations

import torch

from benchmarks.gpu.families import FAMILIES, Family, exact, mismatch
from benchmarks.gpu.told import PREPARE, WRONG, Told
from benchmarks.gpu.training import LAYERS, losses

STEPS = 5
CLOSE = 1e-3
"""How far losses may differ, relative to them: sums are in another order."""


def run(told: Told) -> None:
    device = torch.device("cuda" if told.on_gpu else "cpu")
    for family in FAMILIES.values():
        for words, check in (("without waiting", _unwaiting), ("captured", _captured), ("on a stream", _on_a_stream)):
            if told.on_gpu:
                told.attempt(f"{family.name} {words}", lambda check=check, family=family: check(family, device))
    for layers in LAYERS[:2] if told.small else LAYERS:
        told.attempt(f"training of {layers} under pyg", lambda layers=layers: _training(told, layers, device))


def _unwaiting(family: Family, device: torch.device) -> dict:
    """PyTorch raises at any call of its own that waits."""
    call, _ = family.step(device, torch.float32)
    call()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return {}


def _captured(family: Family, device: torch.device) -> dict:
    """A graph that was captured gives the answer for other numbers in the same memory."""
    torch.manual_seed(0)
    call, operands = family.step(device, torch.float32)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    kept = [x.detach().clone() for x in operands]
    with torch.no_grad():
        for x in operands:
            x.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = call()
    with torch.no_grad():
        for x, before in zip(operands, kept):
            x.copy_(before)
    graph.replay()
    return mismatch(results, exact(family, torch.float32), torch.float32)


def _on_a_stream(family: Family, device: torch.device) -> dict:
    """On another stream than the default one, behind work that is not done yet when the call returns."""
    torch.manual_seed(0)
    call, operands = family.step(device, torch.float32)
    call()
    kept = [x.detach().clone() for x in operands]
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        for x in operands:
            x.zero_()
        torch.cuda._sleep(50_000_000)
        for x, before in zip(operands, kept):
            x.copy_(before)
    with torch.cuda.stream(stream):
        results = call()
    stream.synchronize()
    return mismatch(results, exact(family, torch.float32), torch.float32)


def _training(told: Told, layers: str, device: torch.device) -> dict:
    ours = losses(device, STEPS, enabled=True, layers=layers)
    if told.mode == PREPARE:
        return {}
    plain = losses(device, STEPS, layers=layers)
    found = {"ours": ours, "plain": plain}
    if all(abs(a - b) <= CLOSE * abs(a) for a, b in zip(plain, ours, strict=True)):
        return found
    return {"state": WRONG, "why": f"losses {ours} with the backend, {plain} without", **found}

"""``torchsparse.tune``: what torchsparse measures to choose among its dataflows, for kernels that are compiled here."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

__all__ = ["tune"]


def tune(
    model: nn.Module,
    data_loader: Iterable[Any],
    n_samples: int = 100,
    collect_fn: Callable[[Any], Any] = lambda data: data,
    enable_fp16: bool = False,
    *args: Any,
    tune_with_bwd: bool = False,
    **kwargs: Any,
) -> None:
    """Run the model on samples, so that every kernel that they need is compiled, and kept for later processes.

    Args:
        model: called as ``model(*collect_fn(data))``, or ``model(data["input"])`` of a dictionary.
        data_loader: of the samples, of which ``n_samples`` at most are taken.
        enable_fp16: whether under autocast to float16.
        tune_with_bwd: whether backward, too; gradients are cleared.
        Others: directories, tags and dataflows of torchsparse, which change nothing here: plans are chosen by
            ``gsb.precompile`` and ``gsb tune``.
    """
    device = next(model.parameters()).device.type
    training = torch.enable_grad() if tune_with_bwd else torch.no_grad()
    with training, torch.autocast(device, torch.float16, enabled=enable_fp16):
        for data in itertools.islice(data_loader, n_samples):
            given = collect_fn(data)
            out = model(given["input"]) if isinstance(given, dict) else model(*_several(given))
            if tune_with_bwd:
                getattr(out, "feats", out).sum().backward()
                model.zero_grad()


def _several(given: Any) -> Any:
    return given if isinstance(given, (tuple, list)) else (given,)

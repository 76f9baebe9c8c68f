"""Functions of ``torch.nn.functional`` on the features of sparse tensors and fields."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

RETURN_TENSORS = (
    "threshold relu hardtanh hardswish relu6 elu selu celu leaky_relu prelu rrelu glu gelu logsigmoid hardshrink "
    "tanhshrink softsign softplus softmin softmax softshrink gumbel_softmax log_softmax tanh sigmoid hardsigmoid silu "
    "batch_norm normalize linear dropout alpha_dropout"
).split()
RETURN_LOSSES = (
    "binary_cross_entropy binary_cross_entropy_with_logits poisson_nll_loss cross_entropy hinge_embedding_loss kl_div "
    "l1_loss mse_loss multilabel_margin_loss multilabel_soft_margin_loss multi_margin_loss nll_loss smooth_l1_loss "
    "soft_margin_loss"
).split()
__all__ = [*RETURN_TENSORS, *RETURN_LOSSES]


def _wrap_tensor(input: Any, F: Tensor) -> Any:
    """Other features at the rows of ``input``."""
    return input._like(F)


def _with_features(function: Callable[..., Tensor], wrap: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    def of_features(input: Any, *args: Any, **kwargs: Any) -> Any:
        found = function(input.F, *args, **kwargs)
        return _wrap_tensor(input, found) if wrap else found

    return of_features


globals().update({name: _with_features(getattr(F, name), True) for name in RETURN_TENSORS})
globals().update({name: _with_features(getattr(F, name), False) for name in RETURN_LOSSES})

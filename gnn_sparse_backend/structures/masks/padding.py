"""``Padding``: which keys of each sequence of a batch are there at all."""

from __future__ import annotations

import torch
from torch import Tensor

from ..checks import as_index_vector, check_count, check_range
from ..immutable import Immutable


class Padding(Immutable):
    """Which keys may be attended, sequence by sequence; made by `padding`, and put on a mask by ``mask & padding``.

    Attributes:
        allowed: (batch, keys) bool.
    """

    __slots__ = ("allowed",)

    allowed: Tensor

    def __init__(self, allowed: Tensor) -> None:
        with torch.inference_mode(False):  # made now, kept for a backward pass later
            object.__setattr__(self, "allowed", allowed.clone() if allowed.is_inference() else allowed)

    def __and__(self, other: object) -> Padding:
        return Padding(self.allowed & self._like("&", other)) if isinstance(other, Padding) else NotImplemented

    def __or__(self, other: object) -> Padding:
        return Padding(self.allowed | self._like("|", other)) if isinstance(other, Padding) else NotImplemented

    def _like(self, sign: str, other: Padding) -> Tensor:
        if other.allowed.shape != self.allowed.shape:
            raise ValueError(
                f"padding {sign} padding: both must be of as many sequences and keys, got "
                f"{tuple(self.allowed.shape)} and {tuple(other.allowed.shape)}"
            )
        return other.allowed

    def __reduce__(self) -> tuple[object, ...]:
        return Padding, (self.allowed,)

    def __repr__(self) -> str:
        return f"Padding({self.allowed.shape[0]} sequences, {self.allowed.shape[1]} keys)"


def padding(allowed: Tensor, keys: int | None = None) -> Padding:
    """Which keys of each sequence are there: ``mask & padding(lengths, keys)``.

    Args:
        allowed: (batch, keys) bool, True where a key may be attended (PyTorch's ``key_padding_mask`` is True where it
            may not); or (batch,) integers, how many keys each sequence has.
        keys: the number of keys, with lengths alone.

    Raises:
        TypeError, ValueError: anything else, which is quoted.
    """
    if isinstance(allowed, Tensor) and allowed.dtype == torch.bool:
        if allowed.dim() != 2 or allowed.is_meta or allowed.layout is not torch.strided:
            raise ValueError(
                f"padding: allowed must be a dense (batch, keys) tensor, got {tuple(allowed.shape)} with layout "
                f"{allowed.layout} on {allowed.device}"
            )
        if keys is not None:
            keys = check_count("keys", keys)
        if keys not in (None, allowed.shape[1]):
            raise ValueError(f"padding: keys is {keys!r}, and allowed has {allowed.shape[1]} keys")
        return Padding(allowed.detach().clone())
    lengths = as_index_vector("allowed", allowed)
    if keys is None:
        raise ValueError(f"padding: with lengths, give keys=, the number of keys; got {keys!r}")
    keys = check_count("keys", keys)
    check_range("allowed", lengths, keys + 1, "keys and more")
    return Padding(torch.arange(keys, device=lengths.device) < lengths.long()[:, None])

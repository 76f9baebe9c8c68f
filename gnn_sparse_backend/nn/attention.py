"""``SparseAttention``: multi-head attention of the pairs that a mask allows."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import Linear, Module, MultiheadAttention, Parameter, init
from torch.nn.functional import linear

from ..compiler.cache.bounded import KernelCache
from ..ops.masked.api import sparse_attention
from ..structures.masks import Mask, Padding

Maskable = Mask | Callable[[tuple[int, int]], Mask]
"""A mask, or what makes one of (queries, keys): ``masks.causal``, or ``partial(masks.band, left=128, right=128)``."""
MOST_MASKS = 32
"""Sizes of which a layer remembers the masks."""


class SparseAttention(Module):
    """``torch.nn.MultiheadAttention`` of which the mask is known: it computes the pairs that it allows, and no others.

    Parameters, their names and the state dict are those of ``torch.nn.MultiheadAttention``, and ``forward`` takes what
    it takes, so that this stands in its place, also within ``torch.nn.TransformerEncoderLayer``. A query that may
    attend no key gets the bias of the output, where PyTorch has NaN.

    Args:
        embed_dim, num_heads, dropout, bias, kdim, vdim, batch_first, device, dtype: as there.
        mask: a mask of one head, or of ``num_heads``; or a function that makes one of a pair (queries, keys), such as
            ``masks.causal`` or ``functools.partial(masks.band, left=128, right=128)``, which is asked once for each
            size that comes.

    Raises:
        TypeError, ValueError: an argument is not as above; it is quoted.
    """

    _qkv_same_embed_dim = False
    """What keeps ``torch.nn.TransformerEncoderLayer`` from attending all pairs with these weights, in its own way."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        mask: Maskable,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"num_heads must divide embed_dim, got embed_dim {embed_dim} and num_heads {num_heads}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = (embed_dim if dim is None else dim for dim in (kdim, vdim))
        self.dropout, self.batch_first = dropout, batch_first
        self.mask = _checked(mask, num_heads)
        self._masks: KernelCache[tuple[int, int], Mask] = KernelCache("masks of a layer", MOST_MASKS)
        new = {"device": device, "dtype": dtype}
        together = self.kdim == self.vdim == embed_dim
        shapes = {
            "in_proj_weight": (3 * embed_dim, embed_dim) if together else None,
            "q_proj_weight": None if together else (embed_dim, embed_dim),
            "k_proj_weight": None if together else (embed_dim, self.kdim),
            "v_proj_weight": None if together else (embed_dim, self.vdim),
            "in_proj_bias": (3 * embed_dim,) if bias else None,
        }
        for name, shape in shapes.items():
            self.register_parameter(name, None if shape is None else Parameter(torch.empty(shape, **new)))
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, **new)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise as ``torch.nn.MultiheadAttention`` does."""
        for name, parameter in self.named_parameters(recurse=False):
            if name != "in_proj_bias":
                init.xavier_uniform_(parameter)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)

    @classmethod
    def from_dense(cls, attention: MultiheadAttention, mask: Maskable) -> SparseAttention:
        """This layer with the parameters of ``attention``, which are the same objects.

        Raises:
            TypeError, ValueError: ``attention`` is another layer, or has ``add_bias_kv`` or ``add_zero_attn``.
        """
        if not isinstance(attention, MultiheadAttention):
            raise TypeError(f"from_dense: expected a torch.nn.MultiheadAttention, got {type(attention).__name__}")
        if attention.bias_k is not None or attention.add_zero_attn:
            raise ValueError(
                "from_dense: add_bias_kv and add_zero_attn add a key that no mask has, got "
                f"add_bias_kv={attention.bias_k is not None} and add_zero_attn={attention.add_zero_attn}"
            )
        return _with_parameters_of(attention, cls, mask=mask)

    def to_dense(self) -> MultiheadAttention:
        """``torch.nn.MultiheadAttention`` with these parameters, which are the same objects. Its mask is an argument of
        its ``forward``.
        """
        return _with_parameters_of(self, MultiheadAttention)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        """(attention, None), as ``torch.nn.MultiheadAttention`` gives it without weights.

        Args:
            query, key, value: as there, of one sequence or of a batch.
            key_padding_mask: (batch, keys) or (keys,), True or minus infinity where a key is not there.
            need_weights, attn_mask, is_causal: must be False and None; the weights are never there as a whole, and the
                mask is the layer's.

        Raises:
            TypeError, ValueError: an argument is not as above, or does not fit the mask; it is quoted.
        """
        _refuse(query, need_weights, attn_mask, is_causal)
        batched = query.dim() == 3
        if query.dim() not in (2, 3) or not query.dim() == key.dim() == value.dim():
            raise ValueError(
                "SparseAttention: query, key and value must be sequences (length, width) or batches of them, got "
                f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}"
            )
        first = self.batch_first or not batched
        heads = [self._in_heads(x, first) for x in self._projected(query, key, value)]
        mask = self._mask_of(heads[0].shape[2], heads[1].shape[2])
        if key_padding_mask is not None:
            mask = mask & _padding(key_padding_mask, heads[1].shape[0], heads[1].shape[2])
        found = sparse_attention(*heads, mask, dropout=self.dropout if self.training else 0.0)
        found = found.transpose(1, 2) if first else found.permute(2, 0, 1, 3)
        found = found.reshape(*found.shape[:2], self.embed_dim)
        return self.out_proj(found if batched else found[0]), None

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        if self.in_proj_weight is not None and query is key is value:
            return linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        weights = weights if self.in_proj_weight is None else self.in_proj_weight.chunk(3)
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return tuple(linear(x, weight, bias) for x, weight, bias in zip((query, key, value), weights, biases))

    def _in_heads(self, x: Tensor, batch_first: bool) -> Tensor:
        """(batch, heads, length, width) of a projection."""
        x = x.unflatten(-1, (self.num_heads, self.head_dim))
        x = x if x.dim() == 4 else x[None]
        return x.transpose(1, 2) if batch_first else x.permute(1, 2, 0, 3)

    def _mask_of(self, queries: int, keys: int) -> Mask:
        if isinstance(self.mask, Mask):
            return self.mask
        sizes = queries, keys
        return self._masks.found(sizes, lambda: _checked(self.mask(sizes), self.num_heads, sizes))

    def __getstate__(self) -> dict[str, object]:
        """Masks of sizes are made again where they are needed."""
        return {**super().__getstate__(), "_masks": KernelCache("masks of a layer", MOST_MASKS)}

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, {self.num_heads}, dropout={self.dropout}, mask={self.mask}"


def _with_parameters_of(layer, kind, **given):
    """A layer of another kind with the very parameters of this one."""
    made = kind(
        layer.embed_dim,
        layer.num_heads,
        layer.dropout,
        layer.in_proj_bias is not None,
        kdim=layer.kdim,
        vdim=layer.vdim,
        batch_first=layer.batch_first,
        device="meta",
        **given,
    )
    for name, parameter in layer.named_parameters(recurse=False):
        setattr(made, name, parameter)
    for name, parameter in layer.out_proj.named_parameters():
        setattr(made.out_proj, name, parameter)
    return made.train(layer.training)


def _checked(mask: object, num_heads: int, sizes: tuple[int, int] | None = None) -> Maskable:
    """Return ``mask`` if it fits ``num_heads`` heads, and ``sizes`` where it was made for them; else raise."""
    if callable(mask) and sizes is None:
        return mask
    if not isinstance(mask, Mask):
        what = "mask must be a Mask, or a function of (queries, keys)" if sizes is None else "mask must give a Mask"
        raise TypeError(f"SparseAttention: {what}, got {type(mask).__name__}")
    if mask.heads not in (1, num_heads):
        raise ValueError(f"SparseAttention: mask must be of 1 or num_heads={num_heads} heads, got {mask}")
    if sizes is not None and mask.shape != sizes:
        raise ValueError(f"SparseAttention: mask was asked for {sizes} queries and keys, and gave {mask}")
    return mask


def _refuse(query: Tensor, need_weights: bool, attn_mask: Tensor | None, is_causal: bool) -> None:
    """What a sparse layer cannot do."""
    if need_weights:
        raise ValueError(
            f"SparseAttention: need_weights={need_weights}: attention in one pass has no weights to give; "
            "to_dense() makes a layer that has"
        )
    if attn_mask is not None or is_causal:
        raise ValueError(
            f"SparseAttention: attn_mask of {None if attn_mask is None else tuple(attn_mask.shape)} and "
            f"is_causal={is_causal}: the mask is the layer's; give mask=masks.from_dense(~attn_mask), or "
            "`mask & masks.causal(n)`, when it is made"
        )
    if query.is_nested:
        raise TypeError(
            "SparseAttention: query is a nested tensor; make torch.nn.TransformerEncoder with "
            "enable_nested_tensor=False"
        )


def _padding(key_padding_mask: Tensor, batch: int, keys: int) -> Padding:
    """What PyTorch's mask of keys that are not there leaves."""
    mask = key_padding_mask if key_padding_mask.dim() == 2 else key_padding_mask[None]
    if tuple(mask.shape) != (batch, keys):
        raise ValueError(
            f"SparseAttention: key_padding_mask must be (batch, keys) = {(batch, keys)}, got "
            f"{tuple(key_padding_mask.shape)}"
        )
    if mask.dtype == torch.bool:
        return Padding(~mask)
    if not mask.is_floating_point():
        raise TypeError(f"SparseAttention: key_padding_mask must be bool or floating, got {mask.dtype}")
    allowed = mask == 0
    if not bool((allowed | (mask == -math.inf)).all()):
        raise ValueError(
            "SparseAttention: key_padding_mask must be 0 or minus infinity where it is floating, got "
            f"{mask[~(allowed | (mask == -math.inf))][0].item()}"
        )
    return Padding(allowed)

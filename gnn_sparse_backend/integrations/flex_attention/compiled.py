"""FlexAttention in programs of ``torch.compile``: as operators of ``torch.library``, without a graph break.

Dynamo traces PyTorch's function to its operator ``flex_attention``, with the functions of scores and pairs as graphs
and all that they read as operands. Its kernel for autograd, which comes first, is ours while we are enabled. Functions
become text there, and a block mask is found again at run time by what its arrays hold.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch.fx import GraphModule
from torch.nn.attention import flex_attention as theirs
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.weak import WeakIdKeyDictionary

from ...ops.core.library import register_for
from ...ops.core.traced import Traced, as_indices
from ...ops.masked.arrays import repeated
from ...ops.masked.flex.arrangement import BOTH, HEADS, SEQUENCES, attended
from ...ops.masked.flex.block_masks import mask_of_arrays
from ...ops.masked.flex.dense import pytorch_is_faster
from ...ops.masked.flex.functions import everything
from ...ops.masked.flex.operators import BACKWARD, CHANGED
from ...ops.masked.flex.trace import Untraceable, traced_of_operands
from ...ops.masked.flex.written import read, written
from ...ops.masked.programs.modifier import SCORE, Modifier
from ...runtime.type_names import accumulator_of
from ...structures.checks import FLOATING
from ...structures.masks import Mask
from ..core.counters import fallback, ours
from ..core.refusal import Refusal
from .calls import ONE_BLOCK

OURS = "GSB"
"""The kernel option of calls that were traced while ours is enabled: what is kept of programs is told apart by it."""
_MODULE = type(theirs.flex_attention_hop).__module__
"""Where PyTorch has its operator, and what it computes with all scores written out."""
_read: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""What graphs are as expressions, or why they are none."""


class Blocks(Traced):
    """What stands for a block mask where a program is traced. heads: of the mask that it becomes."""

    padding = None

    def __init__(self, arguments: tuple[Any, ...], heads: int):
        super().__init__(arguments, kind=BLOCKS)
        self.heads = heads

    def repeated(self, times: int) -> Blocks:
        """Return what stands for the mask with its queries repeated ``times`` times."""
        queries, keys, mask, _, counted = self.arguments
        return Blocks((queries, keys, mask, times, counted), self.heads)


def _mask(arguments: tuple, operands: Any) -> Mask:
    """The mask of the last of the operands, which counts the call."""
    queries, keys, text, times, counted = arguments
    if not text:
        found = everything(queries, keys)
    else:
        sides, lists, allowed = json.loads(text)
        modifier = read(allowed)
        captured = len(modifier.captured)
        arrays = operands[len(operands) - lists - captured :]
        found = mask_of_arrays((queries, keys), tuple(sides), arrays[:lists], modifier.node, arrays[lists:])
    if counted:
        ours(counted, counted)
    return found if times == 1 else repeated(found, times)


BLOCKS = as_indices(
    ("SymInt queries", "SymInt keys", "str mask", "int times", "str counted"),
    _mask,
    "_of_blocks",
    "a block mask of a compiled program is its arrays, no Mask",
)
"""mask: JSON of [sides of a block, number of arrays, which pairs are allowed], whose arrays are the last operands, with
those that the function reads behind them; "" for all pairs. times: that the queries are repeated. counted: the
framework and operator that a call is counted as, or "".
"""
for _operator in (CHANGED, BACKWARD):
    register_for(_operator, BLOCKS)


def before(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The kernel of PyTorch's operator for autograd, asked after ours."""

    def attend(query, key, value, score_mod, block_mask, scale, kernel_options, of_scores=(), of_pairs=()):
        given = query, key, value
        options = dict(kernel_options)
        if options.pop(OURS, None) is None or query.device.type != "cpu":
            return original(*given, score_mod, block_mask, scale, kernel_options, of_scores, of_pairs)
        found = _run(given, score_mod, block_mask, scale, options, of_scores, of_pairs, name)
        if not isinstance(found, Refusal):
            return found
        if not isinstance(query, torch._subclasses.FakeTensor):
            fallback(name, name, found.reason, found.found)
        rest = score_mod, block_mask, scale, options, of_scores, of_pairs
        if torch.is_grad_enabled() and any(x.requires_grad for x in (*given, *of_scores) if isinstance(x, Tensor)):
            # PyTorch's has no gradient on a CPU
            return sys.modules[_MODULE].math_attention(*given, *rest)
        return original(*given, *rest)

    return attend


def _run(given, score_mod, block_mask, scale, options, of_scores, of_pairs, name) -> tuple[Tensor, ...] | Refusal:
    query, key, value = given
    if options.get("OUTPUT_MAX"):
        return Refusal("the largest scores are asked for")
    if query.dtype not in FLOATING or not query.dtype == key.dtype == value.dtype:
        return Refusal(f"dtype {query.dtype}")
    if not query.numel() or not key.shape[2]:
        return Refusal("the shapes do not fit")
    try:
        modifier, which = _expression(score_mod, accumulator_of(query.dtype), of_scores)
        mask, layout, arrays = _blocks(query, key, block_mask, of_pairs, name)
    except Untraceable as error:
        return Refusal("score_mod is no expression of scores that kernels have", str(error))
    changes = None if modifier.node is SCORE else modifier
    logarithms = options.get("OUTPUT_LOGSUMEXP", True)
    key, value = (x.expand(query.shape[0], -1, -1, -1) for x in (key, value))
    if changes is None and not mask.arguments[2] and not logarithms and pytorch_is_faster(query, key, value):
        out = scaled_dot_product_attention(*(query, key, value), scale=float(scale), enable_gqa=True)
        lse = out.new_empty(out.shape[:3], dtype=accumulator_of(out.dtype))
    else:
        more = None, *(of_scores[n] for n in which), *arrays
        attributes = float(scale), changes, 0.0
        out, lse = attended((query, key, value), more, mask, layout, attributes, Blocks.repeated)
    # PyTorch takes logarithms to the base of 2, and from 2.9 on the largest scores
    return out, lse / math.log(2.0), *((lse.new_empty(0),) if hasattr(theirs, "AuxRequest") else ())


def _expression(function: Any, dtype: torch.dtype | None, operands: tuple) -> tuple[Modifier, tuple[int, ...]]:
    """The expression of a graph, and which operands it reads. A graph is read once."""
    if not all(isinstance(x, Tensor) for x in operands):
        raise Untraceable("score_mod reads a number that changes from call to call")
    if not isinstance(function, GraphModule):
        return traced_of_operands(function, dtype, operands)
    name = dtype, *((x.dtype, x.dim()) for x in operands)
    known = _read.setdefault(function, {})
    if name not in known:
        try:
            known[name] = traced_of_operands(function, dtype, operands)
        except Untraceable as error:
            known[name] = error
    if isinstance(known[name], Untraceable):
        raise known[name]
    return known[name]


def _blocks(query: Tensor, key: Tensor, block_mask: tuple, operands: tuple, name: str) -> tuple[Blocks, str, tuple]:
    """(what stands for the mask, what it has one for each of, tensors that it is made of)."""
    *given, tall, wide, allowed = block_mask
    queries, keys = query.shape[2], key.shape[2]
    if {int(tall), int(wide)} == {ONE_BLOCK}:
        return Blocks((queries, keys, "", 1, name), 1), HEADS, ()
    modifier, which = _expression(allowed, None, operands)
    first = next(n for n, x in enumerate(given) if isinstance(x, Tensor))
    lists = tuple(x for x in given[first : first + 4] if x is not None)
    batch, heads = (int(size) for size in lists[0].shape[:2])
    text = json.dumps([[int(tall), int(wide)], len(lists), written(modifier)])
    layout = HEADS if batch == 1 else SEQUENCES if heads == 1 else BOTH
    mask = Blocks((queries, keys, text, 1, name), batch * heads)
    return mask, layout, (*lists, *(operands[n] for n in which))


class Kernel:
    """Ours in front of the kernel that PyTorch's operator has for autograd, while it is there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.original: Callable[..., Any] | None = None

    def put(self) -> bool:
        """Put it there. Returns whether this PyTorch has a place for it."""
        kernels = theirs.flex_attention_hop.py_kernels
        if DispatchKey.Autograd not in kernels:
            return False
        self.original = kernels[DispatchKey.Autograd]
        self._set(before(self.original, self.name))
        return True

    def take(self) -> None:
        """Put PyTorch's back."""
        if self.original is not None:
            self._set(self.original)
            self.original = None

    @staticmethod
    def _set(kernel: Callable[..., Any]) -> None:
        operator = theirs.flex_attention_hop
        operator.py_kernels[DispatchKey.Autograd] = kernel
        operator._dispatch_cache.clear()

"""Whoever can compute a cell. A contender makes of a problem a call that returns its answer, or says why it cannot."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

import gnn_sparse_backend as gsb
from benchmarks.masked.problem import BLOCK, DECODE, FLEX, WINDOW, Problem
from benchmarks.support.cells import Unable

OURS = "gsb"
MOST_MEMORY = 4 << 30
"""Bytes."""
ATTENTION, PRODUCTS = ("forward", "step", DECODE), ("sddmm", "spmm")
NOTES = {
    OURS: "gsb.sparse_attention, gsb.flex_attention, gsb.masked_sddmm, gsb.masked_spmm",
    "sdpa": "scaled_dot_product_attention of all pairs, with the mask as a bool matrix, or is_causal",
    "flex": "FlexAttention under torch.compile, with a block mask made before; it has no backward pass on CPUs",
    "plain": "scores of all pairs, changed, and a softmax in plain PyTorch",
    "chunks": "bands in plain PyTorch: chunks of queries, the three chunks of keys around each, and the global token",
    "gathered": "blocks of keys gathered for each block of queries in plain PyTorch, all rows with as many",
    "dense": "torch.bmm of everything, and the blocks taken out",
    "bsr": "torch.sparse_bsr matrices of 64 x 64, one for each head",
    "csr": "torch.sparse_csr matrices, and sampled_addmm, one for each head",
}
WIDENED = {f"{name}32": name for name in NOTES if name != OURS}
"""Peers on operands of a half type that are converted to float32 and back: CPUs without instructions for half types
take many times as long in some of PyTorch's products of these.
"""
NOTES |= {name: f"{of} on half types by way of float32, converted in each call" for name, of in WIDENED.items()}
CONTENDERS = tuple(NOTES)
Call = Callable[[], tuple[Tensor, ...]]
Compute = Callable[..., Tensor]
"""From the operands of a problem to its result."""


def call_of(name: str, problem: Problem) -> Call:
    """A call that gives (result,), in a step (result, gradients of q, k and v). Raises Unable."""
    if name == OURS:
        return _ours(problem)
    compute = _widened(WIDENED[name], problem) if name in WIDENED else _peer(name, problem)
    if problem.place.op == "step":
        return _stepped(problem, compute)

    def call() -> tuple[Tensor, ...]:
        return (compute(*problem.operands),)

    if hasattr(compute, "in_our_order"):
        call.in_our_order = compute.in_our_order
    return call


def _peer(name: str, problem: Problem) -> Compute:
    op = problem.place.op
    if op in PRODUCTS:
        if name not in ("dense", "bsr", "csr"):
            raise Unable(f"computes attention, not {op} by itself")
        return _PRODUCTS[op, name](problem) if (op, name) in _PRODUCTS else _unable(f"has no {op} on these")
    return _ATTENTION[name](problem) if name in _ATTENTION else _unable("computes products, not attention")


def _widened(name: str, problem: Problem) -> Compute:
    """Of a peer. What it makes of the mask and of values before its calls is in float32 already."""
    dtype = problem.place.dtype
    if dtype is torch.float32:
        raise Unable("these operands are float32")
    compute = _peer(name, problem.widened())

    def by_float32(*operands: Tensor) -> Tensor:
        return compute(*(x.float() for x in operands)).to(dtype)

    if hasattr(compute, "in_our_order"):
        by_float32.in_our_order = compute.in_our_order
    return by_float32


def _unable(why: str) -> Compute:
    raise Unable(why)


def _stepped(problem: Problem, attend: Compute) -> Call:
    def step() -> tuple[Tensor, ...]:
        out = attend(*problem.qkv)
        return out, *torch.autograd.grad(out, problem.qkv, problem.cotangent)

    return step


def _ours(problem: Problem) -> Call:
    mask, op = problem.mask, problem.place.op
    if op == "sddmm":
        return lambda: (gsb.masked_sddmm(mask, *problem.qkv[:2]),)
    if op == "spmm":
        values, v = problem.values, problem.qkv[2]
        return lambda: (gsb.masked_spmm(mask, values, v),)
    attend = lambda q, k, v: gsb.sparse_attention(q, k, v, mask)
    if op == DECODE:
        attend = lambda q, k, v: gsb.flex_attention(q, k, v, enable_gqa=True)
    elif problem.place.mask_name in FLEX:
        attend = lambda q, k, v: gsb.flex_attention(q, k, v, problem.score_mod, mask)
    return _stepped(problem, attend) if op == "step" else lambda: (attend(*problem.qkv),)


def _sdpa(problem: Problem) -> Compute:
    if problem.place.mask_name == "dense":
        return lambda q, k, v: scaled_dot_product_attention(q, k, v, enable_gqa=True)
    if problem.place.mask_name == "causal":
        return lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True)
    allowed = problem.allowed
    if problem.place.mask_name == "soft cap":
        raise Unable("a cap of scores is no mask")
    if problem.score_mod is not None:
        nothing = torch.zeros(1, 1, 1)
        allowed = problem.changed(nothing, slice(None)).to(problem.place.dtype)[None]
    return lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=allowed)


def _plain(problem: Problem) -> Compute:
    if problem.place.mask_name != "soft cap":
        raise Unable("scores are as they are, or a bias is added: see sdpa")
    if 3 * 4 * problem.place.heads * problem.place.tokens**2 > MOST_MEMORY:
        raise Unable("scores of all pairs take too much memory")

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = problem.changed((q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5)[0], slice(None))
        return (scores.softmax(-1).to(v.dtype) @ v[0])[None]

    return attend


def _flex(problem: Problem) -> Compute:
    if problem.place.op == "step" and problem.device.type == "cpu":
        raise Unable("FlexAttention has no backward pass on CPUs")
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.config.recompile_limit = 1 << 10  # at the eighth function PyTorch would leave it uncompiled
    mods = {
        "band": lambda b, h, i, j: (i - j <= WINDOW) & (j - i <= WINDOW),
        "global": lambda b, h, i, j: ((i - j <= WINDOW) & (j - i <= WINDOW)) | (i == 0) | (j == 0),
        "butterfly": lambda b, h, i, j: ((i // BLOCK ^ j // BLOCK) & ((i // BLOCK ^ j // BLOCK) - 1)) == 0,
        "causal": lambda b, h, i, j: j <= i,
    }
    n, name = problem.place.tokens, problem.place.mask_name
    if problem.place.op == DECODE:
        compiled = torch.compile(flex_attention, dynamic=False)
        return lambda q, k, v: compiled(q, k, v, enable_gqa=True)
    if name in FLEX:
        compiled, blocks, mod = torch.compile(flex_attention, dynamic=False), problem.block_mask, problem.score_mod
        return lambda q, k, v: compiled(q, k, v, score_mod=mod, block_mask=blocks)
    side = BLOCK if name == "butterfly" else 128
    mask = create_block_mask(mods[name], None, None, n, n, device=problem.device, BLOCK_SIZE=side)
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, block_mask=mask)


def _chunks(problem: Problem) -> Compute:
    name, n = problem.place.mask_name, problem.place.tokens
    if name not in ("band", "global"):
        raise Unable("chunks are for bands")
    if n % WINDOW:
        raise Unable(f"{n} tokens are no chunks of {WINDOW}")
    globally = name == "global"
    at = torch.arange(n).view(-1, WINDOW, 1)
    near = torch.arange(-WINDOW, 2 * WINDOW) + at[:, :1]
    allowed = ((near - at).abs() <= WINDOW) & (near >= int(globally)) & (near < n)

    def around(x: Tensor) -> Tensor:
        """(batch, heads, chunks, 3 * WINDOW, width), a view of a padded copy."""
        return pad(x, (0, 0, WINDOW, WINDOW)).unfold(2, 3 * WINDOW, WINDOW).transpose(-1, -2)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scale = q.shape[-1] ** -0.5
        chunked = q.unflatten(2, (-1, WINDOW)) * scale
        scores = (chunked @ around(k).transpose(-1, -2)).masked_fill(~allowed, -torch.inf)
        if globally:  # the key of the global token beside the others, and its query apart
            scores = torch.cat([chunked @ k[:, :, None, :1].transpose(-1, -2), scores], -1)
        weights = scores.softmax(-1)
        if not globally:
            return (weights @ around(v)).flatten(2, 3)
        out = (weights[..., 1:] @ around(v) + weights[..., :1] @ v[:, :, None, :1]).flatten(2, 3)
        whole = (q[:, :, :1] * scale @ k.transpose(-1, -2)).softmax(-1) @ v
        return torch.cat([whole, out[:, :, 1:]], 2)

    return attend


def _gathered(problem: Problem) -> Compute:
    mask = problem.mask
    lengths = mask.indptr.diff()
    if problem.place.mask_name in ("causal", "global", *FLEX) or problem.place.tokens % BLOCK:
        raise Unable("rows differ too much in length to be padded, or the last block is not whole")
    longest, rows = int(lengths.max()), mask.block_rows
    lines = problem.lines
    slot = torch.arange(mask.num_blocks) - mask.indptr[:-1].long()[lines]
    index = torch.zeros(rows, longest, dtype=torch.int64)
    index[lines, slot] = mask.indices.long()
    allowed = torch.zeros(rows, longest, BLOCK, BLOCK, dtype=torch.bool)
    allowed[lines, slot] = problem.allowed_in_blocks
    forbidden = ~allowed.transpose(1, 2).reshape(rows, BLOCK, longest * BLOCK)
    whole = not bool(forbidden.any())

    def gathered(x: Tensor) -> Tensor:
        blocks = x.unflatten(2, (-1, BLOCK)).index_select(2, index.flatten())
        return blocks.unflatten(2, (rows, longest)).flatten(3, 4)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q.unflatten(2, (-1, BLOCK)) * q.shape[-1] ** -0.5 @ gathered(k).transpose(-1, -2)
        scores = scores if whole else scores.masked_fill(forbidden, -torch.inf)
        return (scores.softmax(-1) @ gathered(v)).flatten(2, 3)

    return attend


def _dense_sddmm(problem: Problem) -> Compute:
    side, rows, columns = problem.mask.block, problem.mask.block_rows, problem.mask.indices.long()
    allowed = problem.allowed_in_blocks.to(problem.place.dtype)

    def compute(q: Tensor, k: Tensor) -> Tensor:
        cells = (q @ k.transpose(-1, -2)).unflatten(3, (rows, side)).unflatten(2, (rows, side)).transpose(3, 4)
        return cells[:, :, problem.lines, columns] * allowed

    return compute


def _dense_spmm(problem: Problem) -> Compute:
    matrices = torch.stack([problem.dense_values(head, problem.place.dtype) for head in range(problem.place.heads)])
    return lambda v: torch.bmm(matrices, v[0])[None]


def _by_head(matrices: list[Tensor]) -> Compute:
    return lambda v: torch.stack([matrix @ x for matrix, x in zip(matrices, v[0])])[None]


def _bsr_spmm(problem: Problem) -> Compute:
    mask, n = problem.mask, problem.place.tokens
    return _by_head(
        [torch.sparse_bsr_tensor(mask.indptr, mask.indices, each.contiguous(), (n, n)) for each in problem.values[0]]
    )


def _pattern(problem: Problem) -> tuple[Tensor, Tensor]:
    """(indptr, indices) of the pairs of whole blocks, which is what values are kept for."""
    side, mask = problem.mask.block, problem.mask
    lengths = mask.indptr.diff().long() * side
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.repeat_interleave(side).cumsum(0)])
    order = _csr_order(problem)
    columns = (mask.indices.long()[:, None, None] * side + torch.arange(side)).expand(-1, side, -1)
    return indptr.int(), columns.reshape(-1)[order].int()


def _csr_order(problem: Problem) -> Tensor:
    """Which number of the blocks each number of the rows is."""
    side, mask = problem.mask.block, problem.mask
    inside = torch.arange(side)
    row = problem.lines[:, None, None] * side + inside[:, None]
    column = mask.indices.long()[:, None, None] * side + inside
    return torch.argsort((row * problem.place.tokens + column).flatten())


def _csr_spmm(problem: Problem) -> Compute:
    n, order = problem.place.tokens, _csr_order(problem)
    pattern = _pattern(problem)
    return _by_head([torch.sparse_csr_tensor(*pattern, each.flatten()[order], (n, n)) for each in problem.values[0]])


def _csr_sddmm(problem: Problem) -> Compute:
    n, order = problem.place.tokens, _csr_order(problem)
    pattern = torch.sparse_csr_tensor(*_pattern(problem), torch.zeros(len(order), dtype=problem.place.dtype), (n, n))
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order))
    allowed = problem.allowed_in_blocks.to(problem.place.dtype)

    def compute(q: Tensor, k: Tensor) -> Tensor:
        pairs = zip(q[0], k[0])
        return torch.stack([torch.sparse.sampled_addmm(pattern, a, b.t(), beta=0.0).values() for a, b in pairs])

    # the order of rows is the contender's own, and is brought into ours only where the answer is compared
    compute.in_our_order = lambda answer: (answer[0][:, back].view(1, -1, *allowed.shape) * allowed,)
    return compute


_ATTENTION = {"sdpa": _sdpa, "flex": _flex, "plain": _plain, "chunks": _chunks, "gathered": _gathered}
_PRODUCTS = {
    ("sddmm", "dense"): _dense_sddmm,
    ("spmm", "dense"): _dense_spmm,
    ("spmm", "bsr"): _bsr_spmm,
    ("spmm", "csr"): _csr_spmm,
    ("sddmm", "csr"): _csr_sddmm,
}

"""Every operator of the package in plain PyTorch, an entry per edge: slow, differentiable, and without our kernels."""

from __future__ import annotations

import math

import torch
from torch import Tensor

import gnn_sparse_backend as gsb

FUNCTIONS = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "sigmoid": torch.sigmoid}


def ends(graph: gsb.Graph) -> tuple[Tensor, Tensor]:
    """(destinations, sources) of the edges, in the user's order."""
    rows = torch.arange(graph.shape[0]).repeat_interleave(graph.indptr.diff().long())
    order = torch.argsort(graph.edge_numbers.long())
    return rows[order], graph.indices.long()[order]


def reduced(messages: Tensor, row: Tensor, rows: int, reduce: str, ties: str = "even") -> Tensor:
    """(rows, ...) of (edges, ...)."""
    out = messages.new_zeros(rows, *messages.shape[1:])
    index = row.view(-1, *(1,) * (messages.dim() - 1)).expand_as(messages)
    if reduce in ("sum", "mean"):
        out = out.index_add(0, row, messages)
        count = torch.bincount(row, minlength=rows).clamp(min=1)
        return out / count.view(-1, *(1,) * (out.dim() - 1)) if reduce == "mean" else out
    how, nothing = ("amax", -math.inf) if reduce == "max" else ("amin", math.inf)
    if ties == "even":
        return out.scatter_reduce(0, index, messages, how, include_self=False)
    return (out + nothing).scatter_reduce(0, index, messages.masked_fill(messages.isnan(), nothing), how)


def at_edges(graph: gsb.Graph, place: str, x: Tensor) -> Tensor:
    """(edges, ...), or (1, ...) of what is the same for all of them."""
    if place == "all":
        return x[None]
    row, col = ends(graph)
    count = {"u": graph.shape[1], "v": graph.shape[0], "e": graph.num_edges}[place]
    assert x.shape[0] == count, (place, x.shape)
    return x if place == "e" else x[col if place == "u" else row]


def messages_of(graph: gsb.Graph, message: str, operands) -> Tensor:
    found = [at_edges(graph, place, x) for place, x in operands]
    rank = max(x.dim() for x in found)
    aligned = [x.reshape(x.shape[0], *(1,) * (rank - x.dim()), *x.shape[1:]) for x in found]
    out = eval(message, dict(FUNCTIONS), {f"x{n}": x for n, x in enumerate(aligned)})
    return out.expand(graph.num_edges, *out.shape[1:])


def aggregate(graph, message, operands, reduce="sum", ties="even"):
    return reduced(messages_of(graph, message, operands), ends(graph)[0], graph.shape[0], reduce, ties)


def edge_map(graph, message, operands, sum_last=False):
    found = messages_of(graph, message, operands)
    return found.sum(-1, keepdim=True) if sum_last else found


def spmm(graph, x, weight=None, reduce="sum"):
    if weight is None:
        return aggregate(graph, "x0", [("u", x)], reduce)
    if weight.dim() == 2 and (x.dim() == 2 or weight.shape[1] != x.shape[1]):
        weight = weight.squeeze(1)
    weight = weight.reshape(weight.shape + (1,) * (x.dim() - weight.dim()))
    return aggregate(graph, "mul(x0, x1)", [("u", x), ("e", weight)], reduce)


def spmm_linear(graph, x, matrix, bias=None, weight=None, reduce="sum"):
    found = spmm(graph, x, weight, reduce) @ matrix.t()
    return found if bias is None else found + bias


def sddmm(graph, u, v):
    assert u.shape[1:] == v.shape[1:]
    return edge_map(graph, "mul(x0, x1)", [("v", u), ("u", v)]).sum(-1)


def gspmm(graph, op, reduce, u=None, e=None, ties="even"):
    if op in ("copy_u", "copy_e"):
        return aggregate(graph, "x0", [("u", u) if op == "copy_u" else ("e", e)], reduce, ties)
    return aggregate(graph, f"{op}(x0, x1)", [("u", u), ("e", e)], reduce, ties)


def gsddmm(graph, op, lhs, rhs=None, lhs_target="u", rhs_target="v"):
    if op in ("copy_lhs", "copy_rhs"):
        return edge_map(graph, "x0", [(lhs_target, lhs) if op == "copy_lhs" else (rhs_target, rhs)])
    message = "mul(x0, x1)" if op == "dot" else f"{op}(x0, x1)"
    return edge_map(graph, message, [(lhs_target, lhs), (rhs_target, rhs)], op == "dot")


def edge_softmax(graph, scores, norm_by="dst"):
    assert scores.shape[0] == graph.num_edges
    end = ends(graph)[0 if norm_by == "dst" else 1]
    return softmax_at(scores, end, graph.shape[0 if norm_by == "dst" else 1])


def softmax_at(scores: Tensor, end: Tensor, count: int) -> Tensor:
    index = end.view(-1, *(1,) * (scores.dim() - 1)).expand_as(scores)
    most = scores.detach().new_zeros(count, *scores.shape[1:])
    most = most.scatter_reduce(0, index, scores.detach(), "amax", include_self=False)
    raised = (scores - most[end]).exp()
    return raised / raised.new_zeros(most.shape).index_add(0, end, raised)[end]


def attended(graph, scores: Tensor, value: Tensor, edge_weight: Tensor | None) -> Tensor:
    """scores: (edges, heads), or (edges,)."""
    weights = softmax_at(scores, ends(graph)[0], graph.shape[0])
    if edge_weight is not None:
        assert edge_weight.shape == weights.shape
        weights = weights * edge_weight
    return reduced(weights.unsqueeze(-1) * at_edges(graph, "u", value), ends(graph)[0], graph.shape[0], "sum")


def attention(graph, query, key, value, scale=None, edge_weight=None):
    scale = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else float(scale)
    scores = (at_edges(graph, "v", query) * at_edges(graph, "u", key)).sum(-1) * scale
    return attended(graph, scores, value, edge_weight)


def gat_attention(graph, dst_scores, src_scores, value, negative_slope=0.2, edge_scores=None, edge_weight=None):
    scores = at_edges(graph, "v", dst_scores) + at_edges(graph, "u", src_scores)
    scores = scores if edge_scores is None else scores + at_edges(graph, "e", edge_scores)
    return attended(graph, torch.nn.functional.leaky_relu(scores, float(negative_slope)), value, edge_weight)


def gatv2_attention(graph, x_dst, x_src, att, negative_slope=0.2, value=None, edge_weight=None):
    total = at_edges(graph, "v", x_dst) + at_edges(graph, "u", x_src)
    scores = (torch.nn.functional.leaky_relu(total, float(negative_slope)) * att).sum(-1)
    return attended(graph, scores, x_src if value is None else value, edge_weight)


def segment_of_row(given, rows: int) -> tuple[Tensor, int]:
    """(the segment of each row, how many there are) of lengths or ``Segments``."""
    if isinstance(given, gsb.Segments):
        order = torch.arange(given.num_rows) if given.order is None else given.order.long()
        lengths = given.offsets.diff().long()
    else:
        lengths = torch.as_tensor(given).long()
        order = torch.arange(int(lengths.sum()))
    assert order.numel() == rows and bool((lengths >= 0).all())
    segment = torch.empty(rows, dtype=torch.int64)
    segment[order] = torch.arange(lengths.numel()).repeat_interleave(lengths)
    return segment, lengths.numel()


def segment_mm(a, b, seglen):
    segment, count = segment_of_row(seglen, a.shape[0])
    assert count == b.shape[0]
    return torch.bmm(a.unsqueeze(1), b[segment]).squeeze(1)


def gather_mm(a, b, idx_b, idx_a=None):
    a = a if idx_a is None else a[torch.as_tensor(idx_a).long()]
    if isinstance(idx_b, gsb.Segments):
        assert idx_b.num_segments == b.shape[0]
        idx_b, _ = segment_of_row(idx_b, a.shape[0])
    idx_b = torch.as_tensor(idx_b).long()
    assert idx_b.shape == a.shape[:1] and bool((idx_b >= 0).all())
    return torch.bmm(a.unsqueeze(1), b[idx_b]).squeeze(1)


def segment_reduce(x, lengths=None, reduce="sum", offsets=None, ties="even"):
    lengths = torch.as_tensor(offsets).long().diff() if lengths is None else lengths
    return reduced(x, *segment_of_row(lengths, x.shape[0]), reduce, ties)


def rgms(rel_graph, x, weight, edge_weight=None, reduce="sum"):
    source, destination, relation = (a.long() for a in (rel_graph.source, rel_graph.destination, rel_graph.relation))
    assert x.shape[0] == rel_graph.shape[1]
    if isinstance(weight, (tuple, list)):
        comp, bases = weight
        weight = torch.einsum("rb,bio->rio", comp, bases)
    assert weight.shape[0] == rel_graph.num_relations
    blocks = weight if weight.dim() == 4 else weight.unsqueeze(1)
    taken = x[source].view(len(source), blocks.shape[1], 1, blocks.shape[2])
    messages = (taken @ blocks[relation]).flatten(1)
    if edge_weight is not None:
        messages = messages * edge_weight.reshape(-1, 1)
    if reduce == "mean":
        pair = destination * rel_graph.num_relations + relation
        messages = messages / torch.bincount(pair)[pair].unsqueeze(1)
    return reduced(messages, destination, rel_graph.shape[0], "sum")


def sparse_conv(features, weight, kernel_map, bias=None, groups=1):
    offset = torch.arange(kernel_map.num_offsets).repeat_interleave(kernel_map.indptr.diff().long())
    rows = features[kernel_map.inputs.long()].unflatten(1, (groups, weight.shape[1]))
    matrices = weight.unflatten(2, (groups, weight.shape[2] // groups))[offset]
    messages = torch.einsum("pgi,pigo->pgo", rows, matrices).flatten(1)
    out = reduced(messages, kernel_map.outputs.long(), kernel_map.shape[0], "sum")
    return out if bias is None else out + bias


def composed_spmm(parts, values, x):
    return parts.to_dense(values) @ x


def composed_linear(parts, values, x, bias=None):
    out = x @ parts.to_dense(values).T
    return out if bias is None else out + bias


def composed_sddmm(parts, u, v):
    return parts.values_of(u @ v.T)


def from_pairs(inputs, outputs, indptr, shape):
    inputs, outputs, indptr = (torch.as_tensor(x).long() for x in (inputs, outputs, indptr))
    offset = torch.arange(indptr.numel() - 1).repeat_interleave(indptr.diff())
    for rows, size in ((inputs, shape[1]), (outputs, shape[0])):
        keys = offset * max(size, 1) + rows
        assert keys.unique().numel() == keys.numel() and bool(((rows >= 0) & (rows < size)).all())
    order = torch.argsort(offset * max(shape[0], 1) + outputs)
    return inputs[order], outputs[order], indptr, *shape


def from_coo(row, col, shape):
    return torch.as_tensor(row).long(), torch.as_tensor(col).long(), *shape


def from_csr(indptr, indices, shape, edge_ids=None):
    lengths = torch.as_tensor(indptr).long().diff()
    row, order = torch.arange(lengths.numel()).repeat_interleave(lengths), torch.arange(int(lengths.sum()))
    order = order if edge_ids is None else torch.argsort(torch.as_tensor(edge_ids).long())
    return row[order], torch.as_tensor(indices).long()[order], *shape


def from_edge_index(edge_index, size=None):
    inferred = int(edge_index.max()) + 1 if edge_index.numel() else 0
    sources, destinations = (inferred if n is None else n for n in ((None, None) if size is None else size))
    return edge_index[1].long(), edge_index[0].long(), destinations, sources


def from_scipy(matrix):
    found = matrix.tocoo()
    return torch.as_tensor(found.row).long(), torch.as_tensor(found.col).long(), *found.shape


def from_triples(source, destination, relation, shape, num_relations=None):
    relation = torch.as_tensor(relation).long()
    if num_relations is None:
        num_relations = int(relation.max()) + 1 if relation.numel() else 0
    ends = torch.as_tensor(destination).long(), torch.as_tensor(source).long()
    return *ends, relation, *shape, num_relations


def from_lengths(lengths, num_rows=None):
    lengths = torch.as_tensor(lengths).long()
    assert bool((lengths >= 0).all()) and num_rows in (None, int(lengths.sum()))
    return lengths, lengths.new_empty(0), int(lengths.sum())


def from_offsets(offsets, num_rows=None):
    offsets = torch.as_tensor(offsets).long()
    assert int(offsets[0]) == 0
    return from_lengths(offsets.diff(), num_rows)


def from_index(index, num_segments):
    index = torch.as_tensor(index).long()
    order = torch.argsort(index, stable=True)
    in_order = torch.equal(order, torch.arange(index.numel()))
    return torch.bincount(index, minlength=num_segments), order[:0] if in_order else order, index.numel()


def sparse_attention(q, k, v, mask, scale=None, dropout=0.0):
    scale = max(q.shape[3], 1) ** -0.5 if scale is None else scale
    weights = (q @ k.transpose(2, 3) * scale).masked_fill(~mask.to_dense(), -torch.inf).softmax(3)
    return weights.nan_to_num() @ v


def _by_blocks(mask, dense):
    """(batch, heads, queries, keys) by the blocks of a mask, zeros beyond it."""
    side, (queries, keys) = mask.block, mask.shape
    more = mask.block_columns * side - keys, mask.block_rows * side - queries
    dense = torch.nn.functional.pad(dense * mask.to_dense(), (0, more[0], 0, more[1]))
    blocks = dense.unflatten(3, (-1, side)).unflatten(2, (-1, side)).transpose(3, 4)
    line = torch.repeat_interleave(mask.indptr.diff()).long()
    column = mask.indices.long()
    if mask.heads == 1:
        return blocks[:, :, line, column]
    return blocks[:, line // mask.block_rows, line % mask.block_rows, column].unsqueeze(1)


def masked_sddmm(mask, a, b):
    return _by_blocks(mask, a @ b.transpose(2, 3))


def masked_spmm(mask, values, b, transposed=False):
    # linear in values: the transpose of taking them out of a matrix
    dense = torch.zeros(b.shape[0], b.shape[1], *mask.shape, dtype=values.dtype, requires_grad=True)
    (dense,) = torch.autograd.grad(_by_blocks(mask, dense), dense, values, create_graph=True)
    return (dense.transpose(2, 3) if transposed else dense) @ b


def parts(found) -> tuple:
    """A structure that the package made, as the functions above give it."""
    if isinstance(found, gsb.Graph):
        return *ends(found), *found.shape
    if isinstance(found, gsb.RelGraph):
        given = (a.long() for a in (found.destination, found.source, found.relation))
        return *given, *found.shape, found.num_relations
    if isinstance(found, gsb.KernelMap):
        return *(a.long() for a in (found.inputs, found.outputs, found.indptr)), *found.shape
    if isinstance(found, gsb.masks.Mask):
        return (found.to_dense(),)
    if isinstance(found, gsb.masks.Planes):
        return (found.dense(),)
    if hasattr(found, "mask_mod"):
        return parts(gsb.masks.from_block_mask(found))
    if isinstance(found, gsb.masks.Padding):
        return (found.allowed,)
    lengths = found.offsets.diff().long()
    return lengths, lengths.new_empty(0) if found.order is None else found.order.long(), found.num_rows


def halo_exchange(graph, x):
    """Of a process alone, which has all rows."""
    return x[:0]


def mean_loss(graph, total, count):
    return total / max(count, 1)

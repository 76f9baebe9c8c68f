"""Every program of the library, with sizes to draw and what to put into arrays that have a meaning of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from gnn_sparse_backend.compiler.coordinate.program import Program
from gnn_sparse_backend.compiler.programs import formats, products, reductions, relational
from gnn_sparse_backend.compiler.programs.aggregate import AggregateSpec, aggregate
from gnn_sparse_backend.compiler.programs.edge_map import EdgeMapSpec, edge_map
from gnn_sparse_backend.compiler.programs.grouped import GroupedSpec, grouped_product, grouped_sum
from gnn_sparse_backend.compiler.programs.message import parse
from gnn_sparse_backend.compiler.programs.operands import Operand
from gnn_sparse_backend.compiler.programs.rgms import RgmsSpec, rgms_dot, rgms_gather, rgms_scatter, rgms_sum
from gnn_sparse_backend.compiler.transform import (
    decompose_format,
    group_axis,
    reduce_in_lanes,
    remove_copies,
    sparse_fuse,
    sparse_reorder,
    tile_axis,
)
from tests.compiler.structures import complete, values


@dataclass(frozen=True)
class Case:
    """make(index_dtype) gives the program; sizes(rng) its free sizes; fix(arguments, rng) mends drawn arrays."""

    make: Callable[[str], Program]
    sizes: Callable[[np.random.Generator], dict]
    outputs: tuple[str, ...]
    fix: Callable[[dict, np.random.Generator], None] = field(default=lambda arguments, rng: None)
    most: int = 4

    def arguments(self, program: Program, seed: int) -> dict[str, object]:
        rng = np.random.default_rng(seed)
        found = complete(program, rng, self.sizes(rng), most=self.most)
        self.fix(found, rng)
        for name in self.outputs:
            found[name] = np.full_like(found[name], np.nan)
        return found


def _mn(rng, **extra):
    return {"m": int(rng.integers(1, 7)), "n": int(rng.integers(1, 7)), **extra}


def _bsr_sizes(rng):
    mb, nb = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    # the matrix need not fill its last block
    return {"mb": mb, "nb": nb, "m": 2 * mb - int(rng.integers(0, 2)), "n": 2 * nb - int(rng.integers(0, 2))}


def _bsr_mask(found, rng, suffix=""):
    """Blocks may reach over the edge of the matrix: nothing is stored there."""
    mask = found["Mask"]
    rows = np.repeat(np.arange(found["mb"]), np.diff(found["JO_indptr"]))
    for at, (row, column) in enumerate(zip(rows, found["JO_indices"])):
        for ii in range(2):
            for ji in range(2):
                if 2 * row + ii >= found["m"] or 2 * column + ji >= found["n"]:
                    mask[at, ii, ji] = 0
    # what is masked must not matter, whatever it holds
    found["A"] = np.where(mask != 0, found["A"], np.nan)


def _dia(found, rng):
    offsets = np.arange(1 - found["m"], found["n"])
    found["Offsets"][:] = rng.permutation(offsets)[: len(found["Offsets"])]


def _types(found, rng):
    found["Type"] = rng.integers(0, found["relations"], found["Type"].shape).astype(found["Type"].dtype)


def _operands(dtype: str, *described) -> tuple[Operand, ...]:
    """("column", 3, 3) is an operand of each column with features of shape (3, 3); "row numbers" holds whole numbers."""
    return tuple(Operand(at.split()[0], tuple(dims), "int64" if "number" in at else dtype) for at, *dims in described)


def small_aggregation(features: int = 4):
    """The sum of neighbours' features."""
    return aggregate(AggregateSpec(parse("x0"), _operands("float32", ("column", features)), (features,)))


def _aggregation(message: str, *operands, **spec):
    def make(index_dtype):
        found = AggregateSpec(parse(message), _operands("float32", *operands), (3, 3), index_dtype=index_dtype, **spec)
        # what is staged is staged once, for one pass over the edges
        return tile_axis(aggregate(found), "K", ((4, 2, 3),) if found.staged else ((4, 2), (3,)))

    return make


def _words(message: str, *operands, **spec):
    def make(index_dtype):
        compact = tuple(replace(operand, strided=False, dtype="float32" if operand.at == "edge" else "bfloat16")
                        for operand in _operands("bfloat16", *operands))
        found = AggregateSpec(parse(message), compact, (3, 4), "bfloat16", index_dtype, words=True, **spec)
        return tile_axis(aggregate(found), "K", ((4, 2),))

    return make


def _halves(found, rng):
    """Words of two small whole numbers, whose sums are exact, and each divisor of a mean a power of two."""
    for name in ("X0", "X1"):
        if name in found and found[name].dtype == np.uint32:
            pairs = (rng.integers(-8, 9, (*found[name].shape, 2)) / 4).astype(np.float32).view(np.uint32) >> 16
            found[name] = pairs[..., 0] + pairs[..., 1] * np.uint32(65536)
    if "D" in found:
        found["D"][:] = 2 ** rng.integers(0, 3, found["D"].shape)


def _edge_map(message: str, dims, reduced, *operands, lanes: int = 0, **spec):
    def make(index_dtype):
        program = edge_map(EdgeMapSpec(
            parse(message), _operands("float32", *operands), dims, reduced, index_dtype=index_dtype, **spec))
        return reduce_in_lanes(program, "sum", lanes) if lanes else tile_axis(program, "H", ((4, 2), (3,)))

    return make


def _decomposed(index_dtype):
    program = products.csr_spmm(3, index_dtype=index_dtype)
    rules = [formats.bsr_rule(program, 2, index_dtype=index_dtype), formats.ell_rule(program, 2, index_dtype=index_dtype)]
    return decompose_format(program, rules)


def _hyb(index_dtype):
    program = group_axis(products.csr_spmm(3, index_dtype=index_dtype), "I", "T", index_dtype)
    rules = [formats.hyb_bucket_rule(program, 2**k, name=f"w{2**k}", index_dtype=index_dtype) for k in range(3)]
    return remove_copies(decompose_format(program, rules))


def _decomposed_sizes(rng):
    mb, nb = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    m = 2 * mb
    return {"m": m, "n": 2 * nb, "mb_bsr": mb, "nb_bsr": nb, "m_ell": m}


def _hyb_sizes(rng):
    return {"num_T": int(rng.integers(1, 4)), "n": int(rng.integers(1, 7))}


def _hyb_rows(found, rng):
    """Bucket rows lie within their task, sorted, possibly repeated; coordinates of absent slots stay -1."""
    rows = np.diff(found["T_ptr"])
    for k in range(3):
        name = f"w{2**k}"
        counts = np.where(rows > 0, rng.integers(0, 4, len(rows)), 0)
        dtype = found[f"rows_{name}"].dtype
        found[f"ptr_{name}"] = np.concatenate([[0], np.cumsum(counts)]).astype(dtype)
        inside = [np.sort(rng.integers(0, r, c)) for r, c in zip(rows, counts) if c]
        found[f"rows_{name}"] = (np.concatenate(inside) if inside else np.zeros(0)).astype(dtype)
        total = int(counts.sum())
        found[f"count_{name}"] = total
        found[f"indices_{name}"] = rng.integers(-1, found["n"], total * 2**k).astype(dtype)
        found[f"A_{name}"] = values(rng, (total * 2**k,), "float32")


CASES: dict[str, Case] = {
    "csr_spmm": Case(lambda t: products.csr_spmm(3, index_dtype=t), _mn, ("C",)),
    "ell_spmm": Case(lambda t: products.ell_spmm(3, 4, index_dtype=t), _mn, ("C",)),
    "bsr_spmm": Case(lambda t: products.bsr_spmm(3, 2, index_dtype=t), _bsr_sizes, ("C",), _bsr_mask),
    "dia_spmm": Case(lambda t: products.dia_spmm(3, index_dtype=t), lambda rng: _mn(rng, diagonals=int(rng.integers(0, 2))), ("C",), _dia),
    "batched_spmm": Case(lambda t: products.batched_spmm(3, index_dtype=t), lambda rng: _mn(rng, batch=2), ("C",)),
    "csr_sddmm": Case(lambda t: products.csr_sddmm(5, index_dtype=t), _mn, ("O",)),
    "fused_sddmm": Case(lambda t: sparse_fuse(products.csr_sddmm(5, index_dtype=t), "sddmm", ("I", "J")), _mn, ("O",)),
    "reordered_spmm": Case(lambda t: sparse_reorder(products.csr_spmm(3, index_dtype=t), "spmm", ("K", "I", "J")), _mn, ("C",)),
    "segment_sum": Case(lambda t: reductions.segment_sum(3, index_dtype=t), _mn, ("Y",)),
    "csr_row_sum": Case(lambda t: reductions.csr_row_sum(index_dtype=t), _mn, ("Y",)),
    "csr_scale": Case(lambda t: reductions.csr_scale(index_dtype=t), _mn, ("B",)),
    "square_sum": Case(lambda t: reductions.square_sum(index_dtype=t), lambda rng: _mn(rng, depth=5), ("Y",)),
    "ragged_sum_4d": Case(lambda t: reductions.ragged_sum_4d(index_dtype=t), lambda rng: {"m": 3, "longest": 3}, ("Y",), most=3),
    "fused_ragged_sum_4d": Case(
        lambda t: sparse_fuse(reductions.ragged_sum_4d(index_dtype=t), "sums", ("I", "J", "K")),
        lambda rng: {"m": 3, "longest": 3}, ("Y",), most=3,
    ),
    "sparse_softmax": Case(lambda t: reductions.sparse_softmax(index_dtype=t), _mn, ("P",)),
    "hypergraph_convolution": Case(
        lambda t: relational.hypergraph_convolution(3, index_dtype=t), lambda rng: {"vertices": 5, "edges": 4}, ("Z",),
        lambda found, rng: _incidence(found, rng),
    ),
    "rgms_homogeneous": Case(
        lambda t: relational.rgms_homogeneous(3, 2, index_dtype=t), lambda rng: _mn(rng, relations=3), ("Y",), _types
    ),
    "rgms_heterogeneous": Case(
        lambda t: relational.rgms_heterogeneous(3, 2, index_dtype=t), lambda rng: _mn(rng, relations=3), ("Y",)
    ),
    "csr_to_bsr": Case(lambda t: formats.csr_to_bsr(2, index_dtype=t), _bsr_sizes, ("B",)),
    "spmm_in_bsr_and_ell": Case(_decomposed, _decomposed_sizes, ("C", "A_bsr", "A_ell")),
    "spmm_in_hyb": Case(_hyb, _hyb_sizes, ("C",), _hyb_rows),
}


def _incidence(found, rng):
    """Both directions of one hypergraph have as many incidences."""
    dense = rng.random((found["edges"], found["vertices"])) < 0.4
    dtype = found["U_indptr"].dtype
    for axis, matrix in (("U", dense), ("W", dense.T)):
        found[f"{axis}_indptr"] = np.concatenate([[0], np.cumsum(matrix.sum(1))]).astype(dtype)
        found[f"{axis}_indices"] = np.nonzero(matrix)[1].astype(dtype)
    found["nnz"] = int(dense.sum())


def _grouped_case(make, *outputs, fix=lambda found, rng: None):
    def sizes(rng):
        return {"num_groups": int(rng.integers(1, 4)), "n": int(rng.integers(1, 7)), "num_edges": 9}

    return Case(make, sizes, outputs, fix)


_WIDE, _HEADS = ("column", 3, 3), ("edge", 3, 1)

CASES |= {
    "aggregate_copy": _grouped_case(_aggregation("x0", _WIDE), "C"),
    "aggregate_weighted_mean": _grouped_case(
        _aggregation("mul(x0, x1)", _WIDE, ("edge", 1, 1), reduce="mean"), "C", fix=lambda f, r: _degrees(f)
    ),
    "aggregate_words": _grouped_case(
        _words("mul(mul(x0, x1), x2)", ("column", 3, 4), ("row", 3, 4), ("edge", 3, 1), reduce="mean"), "C", fix=lambda f, r: _halves(f, r)
    ),
    "aggregate_max_of_words": _grouped_case(
        _words("x0", ("column", 3, 4), reduce="max", empty=True), "C", fix=lambda f, r: _halves(f, r)
    ),
    "aggregate_heads": _grouped_case(_aggregation("mul(x0, x1)", _WIDE, _HEADS), "C"),
    "aggregate_inner_weights": _grouped_case(_aggregation("mul(x0, x1)", _WIDE, ("edge", 1, 3)), "C"),
    "aggregate_numbered": _grouped_case(
        _aggregation("mul(mul(x0, x1), x2)", _WIDE, _HEADS, ("column", 1, 1), numbered=True), "C",
        fix=lambda f, r: _edges(f, r, "X1"),
    ),
    "aggregate_rows_and_all": _grouped_case(
        _aggregation("mul(leaky_relu(add(x0, x1), 0.2), x2)", _WIDE, ("row", 1, 3), ("all", 3, 1)), "C"
    ),
    "aggregate_max": _grouped_case(
        _aggregation("sub(x0, x1)", _WIDE, _HEADS, reduce="max", numbered=True, chosen=("number", "column")),
        "C", "Number", "Column", fix=lambda f, r: _edges(f, r, "X1"),
    ),
    "aggregate_min_empty": _grouped_case(
        _aggregation("x0", _WIDE, reduce="min", propagate=True, empty=True), "C", fix=lambda f, r: _degrees(f)
    ),
    "aggregate_chosen": _grouped_case(
        _aggregation("chosen(x0, x1, x2)", _WIDE, ("number", 1, 1), ("row numbers", 3, 3), numbered=True), "C",
        fix=lambda f, r: _chosen(f, r),
    ),
    "edge_map_dot": _grouped_case(
        _edge_map("mul(x0, x1)", (7,), (True,), ("row", 7), ("column", 7), lanes=4), "O"
    ),
    "edge_map_heads_numbered": _grouped_case(
        _edge_map("mul(mul(x0, x1), x2)", (3, 7), (False, True), ("row", 3, 7), ("column", 3, 7), ("row", 1, 1),
                  lanes=4, numbered=True),
        "O", fix=lambda f, r: _edges(f, r, "O"),
    ),
    "edge_map_first_reduced": _grouped_case(
        _edge_map("mul(x0, x1)", (7, 3), (True, False), ("row", 7, 3), ("column", 1, 3), lanes=2), "O"
    ),
    "edge_map_wide": _grouped_case(
        _edge_map("add(x0, x1)", (3, 3), (False, False), ("row", 3, 3), ("column", 3, 1), numbered=True), "O",
        fix=lambda f, r: _edges(f, r, "O"),
    ),
}


def _chosen(found, rng):
    """For each feature of each row the number of some edge."""
    _edges(found, rng)
    found["X2"] = rng.integers(0, max(1, found["nnz"]), found["X2"].shape)


def _degrees(found):
    found["D"] = np.diff(found["indptr"]).astype(found["D"].dtype)


def _edges(found, rng, *per_edge: str):
    """Edges in an order of their own: an edge array has one row per non-zero."""
    nnz = found["nnz"]
    found["E"] = rng.permutation(nnz).astype(found["E"].dtype)
    found["num_edges"] = nnz
    for name in per_edge:
        old = found[name]
        found[name] = (rng.integers(-8, 9, (nnz, *old.shape[1:])) / 4).astype(old.dtype)


class Adding(Case):
    """A program that adds to its outputs: they hold numbers before it runs."""

    def arguments(self, program: Program, seed: int) -> dict[str, object]:
        rng = np.random.default_rng(seed)
        found = complete(program, rng, self.sizes(rng), most=self.most)
        self.fix(found, rng)
        return found


def _relational(make, **spec):
    """Blocks of two rows, columns in two tiles of three and a rest of one."""

    def program(index_dtype):
        done = make(GroupedSpec(5, 7, 2, 3, index_dtype=index_dtype, **spec))
        return tile_axis(tile_axis(done, "K", ((2, 1),)), "L", ((1,),))

    return program


def _relational_sizes(rng):
    return {"num_groups": int(rng.integers(1, 4)), "relations": 3, "rows_a": 26, "rows_c": 26, "rows_g": 26, "positions": 26}


def _panels(found, rng):
    """One after the other, of one or two rows; rows of the result are distinct."""
    dtype = found["Start"].dtype
    stop = np.cumsum(rng.integers(1, 3, found["num_panels"]))
    found["Stop"] = stop.astype(dtype)
    found["Start"] = np.concatenate([[0], stop])[:-1].astype(dtype)
    found["Relation"] = rng.integers(0, 3, found["num_panels"]).astype(dtype)
    _rows(found, rng, "RowsA", "RowsC")


def _units(found, rng):
    """Anywhere in the matrix of its group, from any rows."""
    dtype = found["Start"].dtype
    counts = np.diff(found["work_ptr"])
    found["Start"] = rng.integers(0, 27 - counts).astype(dtype)
    found["Block"] = rng.integers(0, 5, len(counts)).astype(dtype)
    found["Relation"] = np.repeat(np.arange(found["num_groups"]), np.diff(found["group_ptr"])).astype(dtype)
    _rows(found, rng, "RowsA", "RowsG")


def _rows(found, rng, *names):
    for name in names:
        if name in found:
            found[name] = rng.permutation(26).astype(found[name].dtype)


CASES |= {
    "grouped_product": Case(_relational(grouped_product), _relational_sizes, ("C",), _panels),
    "grouped_product_gathered": Case(
        _relational(grouped_product, gathered=(True, True)), _relational_sizes, ("C",), _panels
    ),
    "grouped_sum": Adding(_relational(grouped_sum), _relational_sizes, ("W",), _units),
    "grouped_sum_gathered": Adding(_relational(grouped_sum, gathered=(False, True)), _relational_sizes, ("W",), _units),
}


def _rgms(make, **spec):
    """Two blocks on the diagonal, panels of up to four pairs, blocks of two rows; tiles and pieces with a rest."""

    def program(index_dtype):
        done = make(RgmsSpec(3, 4, 2, 4, 2, 3, 4, index_dtype=index_dtype, **spec))
        for axis in done.axes:
            if axis.name in ("S", "U", "K", "L", "O", "E"):
                done = tile_axis(done, axis.name, ((2, axis.length - 2) if axis.length > 2 else (axis.length,),))
        return done

    return program


def _rgms_sizes(rng):
    tasks = int(rng.integers(1, 4))
    return {"num_tasks": tasks, "cols": 6, "relations": 3, "rows": 7, "slots": tasks + 1, "far": 5, "numbers": 1}


def _row_tasks(found, rng):
    """Each task has rows of its own, at least as many as a panel has pairs, and a panel's rows are distinct."""
    dtype, panel_ptr, counts = found["Row"].dtype, found["panel_ptr"], np.diff(found["pair_ptr"])
    row_ptr = np.concatenate([[0], np.cumsum(rng.integers(4, 6, len(panel_ptr) - 1))])
    task = np.repeat(np.arange(len(panel_ptr) - 1), np.diff(panel_ptr))
    rows = [rng.permutation(np.arange(row_ptr[t], row_ptr[t + 1]))[:c] for t, c in zip(task, counts)]
    found["rows"], found["row_ptr"], found["First"] = int(row_ptr[-1]), row_ptr.astype(dtype), row_ptr[:-1].astype(dtype)
    found["Row"] = np.concatenate([np.zeros(0), *rows]).astype(dtype)
    found["Count"], found["Relation"] = counts.astype(dtype), rng.integers(0, 3, len(counts)).astype(dtype)
    found["Y"] = np.zeros((found["rows"], found["Y"].shape[1]), found["Y"].dtype)


def _column_pairs(found, rng):
    """The edges of each task lead to rows of its own, and pairs have any node."""
    dtype, tasks = found["Row"].dtype, len(found["panel_ptr"]) - 1
    panel = np.repeat(np.arange(len(found["pair_ptr"]) - 1), np.diff(found["pair_ptr"]))
    pair = np.repeat(np.arange(len(found["indptr"]) - 1), np.diff(found["indptr"]))
    task = np.repeat(np.arange(tasks), np.diff(found["panel_ptr"]))[panel][pair]
    found["indices"] = (task + tasks * rng.integers(0, 6 // tasks, len(task))).astype(dtype)
    found["Count"] = np.diff(found["pair_ptr"]).astype(dtype)
    found["Relation"] = rng.integers(0, 3, len(found["Relation"])).astype(dtype)
    found["Row"] = rng.integers(0, 5, len(found["Row"])).astype(dtype)


def _numbered_edges(found, rng):
    """Each edge has a number of its own."""
    dtype, count = found["Row"].dtype, len(found["indices"])
    found["Count"] = np.diff(found["pair_ptr"]).astype(dtype)
    found["Relation"] = rng.integers(0, 3, len(found["Relation"])).astype(dtype)
    found["Row"] = rng.integers(0, 5, len(found["Row"])).astype(dtype)
    found["numbers"], found["Number"] = count, rng.permutation(count).astype(dtype)
    found["C"] = np.zeros((count, 1), found["C"].dtype)


def _relation_tasks(found, rng):
    """Each task has a matrix of its own."""
    dtype = found["Row"].dtype
    found["Row"] = rng.integers(0, 7, len(found["Row"])).astype(dtype)
    found["Count"] = np.diff(found["pair_ptr"]).astype(dtype)
    found["Slot"] = rng.permutation(found["slots"])[:found["num_tasks"]].astype(dtype)


CASES |= {
    "rgms_gather": Case(_rgms(rgms_gather), _rgms_sizes, ("Y",), _row_tasks),
    "rgms_gather_weighted": Case(_rgms(rgms_gather, weighted=True), _rgms_sizes, ("Y",), _row_tasks),
    "rgms_scatter": Case(_rgms(rgms_scatter), _rgms_sizes, ("Y",), _column_pairs),
    "rgms_scatter_weighted": Case(_rgms(rgms_scatter, weighted=True), _rgms_sizes, ("Y",), _column_pairs),
    "rgms_dot": Case(_rgms(rgms_dot), _rgms_sizes, ("C",), _numbered_edges),
    "rgms_sum": Case(_rgms(rgms_sum), _rgms_sizes, ("W",), _relation_tasks),
    "rgms_sum_weighted": Case(_rgms(rgms_sum, weighted=True), _rgms_sizes, ("W",), _relation_tasks),
}

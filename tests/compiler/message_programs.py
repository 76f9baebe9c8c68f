"""Programs of aggregations and edge maps under test."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnn_sparse_backend.compiler.transforms import decompose_format, reduce_in_lanes, tile_axis
from gnn_sparse_backend.compiler.transforms.format_rules import csr_rule
from gnn_sparse_backend.ops.message.programs.aggregate import AggregateSpec, aggregate
from gnn_sparse_backend.ops.message.programs.argmax_scatter import ArgmaxScatterSpec, argmax_scatter
from gnn_sparse_backend.ops.message.programs.edge_map import EdgeMapSpec, edge_map
from gnn_sparse_backend.ops.message.programs.message import parse
from gnn_sparse_backend.ops.message.programs.operands import Operand
from gnn_sparse_backend.ops.message.programs.scattered import scattered
from tests.compiler.program_case import Adding, Case


def _operands(dtype: str, *described) -> tuple[Operand, ...]:
    """("column", 3, 3) is an operand of each column with features of shape (3, 3); "row numbers" holds whole
    numbers.
    """
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


def in_passes(program, *names):
    """The program over as many column partitions."""
    return decompose_format(program, [csr_rule(program, name=name) for name in names], copies=False)


def _in_passes(*described, **spec):
    return lambda index_dtype: in_passes(_aggregation(*described, **spec)(index_dtype), "first", "next", "last")


def _words(message: str, *operands, **spec):
    def make(index_dtype):
        compact = tuple(
            replace(operand, strided=False, dtype="float32" if operand.at == "edge" else "bfloat16")
            for operand in _operands("bfloat16", *operands)
        )
        found = AggregateSpec(parse(message), compact, (3, 4), "bfloat16", index_dtype, bf16x2=True, **spec)
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
        program = edge_map(
            EdgeMapSpec(parse(message), _operands("float32", *operands), dims, reduced, index_dtype=index_dtype, **spec)
        )
        return reduce_in_lanes(program, "sum", lanes) if lanes else tile_axis(program, "H", ((4, 2), (3,)))

    return make


def _scattered(message: str, *operands, **spec):
    def make(index_dtype):
        described = _operands("float32", *operands)
        return scattered(AggregateSpec(parse(message), described, described[0].dims, index_dtype=index_dtype, **spec))

    return make


def _grouped_sizes(rng):
    return {"num_groups": int(rng.integers(1, 4)), "n": int(rng.integers(1, 7)), "num_edges": 9}


def _grouped_case(make, *outputs, fix=lambda found, rng: None):
    return Case(make, _grouped_sizes, outputs, fix)


_WIDE, _HEADS = ("column", 3, 3), ("edge", 3, 1)

CASES: dict[str, Case] = {
    "aggregate_copy": _grouped_case(_aggregation("x0", _WIDE), "C"),
    "aggregate_weighted_mean": _grouped_case(
        _aggregation("mul(x0, x1)", _WIDE, ("edge", 1, 1), reduce="mean"), "C", fix=lambda f, r: _degrees(f)
    ),
    "aggregate_words": _grouped_case(
        _words("mul(mul(x0, x1), x2)", ("column", 3, 4), ("row", 3, 4), ("edge", 3, 1), reduce="mean"),
        "C",
        fix=lambda f, r: _halves(f, r),
    ),
    "aggregate_max_of_words": _grouped_case(
        _words("x0", ("column", 3, 4), reduce="max", empty=True), "C", fix=lambda f, r: _halves(f, r)
    ),
    "aggregate_heads": _grouped_case(_aggregation("mul(x0, x1)", _WIDE, _HEADS), "C"),
    "aggregate_inner_weights": _grouped_case(_aggregation("mul(x0, x1)", _WIDE, ("edge", 1, 3)), "C"),
    "aggregate_numbered": _grouped_case(
        _aggregation("mul(mul(x0, x1), x2)", _WIDE, _HEADS, ("column", 1, 1), numbered=True),
        "C",
        fix=lambda f, r: _edges(f, r, "X1"),
    ),
    "aggregate_rows_and_all": _grouped_case(
        _aggregation("mul(leaky_relu(add(x0, x1), 0.2), x2)", _WIDE, ("row", 1, 3), ("all", 3, 1)), "C"
    ),
    "aggregate_max": _grouped_case(
        _aggregation("sub(x0, x1)", _WIDE, _HEADS, reduce="max", numbered=True, keep=("number", "column")),
        "C",
        "Number",
        "Column",
        fix=lambda f, r: _edges(f, r, "X1"),
    ),
    "aggregate_min_empty": _grouped_case(
        _aggregation("x0", _WIDE, reduce="min", propagate=True, empty=True), "C", fix=lambda f, r: _degrees(f)
    ),
    "aggregate_mapped": _grouped_case(
        _aggregation(
            "mul(sub(x0, x2), x1)", _WIDE, ("edge", 1, 1), ("row", 3, 3), reduce="mean", numbered=True, mapped=True
        ),
        "C",
        fix=lambda f, r: (_edges(f, r, "X1"), _mapped(f, r)),
    ),
    "aggregate_mapped_choices": _grouped_case(
        _aggregation("x0", _WIDE, reduce="max", propagate=True, empty=True, keep=("column",), mapped=True),
        "C",
        "Column",
        fix=lambda f, r: _mapped(f, r),
    ),
    "aggregate_chosen": _grouped_case(
        _aggregation("chosen(x0, x1, x2)", _WIDE, ("number", 1, 1), ("row numbers", 3, 3), numbered=True),
        "C",
        fix=lambda f, r: _chosen(f, r),
    ),
    "aggregate_min_unique": _grouped_case(
        _aggregation("x0", _WIDE, reduce="min", propagate=True, keep=("unique",), fill=-1),
        "C",
        "Unique",
        fix=lambda f, r: f.update(X0=np.sign(f["X0"])),
    ),
    "aggregate_max_in_partitions": _grouped_case(
        _in_passes("x0", _WIDE, reduce="max", propagate=True, empty=True, keep=("unique",), fill=-1),
        "C",
        "Unique",
        fix=lambda f, r: (_degrees(f), f.update(X0=np.sign(f["X0"]))),
    ),
    "aggregate_mean_in_partitions": _grouped_case(
        _in_passes("mul(x0, x1)", _WIDE, _HEADS, reduce="mean"), "C", fix=lambda f, r: _degrees(f)
    ),
    "choices": Adding(
        lambda index_dtype: argmax_scatter(ArgmaxScatterSpec(7, 3, index_dtype=index_dtype)),
        lambda rng: {"m": int(rng.integers(0, 7)), "n": int(rng.integers(1, 7))},
        ("G",),
        lambda f, r: f.update(At=r.integers(-2, f["n"], f["At"].shape).astype(f["At"].dtype)),
    ),
    "scattered_copy": _grouped_case(_scattered("x0", ("column", 3)), "C", fix=lambda f, r: _flat(f, r)),
    "scattered_number": _grouped_case(_scattered("x0", ("column", 1)), "C", fix=lambda f, r: _flat(f, r)),
    "scattered_weighted_mean": _grouped_case(
        _scattered("mul(sub(x0, x2), x1)", ("column", 3), ("edge", 1), ("row", 3), numbered=True, reduce="mean"),
        "C",
        fix=lambda f, r: _flat(f, r),
    ),
    "edge_map_dot": _grouped_case(_edge_map("mul(x0, x1)", (7,), (True,), ("row", 7), ("column", 7), lanes=4), "O"),
    "edge_map_heads_numbered": _grouped_case(
        _edge_map(
            "mul(mul(x0, x1), x2)",
            (3, 7),
            (False, True),
            ("row", 3, 7),
            ("column", 3, 7),
            ("row", 1, 1),
            lanes=4,
            numbered=True,
        ),
        "O",
        fix=lambda f, r: _edges(f, r, "O"),
    ),
    "edge_map_first_reduced": _grouped_case(
        _edge_map("mul(x0, x1)", (7, 3), (True, False), ("row", 7, 3), ("column", 1, 3), lanes=2), "O"
    ),
    "edge_map_wide": _grouped_case(
        _edge_map("add(x0, x1)", (3, 3), (False, False), ("row", 3, 3), ("column", 3, 1), numbered=True),
        "O",
        fix=lambda f, r: _edges(f, r, "O"),
    ),
}


def _chosen(found, rng):
    """For each feature of each row the number of some edge."""
    _edges(found, rng)
    found["X2"] = rng.integers(0, max(1, found["nnz"]), found["X2"].shape)


def _mapped(found, rng):
    """Every row stands for another."""
    found["Row"] = rng.permutation(found["m"]).astype(found["Row"].dtype)
    found["D"] = np.empty_like(found["D"])
    found["D"][found["Row"]] = np.diff(found["indptr"])


def _degrees(found):
    degrees = sum(np.diff(array) for name, array in found.items() if name.startswith("indptr"))
    found["D"] = degrees.astype(found["D"].dtype)


def _edges(found, rng, *per_edge: str):
    """Edges in an order of their own: an edge array has one row per non-zero."""
    nnz = found["nnz"]
    found["E"] = rng.permutation(nnz).astype(found["E"].dtype)
    found["num_edges"] = nnz
    for name in per_edge:
        old = found[name]
        found[name] = (rng.integers(-8, 9, (nnz, *old.shape[1:])) / 4).astype(old.dtype)


def _flat(found, rng):
    """The non-zeros of a group lie in its rows, of which an empty one has none."""
    first, rows = found["group_ptr"][:-1], np.diff(found["group_ptr"])
    counts = np.where(rows > 0, rng.integers(0, 7, len(rows)), 0)
    dtype = found["Row"].dtype
    found["indptr"], found["nnz"] = np.concatenate([[0], np.cumsum(counts)]).astype(dtype), int(counts.sum())
    found["indices"] = rng.integers(0, found["n"], found["nnz"]).astype(dtype)
    found["Row"] = np.repeat(first, counts) + rng.integers(0, np.repeat(rows, counts)).astype(dtype)
    found["First"] = first.copy()
    if "D" in found:
        found["D"] = rng.integers(0, 4, len(found["D"])).astype(dtype)
    if "E" in found:
        _edges(found, rng, "X1")

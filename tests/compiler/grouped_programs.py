"""Programs of grouped products and of RGMS under test."""

from __future__ import annotations

import numpy as np

from gnn_sparse_backend.compiler.transforms import tile_axis
from gnn_sparse_backend.ops.grouped.programs.grouped import GroupedSpec, grouped_product, grouped_sum
from gnn_sparse_backend.ops.relational.programs.rgms import RgmsSpec, rgms_dot, rgms_gather, rgms_scatter, rgms_sum
from tests.compiler.program_case import Adding, Case


def _relational(make, **spec):
    """Blocks of two rows, columns in two tiles of three and a rest of one."""

    def program(index_dtype):
        done = make(GroupedSpec(5, 7, 2, 3, index_dtype=index_dtype, **spec))
        return tile_axis(tile_axis(done, "K", ((2, 1),)), "L", ((1,),))

    return program


def _relational_sizes(rng):
    return {
        "num_groups": int(rng.integers(1, 4)),
        "relations": 3,
        "rows_a": 26,
        "rows_c": 26,
        "rows_g": 26,
        "positions": 26,
    }


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


CASES: dict[str, Case] = {
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
    found["rows"], found["row_ptr"], found["First"] = (
        int(row_ptr[-1]),
        row_ptr.astype(dtype),
        row_ptr[:-1].astype(dtype),
    )
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
    found["Slot"] = rng.permutation(found["slots"])[: found["num_tasks"]].astype(dtype)


CASES |= {
    "rgms_gather": Case(_rgms(rgms_gather), _rgms_sizes, ("Y",), _row_tasks),
    "rgms_gather_weighted": Case(_rgms(rgms_gather, weighted=True), _rgms_sizes, ("Y",), _row_tasks),
    "rgms_scatter": Case(_rgms(rgms_scatter), _rgms_sizes, ("Y",), _column_pairs),
    "rgms_scatter_weighted": Case(_rgms(rgms_scatter, weighted=True), _rgms_sizes, ("Y",), _column_pairs),
    "rgms_dot": Case(_rgms(rgms_dot), _rgms_sizes, ("C",), _numbered_edges),
    "rgms_sum": Case(_rgms(rgms_sum), _rgms_sizes, ("W",), _relation_tasks),
    "rgms_sum_weighted": Case(_rgms(rgms_sum, weighted=True), _rgms_sizes, ("W",), _relation_tasks),
}

"""Relational products by panels, beside the same product decomposed into panels: what it means, sum by sum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gnn_sparse_backend.compiler.language.axes import Size, dense_fixed, dense_variable
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.language.program import Buffer, Program
from gnn_sparse_backend.compiler.library.relational import rgms_heterogeneous
from gnn_sparse_backend.compiler.transforms import decompose_format
from gnn_sparse_backend.compiler.transforms.format_rules import standing_on
from gnn_sparse_backend.compiler.transforms.rewrite_rule import FormatRewriteRule
from gnn_sparse_backend.ops.relational.programs.rgms import RgmsSpec, rgms_gather
from tests.compiler.grouped_programs import CASES

GIVEN = {"num_tasks": "tasks", "num_panels": "panels", "Relation": "Relation", "Row": "Row", "pairs": "pairs"}
GIVEN |= {"nnz": "nnz", "panel_ptr": "panel_ptr", "pair_ptr": "pair_ptr", "indptr": "indptr", "indices": "indices"}


def panels_rule(program: Program) -> FormatRewriteRule:
    """Panels of a few rows that have non-zeros of one relation, for tasks (`formats.partitions.relational`).

    Parameters added, with the suffix: tasks_, panels_, pairs_, nnz_, panel_ptr_ (the panels of each task), pair_ptr_
    (the rows of each panel), indptr_, indices_, Relation_ (of each panel), Row_ (each row of a panel).
    """
    old = program.axis("J")
    tasks, panels, pairs, nnz = (Size(f"{s}_panels") for s in ("tasks", "panels", "pairs", "nnz"))
    T = dense_fixed("T_panels", tasks)
    P = dense_variable("P_panels", T, (panels, panels), "panel_ptr_panels", old.index_dtype)
    M = dense_variable("M_panels", P, (pairs, pairs), "pair_ptr_panels", old.index_dtype)
    J = replace(old, name="J_panels", parent=M, nnz=nnz, indptr="indptr_panels", indices="indices_panels")
    Relation = Buffer("Relation_panels", (T, P), old.index_dtype)
    Row = Buffer("Row_panels", (T, P, M), old.index_dtype)
    return FormatRewriteRule(
        "panels",
        (tasks, panels, pairs, nnz),
        (T, P, M, J),
        standing_on(program, None, "R", "I", "J"),
        ("R", "I", "J"),
        (T.name, P.name, M.name, J.name),
        {"R": (T.name, P.name), "I": (M.name,), "J": (J.name,)},
        None,
        lambda t, p, m, j: (Relation[t, p], Row[t, p, m], j),
        (Relation, Row),
    )


@pytest.mark.parametrize("seed", range(3))
def test_sums_before_products_are_sums_of_products(seed):
    written = rgms_gather(RgmsSpec(3, 4, 1, 4, 2, 3, 4, weighted=True, tiled=False))
    arguments = CASES["rgms_gather_weighted"].arguments(written, seed)
    product = rgms_heterogeneous(3, 4)
    composed = decompose_format(product, [panels_rule(product)], copies=False)
    given = {f"{name}_panels": arguments[of] for of, name in GIVEN.items()} | {"A_panels": arguments["A"]}
    given |= {"relations": arguments["relations"], "m": arguments["rows"], "n": arguments["cols"]}
    given |= {"X": arguments["X"], "W": arguments["W"].reshape(-1, 3, 4), "Y": np.full_like(arguments["Y"], np.nan)}
    assert set(given) == set(composed.parameter_names)
    np.testing.assert_allclose(interpret(written, arguments)["Y"], interpret(composed, given)["Y"], rtol=0, atol=1e-12)

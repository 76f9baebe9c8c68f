"""Relational products by panels, beside the same product decomposed into panels: what it means, sum by sum."""

from __future__ import annotations

import numpy as np
import pytest

from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.library.relational import rgms_heterogeneous
from gnn_sparse_backend.compiler.transforms import decompose_format
from gnn_sparse_backend.compiler.transforms.format_rules import panels_rule
from gnn_sparse_backend.ops.relational.programs.rgms import RgmsSpec, rgms_gather
from tests.compiler.grouped_programs import CASES

GIVEN = {"num_tasks": "tasks", "num_panels": "panels", "Relation": "Relation", "Row": "Row", "pairs": "pairs"}
GIVEN |= {"nnz": "nnz", "panel_ptr": "panel_ptr", "pair_ptr": "pair_ptr", "indptr": "indptr", "indices": "indices"}


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

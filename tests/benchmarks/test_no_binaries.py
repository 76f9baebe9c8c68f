"""The benchmark of libraries without a binary: its walks are walks, and its page names what is below its aim."""

import itertools
import json

import numpy as np
import pytest

from benchmarks import no_binaries


def _timed(ours, theirs):
    return {"gsb": {"median": ours}, "peer": {"median": theirs}}


def test_cells_below_their_aim_are_named():
    cases = {"knn, few": _timed(1e-3, 1.5e-3), "knn, many": _timed(1e-3, 4e-3), "spspmm": _timed(1e-3, 1.4e-3)}
    points, products = no_binaries.page({"cases": cases})
    assert [row[-1] for row in points.rows] == ["1.50", "4.00"]
    assert points.notes == ["Geometric mean 2.45.", points.notes[1]]
    assert "Under the aim of 2: knn, few (1.50)." in points.notes[1] and "many" not in points.notes[1]
    assert products.notes == ["Geometric mean 1.40."]


@pytest.mark.parametrize("p, q", [(1.0, 1.0), (0.25, 4.0)])
def test_the_loop_walks_along_edges(p, q):
    indptr, indices = np.array([0, 2, 3, 5, 5]), np.array([1, 2, 0, 1, 3])
    edges = {(row, int(to)) for row in range(4) for to in indices[indptr[row] : indptr[row + 1]]}
    for walk in no_binaries._walks(indptr, indices, [0, 1, 2, 3], 12, p, q):
        assert len(walk) == 13
        assert all(step in edges or step == (3, 3) for step in itertools.pairwise(walk))


@pytest.mark.slow
def test_the_command(tmp_path, capsys):
    assert no_binaries.main(["--quick", "--parts", "walks", "products", "--out", str(tmp_path)]) == 0
    cases = json.loads((tmp_path / "no_binaries.json").read_text())["cases"]
    assert {name.partition(",")[0] for name in cases} == {"walks", "spspmm", "matmul"}
    assert all(timing["median"] > 0 for found in cases.values() for timing in found.values())
    assert "spspmm" in capsys.readouterr().out

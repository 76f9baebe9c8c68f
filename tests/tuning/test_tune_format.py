"""Which formats a matrix is multiplied in: by the cost model, by measurements, and by what was measured before."""

from types import SimpleNamespace

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.codegen import host_target
from gnn_sparse_backend.formats.composed.decompose import decompose_csr as kept
from gnn_sparse_backend.planner.composed import ComposedPlan, problem_of
from gnn_sparse_backend.planner.database import PlanDatabase, database
from gnn_sparse_backend.structures.facts import content_hash
from gnn_sparse_backend.tuning import tune_format
from tests.formats import own


@pytest.fixture(autouse=True)
def own_database(tmp_path):
    with database.using(PlanDatabase(tmp_path / "plans.json")):
        yield


def blocks(side, share, shape=(256, 128)):
    rng = torch.Generator().manual_seed(0)
    mask = torch.rand(shape[0] // side, shape[1] // side, generator=rng) < share
    return torch.randn(shape, generator=rng) * mask.repeat_interleave(side, 0).repeat_interleave(side, 1)


@pytest.mark.short(3)
@pytest.mark.parametrize(
    "matrix, formats",
    [
        (blocks(32, 0.1), ("bsr(32)",) if "avx512f" in host_target().features else ("bsr(4)", "csr")),
        (blocks(1, 0.05), ("csr",)),
        (blocks(1, 0.9), ("dense",)),
    ],
    ids=["blocks", "scattered", "full"],
)
def test_the_cost_model_decides_at_once(matrix, formats):
    choice = gsb.tune_format(matrix, 64, budget=0)
    assert (choice.formats, choice.source, choice.dense) == (formats, "predicted", formats == ("dense",))
    assert all(row.measured is None for row in choice.rows) and {row.formats for row in choice.rows} >= {"dense", "csr"}
    assert "predicted, µs" in str(choice)


def test_what_was_measured_is_known_to_later_processes(tmp_path):
    matrix = blocks(32, 0.1)
    measured = gsb.tune_format(matrix, 32, budget=0.01)
    assert measured.source == "measured" and measured.rows[0].measured is not None
    with database.using(PlanDatabase(tmp_path / "plans.json")):
        known = gsb.tune_format(matrix, 32, budget=0)
        assert (known.source, known.formats) == ("known", measured.formats)
        found = {row.formats: row.measured for row in measured.rows if row.measured is not None}
        assert {row.formats: row.measured for row in known.rows} == found
        told = gsb.explain(matrix, "format", 32)
        assert (told.source, told.formats) == ("known", measured.formats)
        assert {row.formats: row.measured for row in told.rows} == {r.formats: r.measured for r in measured.rows}
        assert all(row.padding is not None and row.predicted is not None for row in told.rows)
        assert gsb.tune_format(matrix, 33, budget=0).source == "predicted"
        assert gsb.tune_format(matrix, 32, budget=0, tokens=True).source == "predicted"


def test_nothing_is_made_that_is_not_measured(monkeypatch):
    """Neither what the model rules out, nor, where the structure is known, anything at all."""
    made, matrix = [], blocks(32, 0.1)
    counted = lambda *given, **named: made.append(given[4]) or kept(*given, **named)
    monkeypatch.setattr(tune_format, "decompose_csr", counted)
    choice = gsb.tune_format(matrix, 32, budget=0)
    assert not made and {row.formats: row.padding for row in choice.rows}["bsr(32)"] == 0
    choice = gsb.tune_format(matrix, 32, budget=0.01)
    measured = [row.formats for row in choice.rows if row.measured is not None]
    assert 0 < len(made) <= len(measured) < len(choice.rows)
    made.clear()
    monkeypatch.setattr(tune_format, "counted", None)  # nobody counts
    for budget in (0, 1):
        assert gsb.tune_format(matrix, 32, budget=budget).source == "known"
    assert not made


def test_a_schedule_that_was_measured_is_taken():
    """By products of decompositions that were there before, too, in the formats and the width it was measured for."""
    matrix, lanes = blocks(1, 0.05), host_target().lanes("float32")
    x, parts = torch.randn(128, 512), gsb.formats.decompose(matrix, "csr")
    tried = {(row.formats, row.tile) for row in gsb.explain(matrix, "format", 512).rows}
    assert {("csr", 0), ("csr", 4), ("dense", 0)} <= tried and ("dense", 4) not in tried
    assert {row.tile for row in gsb.explain(matrix, "format", 64).rows if row.formats == "csr"} == {0}
    assert {row.tile for row in gsb.tune_format(matrix, 512, budget=0, tokens=True).rows} == {0}

    def tile(width: int) -> str:
        product = gsb.composed_spmm(parts, parts.values_of(matrix), x[:, :width])
        torch.testing.assert_close(product, matrix @ x[:, :width], rtol=1e-4, atol=1e-4)
        return str(gsb.last_run())

    assert f"tile {8 * lanes}," in tile(512)
    problem = problem_of(parts.shape, parts.nnz, 512, "float32", torch.get_num_threads())
    key = content_hash(parts.indptr, parts.indices, None, parts.shape)
    database().add(problem, key, {ComposedPlan("csr"): 2.0, ComposedPlan("csr", 4): 1.0, ComposedPlan("bsr(8)"): 0.5})
    assert f"tile {4 * lanes}," in tile(512) and f"tile {8 * lanes}," in tile(384)
    told = gsb.explain(matrix, "format", 512)
    assert [row.name for row in told.rows[:3]] == ["bsr(8)", "csr, tile of 4", "csr"] and "csr, tile of 4" in str(told)


def test_errors_quote_what_they_got():
    for wrong, words in (
        (lambda: gsb.tune_format(torch.eye(3), 0), "features must be a whole number of at least 1, got 0"),
        (lambda: gsb.tune_format(torch.eye(3), 2, budget=-1), "budget must be seconds, at least 0, got -1"),
        (lambda: gsb.tune_format([1], 2), "expected a gsb.Graph, a torch tensor or a SciPy sparse matrix, got list"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            wrong()


def test_what_is_not_on_the_cpu_is_refused():
    elsewhere = SimpleNamespace(
        indptr=torch.zeros(3, dtype=torch.int32, device="meta"),
        indices=torch.zeros(2, dtype=torch.int32, device="meta"),
        shape=(2, 2),
        decomposed=None,
    )
    with pytest.raises(ValueError, match="on the CPU alone, and the matrix is on meta"):
        gsb.tune_format(elsewhere, 8)


@pytest.fixture
def bitmap():
    gsb.formats.register(
        "bitmap", lambda width=8: own.bitmap(width), lambda matrix, width=8: own.infer_bitmap(matrix, width)
    )
    yield
    gsb.formats.unregister("bitmap")


def test_registered_formats_are_tried_and_known_by_their_definition(bitmap):
    """By the word without numbers, with csr behind it, and as the caller names them; others of the name are others."""
    matrix = blocks(1, 0.05)
    tried = {row.formats: row for row in gsb.explain(matrix, "format", 32).rows}
    assert tried["bitmap"].padding == 0 and tried["bitmap"].predicted
    named = gsb.tune_format(matrix, 32, budget=0, candidates=["bitmap(4) + csr", ["ell(9)", "csr"]])
    assert {row.formats for row in named.rows} >= {"bitmap", "bitmap(4) + csr", "ell(9) + csr"}
    problem = problem_of((256, 128), int((matrix != 0).sum()), 32, "float32", torch.get_num_threads())
    parts = gsb.formats.decompose(matrix, "bitmap")
    key = content_hash(parts.indptr, parts.indices, None, parts.shape)
    database().add(problem, key, {ComposedPlan(parts.formats[0].key): 1e-9, ComposedPlan("csr"): 1.0})
    assert gsb.tune_format(matrix, 32, budget=0).formats == ("bitmap",)
    gsb.formats.register("bitmap", own.bitmap, lambda matrix, width: own.infer_bitmap(matrix, width), replace=True)
    assert gsb.tune_format(matrix, 32, budget=0).formats == ("csr",)


def test_a_format_that_is_registered_later_is_measured(bitmap):
    matrix = blocks(1, 0.05)
    before = gsb.tune_format(matrix, 16, budget=0.01)
    assert before.source == "measured"
    after = gsb.tune_format(matrix, 16, budget=0.01, candidates=["csr + csr", "bitmap(5)"])
    assert after.source == "measured"
    assert gsb.tune_format(matrix, 16, budget=0).source == "known"


def test_groups_of_two_of_four_are_predicted_below_single_non_zeros():
    dense = torch.randn(64, 32, 4)
    dense = torch.zeros_like(dense).scatter(-1, dense.topk(2, -1).indices, 1.0).view(64, 128)
    rows = {row.formats: row for row in gsb.explain(dense, "format", 256).rows}
    assert rows["nm(2, 4)"].padding == 0 and rows["nm(2, 4)"].predicted < rows["csr"].predicted
    assert "nm(1, 4)" not in rows
    assert "nm(2, 4)" not in {row.formats for row in gsb.explain(blocks(8, 0.5), "format", 256).rows}


def test_candidates_that_are_none():
    with pytest.raises(TypeError, match=r"candidates must be a list such as .*, got 'csr'"):
        gsb.tune_format(torch.eye(3), 2, candidates="csr")
    with pytest.raises(ValueError, match="unknown format 'bit'"):
        gsb.tune_format(torch.eye(3), 2, candidates=["bit"])

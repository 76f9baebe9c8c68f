"""gsb.explain, and ``gsb tune``, ``gsb explain`` and ``gsb cache`` on the command line."""

import json

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend import cli
from gnn_sparse_backend.cli.files import FileError, load_graph
from gnn_sparse_backend.ops.core.plans import plan_of, problem_of, structure_fingerprint
from gnn_sparse_backend.planner.cpu.rows import RowPlan
from gnn_sparse_backend.planner.database import PlanDatabase, database
from gnn_sparse_backend.planner.plot import buckets

pytestmark = pytest.mark.usefixtures("two_threads")


def written(folder, graph, kind):
    """A file of the graph."""
    matrix = scipy.sparse.csr_matrix((np.ones(graph.num_edges), graph.indices, graph.indptr), shape=graph.shape)
    path = folder / f"{kind.replace(' ', '_')}.{'mtx' if kind == 'mtx' else 'npz'}"
    if kind == "mtx":
        scipy.io.mmwrite(path, matrix)
    elif kind == "scipy":
        scipy.sparse.save_npz(path, matrix)
    elif kind == "csr":
        np.savez(path, indptr=matrix.indptr, indices=matrix.indices, shape=matrix.shape)
    else:
        coo = matrix.tocoo()
        np.savez(path, src=coo.col, dst=coo.row, label=np.zeros(900, int))
    return path


@pytest.fixture
def distinct():
    """A graph without parallel edges, which matrices cannot hold."""
    rng = np.random.default_rng(0)
    edges = np.unique(rng.integers(0, 900 * 900, 6000))
    return gsb.Graph.from_coo(edges // 900, edges % 900, (900, 900))


@pytest.fixture
def cache(own_cache, wide_terminal, monkeypatch):
    """A kernel cache and a database of this test, read from their folder."""
    monkeypatch.setattr(database, "_database", None)
    return own_cache


@pytest.mark.parametrize("kind", ["mtx", "scipy", "csr", "src and dst"])
def test_files(kind, tmp_path, distinct):
    graph = load_graph(written(tmp_path, distinct, kind))
    assert graph.shape == distinct.shape
    assert np.array_equal(graph.indptr, distinct.indptr)
    for row in range(900):
        begin, end = graph.indptr[row], graph.indptr[row + 1]
        assert sorted(graph.indices[begin:end].tolist()) == sorted(distinct.indices[begin:end].tolist())


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("missing.npz", None, "not a file"),
        ("a.csv", b"1,2", "suffix '.csv'.*mtx"),
        ("a.npz", b"no archive", "cannot be read"),
        ("a.mtx", b"no matrix", "cannot be read"),
        ("pickle.npz", np.array([{}]), "arrays"),
    ],
)
def test_bad_files(name, content, message, tmp_path, capsys):
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.savez(path, data=content)
    with pytest.raises(FileError, match=message):
        load_graph(path)
    assert cli.main(["explain", str(path)]) == cli.main(["tune", str(path), "--budget", "1s"]) == 1
    assert capsys.readouterr().err.count(str(path)) == 2


def test_explain_gives_plan_candidates_and_reason(plans, graph):
    explanation = gsb.explain(graph, "weighted_sum", 128)
    text = str(explanation)
    for part in (
        "weighted_sum of 128 features (float32) on 900 x 800 with 6,000 edges, 2 threads",
        "source: rules",
        "plan of the rules",
        "degrees 0 to",
        "Gini",
        "candidates",
        "predicted",
        "512 bytes each",
        "measured on this machine",
    ):
        assert part in text, part
    assert explanation.plan == explanation.candidates()[0][0] or explanation.choice.source == "rules"
    for _plan, predicted, measured in explanation.candidates():
        assert predicted > 0 and measured is None
    assert explanation.bound > 0


def test_explain_shows_measured_times(plans, graph):
    problem = problem_of(graph, "sum:column", 16, torch.float32)
    plans.add(problem, structure_fingerprint(graph), {RowPlan(32): 90e-6, RowPlan(5): 12.5e-6, RowPlan(1): 40e-6})
    explanation = gsb.explain(graph, features=16)
    assert explanation.plan == RowPlan(5) and explanation.candidates()[0][::2] == (RowPlan(5), 12.5e-6)
    text = str(explanation)
    assert "source: measured" in text and "fastest of 3 plans measured on this structure" in text
    assert "12.5" in text and "* 5 groups" in text
    assert gsb.explain(graph, features=16, backward=True).choice.source != "measured"


def test_edge_maps_are_explained_by_their_rules_and_measured_plans(plans, graph):
    explanation = gsb.explain(graph, "dot", 16)
    assert explanation.choice.source == "rules" and "dot of 16 features" in str(explanation)
    plans.add(
        problem_of(graph, "map:column,row", 16, torch.float32), structure_fingerprint(graph), {RowPlan(3, 2): 1e-6}
    )
    assert gsb.explain(graph, "dot", 16).plan == RowPlan(3, 2)
    x, y = torch.randn(900, 16), torch.randn(800, 16)
    found = gsb.sddmm(graph, x, y)
    assert plan_of(graph, "map:column,row", 16, torch.float32) == RowPlan(3, 2), (
        "the measured plan is the one that runs"
    )
    rows = torch.repeat_interleave(torch.arange(900), graph.in_degrees.long())
    expected = (x[rows] * y[graph.indices.long()]).sum(1)
    torch.testing.assert_close(found[graph.edge_ids.long()], expected)


@pytest.mark.parametrize(
    "op, features, message", [("som", 16, "'som'"), ("sum", 0, "0"), ("sum", (16, 32), "one positive")]
)
def test_explain_refuses(op, features, message, graph, plans):
    with pytest.raises(ValueError, match=message):
        gsb.explain(graph, op, features)


def test_explain_takes_one_graph(graph, plans):
    with pytest.raises(ValueError, match="one graph, got 2"):
        gsb.explain([graph, graph])


def test_buckets_hold_every_row_once():
    degrees = np.array([0, 1, 1, 2, 3, 4, 5, 8, 9, 16])
    widths, rows, nonzeros = buckets(degrees)
    assert (
        widths.tolist() == [1, 2, 4, 8, 16]
        and rows.tolist() == [2, 1, 2, 2, 2]
        and nonzeros.tolist() == [2, 2, 7, 13, 25]
    )
    assert buckets(np.zeros(3, int))[1].sum() == 0


def test_a_search(cache, tmp_path, distinct, capsys, monkeypatch):
    path = written(tmp_path, distinct, "csr")
    monkeypatch.setattr("gnn_sparse_backend.tuning.precompile.calibrate", lambda: None)
    monkeypatch.setattr("gnn_sparse_backend.tuning.search.promising", lambda predicted: list(predicted)[:2])
    assert cli.main(["tune", str(path), "--features", "8", "--search", "--budget", "1h", "--forward"]) == 0
    out = capsys.readouterr().out
    assert "sum:column" in out and "regret before" in out and "on average" in out
    assert len(PlanDatabase().records()) == 1
    assert cli.main(["tune", str(path), "--features", "8", "--search", "--budget", "-1"]) == 1
    assert "-1" in capsys.readouterr().err


def test_the_commands_in_turn(cache, tmp_path, distinct, capsys, monkeypatch):
    path = written(tmp_path, distinct, "csr")
    monkeypatch.setattr("gnn_sparse_backend.tuning.precompile.calibrate", lambda: None)
    assert cli.main(["tune", str(path), "--features", "16", "--ops", "sum", "mean", "--budget", "5s", "--forward"]) == 0
    out = capsys.readouterr().out
    assert "csr.npz" in out and "mean" in out and out.count("measured") == 2
    assert len(PlanDatabase().records()) == 2 and PlanDatabase().path.parent == cache

    database.forget()  # as another process
    assert (
        cli.main(["explain", str(path), "--features", "16", "--op", "mean", "--plot", str(tmp_path / "plan.png")]) == 0
    )
    out = capsys.readouterr().out
    assert "source: measured" in out and f"written: {tmp_path / 'plan.png'}" in out
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")

    assert cli.main(["cache", "ls"]) == 0
    out = capsys.readouterr().out
    assert "2 measured problems" in out and "900 x 900" in out and "float32" in out and "sum:column" in out

    assert cli.main(["cache", "verify"]) == 0
    assert "all good" in capsys.readouterr().out
    content = json.loads((cache / "plans.json").read_text())
    content["records"][1]["problem"]["threads"] = -1
    (cache / "plans.json").write_text(json.dumps(content))
    assert cli.main(["cache", "verify"]) == 1
    out = capsys.readouterr().out
    assert "record 1" in out and "-1" in out and "1 damaged" in out

    assert cli.main(["cache", "clear"]) == 0
    assert "1 measured problems deleted" in capsys.readouterr().out
    assert not (cache / "plans.json").exists()


def test_bad_options(cache, tmp_path, distinct, capsys):
    path = str(written(tmp_path, distinct, "csr"))
    assert cli.main(["tune", path, "--budget", "soon"]) == 1
    assert cli.main(["tune", path, "--ops", "som"]) == 1
    assert cli.main(["explain", path, "--op", "som"]) == 1
    err = capsys.readouterr().err
    assert "'soon'" in err and err.count("'som'") == 2
    with pytest.raises(SystemExit):
        cli.main(["explain", path, "--features", "-3"])
    assert "'-3' is not a positive whole number" in capsys.readouterr().err


def test_relations_in_a_file(cache, tmp_path, distinct, capsys):
    path = tmp_path / "typed.npz"
    np.savez(path, src=[0, 1, 4, 2], dst=[4, 4, 0, 1], etype=[0, 0, 1, 2])
    assert cli.main(["tune", str(path), "--ops", "rgms", "rgms_mean", "--features", "3x5", "5", "--budget", "60s"]) == 0
    out = capsys.readouterr().out
    assert "(3, 5)" in out and "rgms_mean and backward" in out and out.count("compiled") == 4
    for arguments, said in (
        (
            [written(tmp_path, distinct, "csr"), "--ops", "rgms"],
            "has no array 'src': relations are read from .npz with src, dst and etype",
        ),
        ([written(tmp_path, distinct, "mtx"), "--ops", "rgms"], "has no array 'src'"),
        ([tmp_path / "missing.npz", "--ops", "rgms"], "missing.npz is not a file"),
        ([path, "--ops", "rgms_bases", "--features", "8x8"], "rgms_bases must be (F_in, F_out, bases)"),
        ([path, "--ops", "sum", "segment_mm"], "gsb.Segments, which no file holds"),
        ([path, "--ops", "gat_attention", "--features", "2x3x4"], "got (2, 3, 4)"),
    ):
        assert cli.main(["tune", *map(str, arguments), "--budget", "1s"]) == 1
        assert said in capsys.readouterr().err, arguments
    np.savez(path, src=[0, 1], dst=[4, 4], etype=[0, -1])
    assert cli.main(["tune", str(path), "--ops", "rgms"]) == 1 and "cannot be read: relation" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["tune", str(path), "--features", "64y16"])
    assert "'64y16' is not a positive whole number, nor several" in capsys.readouterr().err

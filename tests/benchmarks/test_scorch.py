"""The workloads of Scorch: every contender's answer, with a stand-in for Scorch, and a run of all of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.scorch import library
from benchmarks.scorch.__main__ import Place, apart, arguments, bound, main, places, shortfalls
from benchmarks.scorch.autoencoder import Autoencoder
from benchmarks.scorch.gcn import GCN, Sizes
from benchmarks.scorch.transformer import Sizes as Encoder
from benchmarks.scorch.transformer import Transformer
from benchmarks.scorch.workload import OURS, Workload
from benchmarks.support.cells import Unable

STAND_IN = """
import torch

class STensor:
    def __init__(self, tensor):
        self.tensor = tensor

    @classmethod
    def from_csr(cls, tensor, name):
        assert tensor.layout == torch.sparse_csr and tensor.crow_indices().dtype == torch.int64
        return cls(tensor)

    @classmethod
    def from_torch(cls, tensor, name):
        return cls(tensor)

    @property
    def values(self):
        return self.tensor

def matmul(a, b, format):
    assert format == "dd"
    return a.tensor.to_dense() @ b

def einsum(how, mask, q, k):
    assert how == "ij,ik,jk->ij"
    return STensor((q.tensor @ k.tensor.t())[mask.tensor.to_dense().bool()])

def compile(function):
    return function
"""


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    """A stand-in for a checkout of Scorch, whose functions are PyTorch's."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(library, "_found", [])
    if "scorch" in sys.modules:
        monkeypatch.delitem(sys.modules, "scorch")
    package = tmp_path / "checkout" / "src" / "scorch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(STAND_IN)
    yield package.parents[1]
    sys.modules.pop("scorch", None)


def workloads() -> dict[str, Workload]:
    return {
        "gcn": GCN("pubmed", 1, Sizes(40, 8, 3, 0.2)),
        "autoencoder": Autoencoder((24, 48, 16), 0.8, 1, batch=6),
        "transformer": Transformer(48, 1, Encoder(100, 16, 2, 2, 24, 5)),
    }


@pytest.mark.parametrize("name", ["gcn", "autoencoder", "transformer"])
def test_every_contender_is_right_and_a_wrong_one_is_seen(name, small_pubmed, checkout):
    assert library.use(checkout) is None
    with torch.no_grad():
        problem, able = workloads()[name], set()
        for contender in problem.notes:
            try:
                answer = problem.call_of(contender)()
            except (Unable, ImportError):
                continue
            assert answer.shape == problem.expected.shape, contender
            assert problem.mismatch(answer) is None, contender
            assert problem.mismatch(answer + 0.1).startswith("off by")
            able.add(contender)
        assert problem.rest()().numel()
    framed = {"pyg", "dgl"}
    assert able | framed == {*problem.notes} | framed


def test_dense_features_have_no_sparse_contender_and_large_graphs_no_dense_one(small_pubmed, monkeypatch):
    problem = GCN("pubmed", 1, Sizes(10, 8, 3))
    with pytest.raises(Unable, match="no zeros"):
        problem.call_of("gsb, sparse X")
    monkeypatch.setattr("benchmarks.scorch.gcn.MOST_DENSE", 100)
    with pytest.raises(Unable, match="too large"):
        problem.call_of("dense")


def test_without_scorch_its_contenders_say_why(small_pubmed, checkout, tmp_path):
    assert "--scorch CHECKOUT" in library.use(None)
    with pytest.raises(Unable, match="--scorch CHECKOUT"):
        workloads()["transformer"].call_of("scorch")
    (checkout / "src" / "scorch" / "__init__.py").write_text("matmul = einsum = None\n")
    assert "another project's: it has no STensor, compile" in library.use(checkout)
    sys.modules.pop("scorch")
    sys.path.remove(str(checkout / "src"))
    assert "No module named 'scorch'" in library.use(tmp_path / "nowhere")


def test_weights_are_pruned_over_all_layers_together():
    problem = Autoencoder((24, 96, 16), 0.9, 0)
    assert [tuple(weight.shape) for weight in problem.weights] == [(96, 24), (16, 96), (96, 16), (24, 96)]
    kept = [int(weight.count_nonzero()) for weight in problem.weights]
    assert sum(kept) == sum(weight.numel() for weight in problem.weights) - int(0.9 * 7680)
    shares = [count / weight.numel() for count, weight in zip(kept, problem.weights)]
    assert shares[2] > shares[0] > shares[1] > 0  # by the width of what goes in
    magnitudes = torch.cat([weight[weight != 0].abs() for weight in problem.weights])
    assert magnitudes.min() > 0.1


def test_the_mask_and_its_pairs_are_those_of_the_band():
    problem = Transformer(48, 1, Encoder(100, 16, 2, 2, 24, 5))
    assert torch.equal(problem.mask.to_dense()[0], problem.allowed)
    assert problem.pairs == problem.allowed.sum() and problem.work().flops > 0


def test_a_ratio_without_what_all_do_alike():
    timings = {"gsb": {"median": 3.0}, "dense": {"median": 5.0}}
    rated = {"timings": timings, "best_ours": "gsb", "best_peer": "dense", "speedup": 5 / 3}
    assert apart(rated, 2.0) == 3.0 and apart(rated, 3.0) is None


def test_a_shortfall_has_its_bound_or_our_share():
    """Where what all do alike takes too long no product could reach the ratio; else ours is to be faster."""
    timings = {"gsb": {"median": 4.0}, "dense": {"median": 5.0}}
    rated = {"timings": timings, "best_ours": "gsb", "best_peer": "dense", "speedup": 1.25, "where": "here"}
    assert bound(rated, 2.5) == 2.0 and bound(rated | {"best_peer": None}, 2.5) is None
    (bounded,) = shortfalls([rated | {"rest": 4.0, "bound": bound(rated, 4.0)}])
    assert bounded == "here: 1.25 over dense; what all contenders do alike takes 4.00 s, and bounds the ratio by 1.25"
    (ours,) = shortfalls([rated | {"rest": 1.0, "bound": bound(rated, 1.0)}])
    assert ours == "here: 1.25 over dense; our products take 3.00 s of 4.00 s; without them the ratio would be 5.00"
    assert not shortfalls([rated | {"speedup": 1.5}, rated | {"speedup": None}])


def test_places_of_one_size_follow_each_other():
    options = arguments(["--workloads", "autoencoder", "--models", "small", "--sparsities", "0.5", "0.9"])
    assert places(options) == [
        Place("autoencoder", "small", part, threads) for part in ("0.5", "0.9") for threads in (1, 2)
    ]
    assert str(places(options)[0]) == "autoencoder, small, 0.5, 1 thread"


def test_shares_that_are_none_are_quoted(capsys):
    with pytest.raises(SystemExit):
        arguments(["--sparsities", "1.5"])
    assert "below 1, got [1.5]" in capsys.readouterr().err


@pytest.mark.slow
def test_a_small_run(command, small_pubmed, checkout, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules["benchmarks.scorch.autoencoder"].SIZES, "small", (24, 48, 16))
    given = ["--graphs", "pubmed", "--models", "small", "--sparsities", "0.9", "--tokens", "64", "--budget", "0.5"]
    assert command(main, *given, "--each-threads", "1", "--scorch", checkout, "--pages", tmp_path) == 0
    found = json.loads((tmp_path / "scorch.json").read_text())
    assert [cell["op"] for cell in found["cells"]] == ["gcn", "autoencoder", "transformer"]
    for cell in found["cells"]:
        assert {OURS, "torch csr", "scorch"} <= cell["timings"].keys() and cell["speedup"] > 0
    assert "| pubmed | 1 |" in (tmp_path / "scorch.md").read_text()
    assert found["cells"][2]["rest"] > 0 and found["summary"]["cells"] == 3

"""The walk over layers notices every kind of difference, and its table says what ran where."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.core.counters import fallback, ours
from tests.coverage import report as coverage
from tests.coverage.report import Bound, Case, Outcome, compare, cotangents, features, run_case, shortfall
from tests.coverage.tables import FOLDER, Row, main, pages

VALUES = features(4, 3)
OUTCOME = Outcome((VALUES,), {"w": VALUES, "unused": None}, {"mean": VALUES, "steps": torch.tensor(3)})


def test_equal_outcomes_do_not_differ():
    assert compare(OUTCOME, OUTCOME) == []
    rounded = VALUES * (1 + 1e-12)
    assert compare(replace(OUTCOME, outputs=(rounded,), gradients={"w": rounded, "unused": None}), OUTCOME) == []


def altered(position, value):
    values = VALUES.clone()
    values[position] = value
    return values


@pytest.mark.parametrize(
    "output, words",
    [
        (VALUES * (1 + 1e-9), "differs by"),
        (VALUES.float(), "dtype torch.float32 instead of torch.float64"),
        (VALUES[:, :2], "shape"),
        (VALUES.t().contiguous().t(), "strides"),
        (VALUES.clone().requires_grad_(), "requires_grad True instead of False"),
        (torch.nn.Parameter(VALUES, requires_grad=False), "type Parameter instead of Tensor"),
        (altered((0, 0), float("nan")), "infinities or NaN in other places"),
        (altered((0, 0), float("inf")), "infinities or NaN in other places"),
        (VALUES.to_sparse(), "layout"),
    ],
)
def test_every_kind_of_difference_is_named(output, words):
    found = compare(replace(OUTCOME, outputs=(output,)), OUTCOME)
    assert len(found) == 1 and found[0].startswith("output 0: ") and words in found[0]


def test_signs_of_infinities_and_nan_are_compared():
    kinds = [replace(OUTCOME, outputs=(altered((0, 0), float(value)),)) for value in ("inf", "-inf", "nan")]
    for one in kinds:
        for other in kinds:
            assert bool(compare(one, other)) == (one is not other)


def test_gradients_buffers_and_numbers_of_outputs_are_compared():
    assert compare(replace(OUTCOME, gradients={"w": None, "unused": None}), OUTCOME) == ["gradient of w: missing"]
    assert compare(replace(OUTCOME, gradients={"w": VALUES, "unused": VALUES}), OUTCOME) == [
        "gradient of unused: not there without the backend"
    ]
    assert compare(replace(OUTCOME, gradients={"w": VALUES}), OUTCOME) == ["gradient of other names: ['unused']"]
    found = compare(replace(OUTCOME, buffers={"mean": VALUES + 1, "steps": torch.tensor(4)}), OUTCOME)
    assert sorted(each.split(":")[0] for each in found) == ["buffer mean", "buffer steps"]
    assert compare(replace(OUTCOME, outputs=(VALUES, VALUES)), OUTCOME) == ["2 outputs instead of 1"]


def test_an_array_near_zero_is_judged_by_the_smallest_scale():
    tiny = replace(OUTCOME, outputs=(VALUES * 1e-20,))
    assert compare(tiny, replace(OUTCOME, outputs=(VALUES * -1e-20,))) == []
    assert compare(replace(OUTCOME, outputs=(VALUES * 1e-11,)), tiny) != []


def test_infinite_outputs_have_no_cotangent():
    output = torch.tensor([1.0, float("inf"), float("nan"), 2.0], requires_grad=True)
    (cotangent,) = cotangents((output,), 0)
    assert (cotangent == 0).tolist() == [False, True, True, False]
    assert cotangents((VALUES,), 0) == [None]


class Counting(torch.nn.Module):
    """Draws from the generator, like dropout, and pretends to be counted."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x):
        ours("pyg", "spmm")
        fallback("pyg", "spmm", "reduce max")
        fallback("dgl", "gspmm", "another framework")
        return torch.nn.functional.dropout(self.linear(x))


CASE = Case("Counting", lambda: Bound(Counting(), x=VALUES, index=torch.arange(4)), lambda m: m.layer(m.x))


def test_a_case_is_the_same_at_every_run_and_other_for_another_seed():
    first, second, other = (run_case("pyg", CASE, seed) for seed in (0, 0, 1))
    assert set(first.gradients) == {"x", "layer.linear.weight", "layer.linear.bias"}
    assert all(each is not None for each in first.gradients.values())
    assert compare(first, second) == [] and compare(first, other) != []
    assert first.counters == {"spmm": (1, {"reduce max": 1})}
    assert run_case("pyg", CASE, 0, torch.float32).outputs[0].dtype == torch.float32
    assert set(run_case("pyg", CASE, 0, backward=False).gradients.values()) == {None}


@pytest.mark.parametrize(
    "required, exceptions, enough",
    [
        (None, {}, True),
        (0.5, {}, True),
        (0.51, {}, False),
        (0.95, {"*": {"spmm: reduce max": "why"}}, True),
        (0.95, {"Counting": {"spmm: reduce max": "why"}}, True),
        (0.95, {"Other": {"spmm: reduce max": "why"}}, False),
    ],
)
def test_the_share_required(monkeypatch, required, exceptions, enough):
    monkeypatch.setattr(coverage.importlib, "import_module", lambda name: SimpleNamespace(EXCEPTIONS=exceptions))
    monkeypatch.setitem(coverage.REQUIRED_SHARE, "pyg", required)
    words = shortfall("pyg", CASE, run_case("pyg", CASE, 0))
    assert (words is None) == enough
    assert enough or words == (
        f"1 of 2 calls on our kernels, at least {required:.0%} required; the others: {{'spmm: reduce max': 1}}"
    )


def test_the_pages_have_a_line_for_every_case(monkeypatch):
    zoo = pytest.importorskip("tests.coverage.pyg.layers", exc_type=ImportError)
    other = replace(CASE, name="Other | one")
    monkeypatch.setattr(zoo, "PAGES", {"first-page": [CASE], "second": [other]})
    row = Row(CASE, run_case("pyg", CASE, 0), [], {"spmm: reduce max": "as said"}, "1 (one)")
    found = pages({"pyg": [row, replace(row, case=other, explained={})]})
    assert set(found) == {"index.md", "pyg-first-page.md", "pyg-second.md"}
    assert "| Counting | 1 | 1 | 50% | 1 (one) | spmm: reduce max (1), as said |" in found["pyg-first-page.md"]
    assert "| Other \\| one | 1 | 1 | 50% | 1 (one) | spmm: reduce max (1) |" in found["pyg-second.md"]
    assert (
        "1 cases; 1 of 2 calls on our kernels. Of the others 1 are left to the framework on purpose, as the table "
        "explains; without those 100% are on our kernels." in found["pyg-first-page.md"]
    )
    assert "1 cases; 1 of 2 calls on our kernels.\n" in found["pyg-second.md"]
    assert "2 cases; 2 of 4 calls on our kernels." in found["index.md"]
    assert "- [First page](pyg-first-page.md): 1 cases" in found["index.md"]


@pytest.mark.parametrize("framework", coverage.ZOOS)
def test_every_case_is_on_one_page_of_the_documentation(framework):
    zoo = pytest.importorskip(coverage.ZOOS[framework], exc_type=ImportError)
    paged = [case.name for cases in zoo.PAGES.values() for case in cases]
    assert paged == [case.name for case in zoo.CASES] and len(set(paged)) == len(paged)
    for page, cases in zoo.PAGES.items():
        text = (FOLDER / f"{framework}-{page}.md").read_text()
        named = re.findall(r"^\| (.*?) \| [\d,]+ \| ", text, re.MULTILINE)
        assert named == [case.name.replace("|", "\\|") for case in cases]


def test_the_backend_is_as_before_after_a_pair():
    pytest.importorskip("torch_geometric")
    coverage.run_pair("pyg", CASE)
    assert gsb.status().enabled == ()


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--framework", "dgl", "--write"], "leave --framework out"),
        (["--framework", "jax"], "invalid choice"),
    ],
)
def test_bad_options(arguments, words, capsys):
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2 and words in capsys.readouterr().err

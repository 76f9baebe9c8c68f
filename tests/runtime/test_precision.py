"""Whether float32 may go to Tensor Cores: PyTorch has an older and a newer way to say so, and users mix them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.runtime import precision
from gnn_sparse_backend.runtime.precision import on_tensor_cores

NEW = hasattr(torch.backends.cuda.matmul, "fp32_precision")
needs_new = pytest.mark.skipif(not NEW, reason="this PyTorch has the older settings alone")


def old(value: str) -> None:
    torch.set_float32_matmul_precision(value)


def allow(value: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = value


def new(value: str) -> None:
    torch.backends.cuda.matmul.fp32_precision = value


def everywhere(value: str) -> None:
    torch.backends.fp32_precision = value


@pytest.fixture(autouse=True)
def as_it_starts(matmul_precision):
    """Nobody has said anything; what a test says is undone."""
    old("highest")
    if NEW:
        new("none"), everywhere("none")
    yield
    if NEW:
        everywhere("none")


@pytest.mark.parametrize(
    "said, expected",
    [
        ([], False),
        ([(old, "high")], True),
        ([(old, "medium")], True),
        ([(old, "high"), (old, "highest")], False),
        ([(allow, True)], True),
        ([(allow, True), (allow, False)], False),
        pytest.param([(new, "tf32")], True, marks=needs_new),
        pytest.param([(new, "ieee")], False, marks=needs_new),
        pytest.param([(everywhere, "tf32")], True, marks=needs_new),
        pytest.param([(everywhere, "tf32"), (new, "ieee")], False, marks=needs_new),
        pytest.param([(old, "high"), (new, "ieee")], False, marks=needs_new),
        pytest.param([(old, "highest"), (new, "tf32")], True, marks=needs_new),
        pytest.param([(new, "tf32"), (old, "highest")], False, marks=needs_new),
        pytest.param([(new, "ieee"), (old, "high")], True, marks=needs_new),
        pytest.param([(allow, False), (everywhere, "tf32")], False, marks=needs_new),  # the nearer one has been set
    ],
    ids=lambda x: (
        " then ".join(f"{how.__name__} {value}" for how, value in x) or "nothing" if type(x) is list else str(x)
    ),
)
def test_the_last_word_counts(said, expected):
    for how, value in said:
        how(value)
    assert on_tensor_cores(torch.float32) is expected
    if NEW:
        assert (torch.backends.cuda.matmul.fp32_precision == "tf32") is expected
    for dtype in (torch.float16, torch.bfloat16):
        assert on_tensor_cores(dtype)


@pytest.mark.parametrize("value, expected", [("highest", False), ("high", True), ("medium", True)])
def test_a_pytorch_with_the_older_settings_alone(value, expected, monkeypatch):
    old(value)
    monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace(allow_tf32=value != "highest"))
    monkeypatch.setattr(precision, "_tf32", precision._reader())
    assert on_tensor_cores(torch.float32) is expected


@needs_new
@pytest.mark.parametrize("value, expected", [("ieee", False), ("tf32", True)])
def test_a_pytorch_without_the_short_cut(value, expected, monkeypatch):
    monkeypatch.delattr(torch._C, "_get_fp32_precision_getter", raising=False)
    monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace(fp32_precision=value))
    monkeypatch.setattr(precision, "_tf32", precision._reader())
    assert on_tensor_cores(torch.float32) is expected


@needs_new
def test_operators_take_the_newer_setting(serial_gpu):
    new("tf32")
    operands = torch.ones(40, 32), torch.ones(1, 32, 8), torch.tensor([40])
    assert gsb.segment_mm(*operands).eq(32).all()
    new("ieee")
    assert gsb.segment_mm(*operands).eq(32).all()
    assert serial_gpu == ["grouped_tiles", "grouped_rows"]

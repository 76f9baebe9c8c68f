from __future__ import annotations

import dataclasses
import gc

import numpy as np
import pytest

from gnn_sparse_backend.compiler.cache import KernelStore
from tests.compiler.cache.helpers import PLAN, PROGRAM, CopyBuild, assert_scales, get, key_of, load


@pytest.fixture
def kernel(new_store, build):
    return get(new_store(), build, name="scale")


def test_takes_torch_tensors_in_place(kernel):
    torch = pytest.importorskip("torch")
    a = torch.arange(9, dtype=torch.float32)[1:]  # not aligned to a vector
    b = torch.full((8,), float("nan"))
    assert kernel(8, a, b) is None
    assert torch.equal(b, a * 2)


def test_size_zero(kernel):
    kernel(0, np.zeros(0, np.float32), np.zeros(0, np.float32))


@pytest.mark.parametrize(
    "arguments, error",
    [
        ((3, np.zeros(3, np.float64), np.zeros(3, np.float32)), TypeError),
        ((3, np.zeros(3, np.float32), np.zeros(2, np.float32)), ValueError),
        ((3, np.zeros(3, np.float32)), TypeError),
    ],
)
def test_wrong_arguments_raise(kernel, arguments, error):
    with pytest.raises(error):
        kernel(*arguments)


def test_says_what_it_is(kernel):
    assert (kernel.name, kernel.key, kernel.origin) == ("scale", key_of().digest, "compiled")
    assert kernel.compile_seconds > 0
    assert repr(kernel).startswith("Kernel('scale', key=" + kernel.key[:12])


def test_immutable(kernel):
    with pytest.raises(dataclasses.FrozenInstanceError):
        kernel.entry = None


@pytest.mark.parametrize("on_disk", [True, False])
def test_scripts_of_stages(on_disk, libraries, new_store):
    def build(folder):
        (folder / "position.py").write_text("for i in range(m): …", encoding="utf-8")
        (folder / "kernel.o").write_bytes(b"\xff\x00 scratch")
        return CopyBuild(libraries[2.0])(folder)

    stores = [new_store(), new_store()] if on_disk else [KernelStore(None, load)]
    for store in stores:
        kernel = get(store, build)
        assert kernel.script() == PROGRAM
        assert kernel.script("plan") == PLAN
        assert kernel.script("position") == "for i in range(m): …"
        assert sorted(kernel.stage_names) == ["plan", "position", "program"]
    with pytest.raises(ValueError, match="has no text 'loops'; it has .*position"):
        kernel.script("loops")


def test_entry_outlives_the_kernel(libraries):
    """The bare function keeps its library loaded, so that a caller may hold nothing else."""
    entry = get(KernelStore(None, load), CopyBuild(libraries[3.0])).entry
    gc.collect()
    assert_scales(entry, 3.0)


def test_kernel_adds_no_work_to_the_entry(kernel):
    calls = []
    probe = dataclasses.replace(kernel, entry=lambda *arguments: calls.append(arguments))
    probe(1, "a", "b")
    assert calls == [(1, "a", "b")]

"""Compiled functions give the right numbers by every way of building and loading, and failures name the kernel."""

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm

from gnn_sparse_backend.compiler.codegen import (
    BuildError,
    build_jit,
    build_shared,
    cuda_target,
    generate_assembly,
    host_target,
    load,
)
from gnn_sparse_backend.compiler.codegen import linker as linker_module
from tests.compiler.codegen.kernels import double, row_sums, serial_double


def assert_doubles(function, n=1001):
    a = torch.randn(n)
    b = torch.full((n,), float("nan"))
    function(n, a, b)
    np.testing.assert_array_equal(b.numpy(), 2 * a.numpy())


@pytest.mark.parametrize("function, name", [(double, "double"), (serial_double, "serial_double")])
def test_jit_and_shared_object(function, name, tmp_path):
    module = build_jit(function, host_target())
    assert_doubles(module[name])
    path = build_shared(function, host_target(), tmp_path)
    assert path == tmp_path / f"{name}.so"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert_doubles(load(path)[name])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells what a process has mapped")
def test_a_library_goes_with_its_last_function(tmp_path):
    path = build_shared(double, host_target(), tmp_path)

    def mapped():
        gc.collect()
        return str(path) in Path("/proc/self/maps").read_text()

    module = load(path)
    function = module["double"]
    del module
    assert mapped()
    assert_doubles(function)
    again = load(path)["double"]
    del function
    assert mapped()
    assert_doubles(again)
    del again
    assert not mapped()


def test_assembly_is_that_of_the_built_function():
    text = generate_assembly(double, host_target())
    assert text == build_jit(double, host_target()).module.inspect_source("s")
    assert ".globl" in text and "double" in text
    with pytest.raises(ValueError, match="generate_cuda"):
        generate_assembly(double, cuda_target("sm_90"))


def test_unaligned_and_empty_tensors():
    function = build_jit(double, host_target())["double"]
    storage, out = torch.randn(102), torch.zeros(102)
    function(101, storage[1:], out[1:])
    np.testing.assert_array_equal(out[1:].numpy(), 2 * storage[1:].numpy())
    function(0, torch.empty(0), torch.empty(0))


def test_llvm_text_without_a_linker(tmp_path, monkeypatch):
    monkeypatch.setattr(linker_module, "LINKERS", ())
    path = build_shared(double, host_target(), tmp_path)
    assert path.suffix == ".ll"
    assert_doubles(load(path)["double"])


@pytest.mark.parametrize("linker", linker_module.LINKERS, ids=lambda linker: linker[0])
def test_each_linker(linker, tmp_path, monkeypatch):
    monkeypatch.setattr(linker_module, "LINKERS", (linker,))
    path = build_shared(double, host_target(), tmp_path)
    if path.suffix != ".so":
        pytest.skip(f"no {linker[0]} on this machine")
    assert_doubles(load(path)["double"])


def test_two_functions_in_one_module(tmp_path):
    module = tvm.IRModule(
        {
            "double": double.with_attr("global_symbol", "double"),
            "row_sums": row_sums.with_attr("global_symbol", "row_sums"),
        }
    )
    built = build_jit(module, host_target())
    assert built.names == ("double", "row_sums")
    assert_doubles(built["double"])
    out = torch.empty(2, dtype=torch.float64)
    built["row_sums"](
        2, 3, torch.tensor([0, 1, 3], dtype=torch.int32), torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64), out
    )
    assert out.tolist() == [1.0, 6.0]


def test_a_file_loads_in_a_fresh_process(tmp_path):
    path = build_shared(double, host_target(), tmp_path)
    code = f"""
import numpy as np, sys
from gnn_sparse_backend.compiler.codegen import load
from gnn_sparse_backend.compiler.codegen.cpu import threads
import tvm
function = load({str(path)!r})["double"]
a, b = tvm.runtime.tensor(np.arange(1000, dtype="float32")), tvm.runtime.tensor(np.zeros(1000, dtype="float32"))
function(1000, a, b)
assert (b.numpy() == 2 * np.arange(1000)).all()
assert "torch" in sys.modules or threads.description().startswith("TVM's own pool"), threads.description()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_unknown_name_lists_the_names():
    with pytest.raises(KeyError, match="triple.*double"):
        build_jit(double, host_target())["triple"]


def test_missing_and_damaged_files_are_refused(tmp_path):
    with pytest.raises(BuildError, match="no such file"):
        load(tmp_path / "absent.so")
    path = build_shared(double, host_target(), tmp_path)
    whole = path.read_bytes()
    for size in (0, 63, 64, 3000, len(whole) // 2, len(whole) - 1):
        cut = tmp_path / f"cut{size}.so"
        cut.write_bytes(whole[:size])
        with pytest.raises(BuildError, match="cannot be loaded"):
            load(cut)
    text = tmp_path / "damaged.ll"
    text.write_text("define void @f( {")
    with pytest.raises(BuildError, match="cannot be loaded"):
        load(text)


def test_failed_build_names_the_kernel_and_keeps_its_source():
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def calls_nothing(a_handle: T.handle):
        a = T.match_buffer(a_handle, (4,), "float32")
        for i in T.unroll(T.Cast("int32", a[0])):
            a[i] = T.float32(0)

    with pytest.raises(BuildError, match="calls_nothing") as failure:
        build_jit(calls_nothing, host_target())
    assert failure.value.kernel == "calls_nothing"
    assert "T.unroll" in failure.value.source


def test_a_failed_link_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(linker_module, "LINKERS", ((sys.executable, "-c", "import sys; sys.exit('no space left')"),))
    with pytest.raises(BuildError, match="no space left"):
        build_shared(double, host_target(), tmp_path)


def test_shared_objects_are_for_the_cpu(tmp_path):
    with pytest.raises(ValueError, match="generate_cuda"):
        build_shared(double, cuda_target("sm_90"), tmp_path)

"""CUDA source without a GPU; machine code where a compiler is found; no fast-math."""

import pytest
import tvm_ffi

from gnn_sparse_backend.compiler.codegen import (
    BuildError,
    build_jit,
    compile_cuda,
    cuda_source,
    cuda_target,
    generate_cuda,
    host_target,
)
from gnn_sparse_backend.compiler.codegen.cuda import machine_code as cuda_module
from gnn_sparse_backend.compiler.codegen.cuda import nvrtc
from gnn_sparse_backend.compiler.codegen.cuda.machine_code import (
    PtxasStatistics,
    nvcc_path,
    nvrtc_available,
    own_compile_callback,
    parse_ptxas,
)
from tests.compiler.codegen.kernels import double, exp_third_cuda

COMPILERS = [
    pytest.param("nvcc", marks=pytest.mark.skipif(nvcc_path() is None, reason="no nvcc")),
    pytest.param("nvrtc", marks=pytest.mark.skipif(not nvrtc_available(), reason="no NVRTC, or no headers")),
]
LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 54 registers, used 1 barriers, 16 bytes cumulative stack size, 4096 bytes smem
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""


def test_ptxas_output_is_parsed():
    assert parse_ptxas(LOG) == (
        PtxasStatistics("first", registers=54, spill_stores=8, spill_loads=12, stack=16, shared=4096),
        PtxasStatistics("second", registers=8),
    )
    assert parse_ptxas("") == ()


def test_source_needs_no_gpu():
    source = generate_cuda(exp_third_cuda, "sm_90")
    assert "__global__" in source and "exp_third_cuda_kernel" in source


def test_a_cpu_module_has_no_cuda_source():
    with pytest.raises(ValueError, match="cuda_target"):
        cuda_source(build_jit(double, host_target()))


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_machine_code_and_its_statistics(compiler, arch):
    binary = compile_cuda(generate_cuda(exp_third_cuda, arch), arch, "cubin", compiler)
    assert binary.code.startswith(b"\x7fELF")
    statistics = binary.of("exp_third_cuda_kernel")
    assert 0 < statistics.registers <= 64
    assert statistics.spill_stores == statistics.spill_loads == 0
    with pytest.raises(KeyError, match="exp_third_cuda_kernel"):
        binary.of("other")


@pytest.mark.parametrize("compiler", COMPILERS)
def test_ptx_has_no_fast_math(compiler):
    ptx = compile_cuda(generate_cuda(exp_third_cuda, "sm_80"), "sm_80", "ptx", compiler).code.decode()
    assert ".target sm_80" in ptx
    assert "div.rn.f32" in ptx  # correctly rounded, denormals kept; fast-math gives div.approx.ftz
    assert ".ftz" not in ptx.replace("ex2.approx.ftz.f32", "")  # the argument of the accurate expf is already reduced


@pytest.mark.parametrize("compiler", COMPILERS)
def test_refused_source_names_the_kernel(compiler):
    source = generate_cuda(exp_third_cuda, "sm_80").replace("expf(", "no_such_function(")
    with pytest.raises(BuildError, match="no_such_function") as failure:
        compile_cuda(source, "sm_80", "cubin", compiler)
    assert failure.value.kernel == "exp_third_cuda_kernel"
    assert failure.value.source == source


def test_missing_compilers_are_named(monkeypatch):
    monkeypatch.setattr(cuda_module, "nvcc_path", lambda: None)
    monkeypatch.setattr(nvrtc, "find_library", lambda name: None)
    monkeypatch.setattr(nvrtc, "missing_headers", lambda: ["cuda_fp16.h (nvidia-cuda-runtime)"])
    for compiler, advice in (
        ("nvcc", "toolkit"),
        ("nvrtc", r"libnvrtc.so.13.*cuda_fp16.h \(nvidia-cuda-runtime\).*gnn-sparse-backend\[cuda\]"),
    ):
        with pytest.raises(BuildError, match=advice):
            compile_cuda("__global__ void k() {}", "sm_80", "cubin", compiler)


@pytest.mark.parametrize(
    "arguments, quoted",
    [(("90", "ptx", "nvcc"), "'90'"), (("sm_90", "sass", "nvcc"), "'sass'"), (("sm_90", "ptx", "clang"), "'clang'")],
)
def test_bad_arguments_are_quoted(arguments, quoted):
    with pytest.raises(ValueError, match=quoted):
        compile_cuda("", *arguments)


@pytest.mark.skipif(nvcc_path() is None, reason="no nvcc")
def test_our_callback_is_in_place_only_during_a_build():
    source = generate_cuda(exp_third_cuda, "sm_90")
    before = tvm_ffi.get_global_func("tvm_callback_cuda_compile")
    with own_compile_callback("sm_90"):
        assert bytes(tvm_ffi.get_global_func("tvm_callback_cuda_compile")(source)).startswith(b"\x7fELF")
    assert tvm_ffi.get_global_func("tvm_callback_cuda_compile").same_as(before)


def test_cuda_host_target_builds(monkeypatch):
    module = build_jit(exp_third_cuda, cuda_target("sm_80"))
    assert module.names == ("exp_third_cuda",)

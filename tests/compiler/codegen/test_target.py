"""Targets: what is found on this machine, keys, and features hidden from the processor."""

import dataclasses

import pytest

from gnn_sparse_backend.compiler.codegen import Target, cuda_target, host_target
from gnn_sparse_backend.compiler.codegen.cpu.host import _features, feature_differences
from gnn_sparse_backend.system import processor_flags


def test_host_is_this_machine():
    host = host_target()
    assert host.kind == "llvm" and host.cpu and host.triple
    assert host is host_target()
    assert str(host.to_tvm().attrs["mcpu"]) == host.cpu
    flags = processor_flags()
    if flags:
        assert host.vector_bytes == (64 if "avx512f" in flags else 32 if "avx" in flags else host.sve or 16)
        assert host.has_avx512_bf16 == ("avx512_bf16" in flags)


def test_vector_width_follows_the_features():
    target = Target("llvm", "x", "t")
    assert target.vector_bytes == 16
    assert dataclasses.replace(target, features=("avx", "avx2")).vector_bytes == 32
    assert dataclasses.replace(target, features=("avx", "avx512f")).vector_bytes == 64


def test_key_differs_where_the_code_may_differ():
    host = host_target()
    variants = [
        host,
        dataclasses.replace(host, cpu="x86-64"),
        dataclasses.replace(host, features=host.features[1:]),
        dataclasses.replace(host, disabled=("avx512f",)),
        dataclasses.replace(host, enabled=("avx512f",)),
        dataclasses.replace(host, triple="aarch64-linux-gnu"),
        cuda_target("sm_80"),
        cuda_target("sm_90"),
    ]
    assert len({target.key for target in variants}) == len(variants)
    assert dataclasses.replace(host).key == host.key
    assert all("/" not in target.key and " " not in target.key for target in variants)


@pytest.mark.parametrize(
    "flags, hidden, unexpected",
    [
        ({"avx", "avx2"}, ("avx512bf16", "avx512f"), ()),
        ({"avx", "avx2", "avx512f", "avx512_bf16"}, (), ()),
        ({"avx", "avx2", "avx512f", "avx512_bf16", "gfni", "avx512_fp16", "xtopology"}, (), ("avx512fp16", "gfni")),
        ({"avx", "avx2", "avx512f", "avx_vnni"}, ("avx512bf16",), ("avxvnni",)),
        ((), (), ()),
    ],
)
def test_the_operating_system_corrects_what_llvm_assumes(flags, hidden, unexpected):
    assumed = ("avx", "avx2", "avx512bf16", "avx512f", "prfchw")
    assert feature_differences(assumed, frozenset(flags), "x86_64") == (hidden, unexpected)


def test_corrected_features_reach_the_code_generator():
    host = host_target()
    if not host.triple.startswith("x86_64"):
        pytest.skip("the feature names are x86's")
    target = Target("llvm", "skylake-avx512", host.triple, disabled=("avx512cd",), enabled=("avx512bf16",))
    assert [str(flag) for flag in target.to_tvm().attrs["mattr"]] == ["-avx512cd", "+avx512bf16"]
    features = set(_features(target))
    assert "avx512f" in features and "avx512bf16" in features and "avx512cd" not in features


def test_bad_descriptions_are_refused():
    with pytest.raises(ValueError, match="'rocm'"):
        Target("rocm", "x", "t")
    with pytest.raises(ValueError, match="arch"):
        Target("cuda", "x", "t")
    with pytest.raises(ValueError, match="arch"):
        Target("llvm", "x", "t", arch="sm_90")
    with pytest.raises(ValueError, match="'90'"):
        cuda_target("90")


def test_cuda_target_carries_its_host():
    target = cuda_target("sm_90")
    assert target.is_cuda and str(target.to_tvm().attrs["arch"]) == "sm_90"
    assert str(target.to_tvm().host.attrs["mcpu"]) == "generic" and target.triple == host_target().triple
    assert not target.features, "its kernels serve machines with other processors"

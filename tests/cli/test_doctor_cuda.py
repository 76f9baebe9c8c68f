"""``gsb doctor`` on CUDA: what there is, what is missing, and what to do about it."""

from __future__ import annotations

import json

import pytest
import torch

from gnn_sparse_backend.cli import examine_cuda
from gnn_sparse_backend.compiler.codegen.cuda.nvidia import DRIVER, NVRTC, RUNTIME
from tests.acted_machine import BUILTINS, EVERYTHING
from tests.compiler import fake_cuda

INSTALL = "pip install 'gnn-sparse-backend[cuda]'"
PROGRAM = """
import json
import torch
import gnn_sparse_backend as gsb
from gnn_sparse_backend.cli import examine_cuda
from gnn_sparse_backend.runtime import devices

print(json.dumps({finding.name: [finding.state, finding.text] for finding in examine_cuda.examine_cuda()}))
graph = gsb.Graph.from_coo(torch.tensor([0, 1, 1]), torch.tensor([2, 0, 1]), (2, 3))
real = devices.arch_of
devices.arch_of = lambda device: real(torch.device("cuda:0"))
try:
    gsb.spmm(graph, torch.ones(3, 4))
except RuntimeError as error:
    print(type(error).__name__, error)
devices.arch_of = real
print(gsb.spmm(graph, torch.ones(3, 4)).sum().item())
"""


def findings() -> dict[str, tuple[str, str]]:
    return {finding.name: (finding.state, finding.text) for finding in examine_cuda.examine_cuda()}


@pytest.mark.slow
def test_an_old_driver_with_a_gpu(tmp_path):
    """A library that answers as the driver of CUDA 12.4, in a process of its own."""
    said, refused, on_the_cpu = fake_cuda.run(
        PROGRAM, fake_cuda.environment(fake_cuda.make(tmp_path, version=12040, gpus=1))
    )
    found = json.loads(said)
    advice = "update NVIDIA's driver to version 580 or later, which is for CUDA 13"
    assert found["driver"] == ["absent", f"{DRIVER}, for CUDA 12.4: too old for {RUNTIME}; {advice}"]
    assert found["gpu 0"] == ["ok", "Acted GPU, sm_86"] and found["runtime"] == ["ok", f"{RUNTIME}, of CUDA 13.0"]
    state, text = found["kernels"]
    assert state == "absent" and f"driver is for CUDA 12.4, and {RUNTIME} needs one for CUDA 13.0; {advice}" in text
    assert (
        refused.startswith("BuildError")
        and f"driver is for CUDA 12.4, and {RUNTIME} needs one for CUDA 13.0; {advice}" in refused
    )
    assert on_the_cpu == "12.0"


def test_nothing_is_there(acted_machine):
    acted_machine(libraries=(), headers=())
    found = findings()
    assert all(state == "absent" for state, _ in found.values()) and not any(name.startswith("gpu") for name in found)
    for name, words in (
        ("driver", "version 580 or later"),
        ("runtime", INSTALL),
        ("nvrtc", INSTALL),
        ("headers", INSTALL),
        ("nvcc", "not needed beside NVRTC"),
    ):
        assert words in found[name][1], name
    for words in (
        DRIVER,
        RUNTIME,
        NVRTC,
        "cuda_fp16.h (nvidia-cuda-runtime)",
        "crt/host_defines.h (nvidia-cuda-crt)",
        "cuda/std/cstdint (nvidia-cuda-cccl)",
    ):
        assert words in found["kernels"][1]


def test_everything_is_there_but_a_gpu(acted_machine):
    acted_machine()
    found = findings()
    assert found["driver"] == ("ok", f"{DRIVER}, for CUDA 13.0") and found["nvrtc"] == ("ok", f"{NVRTC}, of CUDA 13.0")
    assert found["gpu"] == ("absent", "the driver shows none: cuInit answers with error 100")
    assert found["kernels"] == ("ok", "kernels are compiled and run")


@pytest.mark.parametrize(
    "machine, name, words",
    [
        (dict(driver_says=-34), "driver", "which does not work: cuDriverGetVersion answers with error 34"),
        (
            dict(libraries=tuple(name for name in EVERYTHING if name != BUILTINS)),
            "kernels",
            f"{BUILTINS} (nvidia-cuda-nvrtc) is not found",
        ),
        (
            dict(headers=("cuda_fp16.h", "crt/host_defines.h")),
            "headers",
            "not found: cuda/std/cstdint (nvidia-cuda-cccl): pip install",
        ),
    ],
)
def test_a_part_is_missing(machine, name, words, acted_machine):
    acted_machine(**machine)
    state, text = findings()[name]
    assert state == "absent" and words in text


@pytest.mark.parametrize(
    "cuda, hip, sees, expected",
    [
        (None, None, False, ("absent", "is built without CUDA: it has no tensors on a GPU")),
        ("12.6", None, True, ("ok", "is built for CUDA 12.6, and sees 2 GPU(s)")),
        ("13.0", None, False, ("absent", "is built for CUDA 13.0, and sees no GPU")),
        (None, "6.2", True, ("absent", "is for ROCm 6.2: there are no kernels for its GPUs")),
    ],
)
def test_the_cuda_of_pytorch(cuda, hip, sees, expected, acted_machine, monkeypatch):
    acted_machine()
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: sees)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert findings()["torch"] == (expected[0], f"PyTorch {torch.__version__} {expected[1]}")

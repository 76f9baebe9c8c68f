"""Code for Arm's processors, generated here and read: which vectors and instructions it uses, and that it uses none of
x86. What it computes is checked under an emulator (`test_emulated`).
"""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend import system
from gnn_sparse_backend.compiler.codegen import generate_assembly
from gnn_sparse_backend.compiler.codegen.build import as_module, compiled
from gnn_sparse_backend.compiler.codegen.object_files import COFF, ELF, MACH_O, Machine, machine_of
from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.compiler.language.types import ACCUMULATOR
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.primitives.cpu.memory_tiles import memory_tiles, tile_products
from gnn_sparse_backend.compiler.schedules.primitives.cpu.pairs import interleave, transpose_pairs
from gnn_sparse_backend.ops.grouped import schedules_cpu as grouped
from gnn_sparse_backend.ops.grouped.programs.grouped import GroupedSpec, grouped_product
from gnn_sparse_backend.ops.masked.schedules_cpu import spec_of
from gnn_sparse_backend.ops.relational import schedules_cpu as rgms
from gnn_sparse_backend.ops.relational.programs.rgms import RgmsSpec
from gnn_sparse_backend.planner import cost
from gnn_sparse_backend.planner.cpu.tiling import product_rows
from gnn_sparse_backend.planner.database import PlanDatabase, database
from gnn_sparse_backend.tuning.pack import _recorded
from tests.compiler.codegen.kernels import double
from tests.compiler.schedules.test_amx_tiles import product
from tests.platforms.targets import ARM, OTHERS, complete

WITH_BF16 = "neoverse-v1", "neoverse-v2"
SCHEDULE = cpu_schedule(interleave("pairs"), transpose_pairs("turned"), memory_tiles(("C",), "bfmmla"))


def grouped_code(cpu: str, dtype: str) -> str:
    target = complete(ARM[cpu])
    pairs = grouped.takes_bf16_pairs(64, dtype, target)
    spec = GroupedSpec(64, 64, product_rows(target), 0, (True, True), dtype, bf16_pairs=pairs)
    return generate_assembly(stage3(*grouped.scheduled(grouped_product, spec, True, target)), target)


def inner_loops(text: str) -> list[list[str]]:
    """Instructions between a label and a jump back to it."""
    lines = [line.split("//")[0].rstrip() for line in text.splitlines()]
    at = {line.split(":")[0]: n for n, line in enumerate(lines) if re.match(r"\.?L\w+:", line)}
    jumps = [(n, re.search(r"\sb\.\w+\s+(\.?L\w+)$", line)) for n, line in enumerate(lines)]
    loops = [lines[at[jump[1]] + 1 : n] for n, jump in jumps if jump and at.get(jump[1], n) < n]
    return [loop for loop in loops if not any(re.match(r"\.?L\w+:", line) for line in loop)]


@pytest.mark.short(4)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("cpu", ARM)
def test_sums_of_a_product_stay_in_registers(cpu, dtype):
    """Four rows by four vectors of 128 bits of NEON, or 256 of SVE, and each vector of the matrix is loaded once."""
    word = "bfdot" if dtype == "bfloat16" and cpu in WITH_BF16 else "fmla"
    register = "z" if cpu == "neoverse-v1" else "v"
    loop = max(inner_loops(grouped_code(cpu, dtype)), key=lambda loop: sum(word in line for line in loop))
    products = [line for line in loop if re.search(rf"\t{word}(\.4s)?\t", line)]
    assert len(products) % 16 == 0 and products, loop
    assert all(re.search(rf"\t{register}\d", line) for line in products if "." in line.split("\t")[2])
    assert not any("[sp" in line for line in loop), "nothing is spilled"
    assert not any(other in line for other in {"fmla", "bfdot"} - {word} for line in loop)


@pytest.mark.parametrize("cpu", ARM)
def test_vectors_and_registers(cpu):
    target = complete(ARM[cpu])
    assert target.vector_bytes == (32 if cpu == "neoverse-v1" else 16) and target.registers == 32 and target.is_arm
    assert target.has_arm_bf16 == (cpu in WITH_BF16) and not target.has_amx_bf16
    assert spec_of(32, 64, 64, "bfloat16", target=target).tiles == (cpu in WITH_BF16)
    with pytest.raises(ValueError, match="multiple of 16"):
        dataclasses.replace(target, sve=24)
    assert dataclasses.replace(target, sve=64).key != target.key


@pytest.mark.parametrize("cpu", WITH_BF16)
def test_matrices_by_bfmmla(cpu):
    """Each four terms of 8 x 8 sums are 16 instructions, none of which goes through memory."""
    target = complete(ARM[cpu])
    loops = inner_loops(generate_assembly(stage3(product(), SCHEDULE), target))
    products = [loop for loop in loops if any("bfmmla" in line for line in loop)]
    assert len(products) == 16, "squares of 8 x 8 in 32 x 32"
    for loop in products:
        assert sum("bfmmla" in line for line in loop) == 16 and not any("[sp" in line for line in loop)
    assert tile_products(("C",), target) == memory_tiles(("C",), "bfmmla")


def test_no_operator_multiplies_int8():
    """For which i8mm would be: tensor expressions alone take int8, and their sums have 64 bits."""
    graph, x = gsb.Graph.from_edge_index(torch.tensor([[0], [1]]), size=(2, 2)), torch.ones(2, 8, dtype=torch.int8)
    for call in (lambda: gsb.spmm(graph, x), lambda: gsb.segment_mm(x, torch.ones(1, 8, 8).char(), torch.tensor([2]))):
        with pytest.raises(TypeError, match=r"must be float32, float64, bfloat16 or float16, got torch.int8"):
            call()
    assert ACCUMULATOR["int8"] == "int64"


# What can be reached


def forward() -> list[torch.Tensor]:
    """Operators whose kernels have instructions of their own on x86."""
    generator = torch.Generator().manual_seed(0)
    graph = gsb.Graph.from_edge_index(torch.randint(100, (2, 600), generator=generator), size=(100, 100))
    scores = torch.rand(600, 2, generator=generator, requires_grad=True)
    x, matrices = torch.rand(100, 64, generator=generator), torch.rand(2, 64, 64, generator=generator)
    keys = torch.rand(1, 2, 64, 32, generator=generator).bfloat16()
    x, matrices = (each.bfloat16().requires_grad_() for each in (x, matrices))
    gsb.sparse_attention(keys, keys, keys, gsb.masks.causal(64, block=32))
    return [gsb.spmm(graph, x), gsb.segment_mm(x, matrices, torch.tensor([60, 40])), gsb.edge_softmax(graph, scores)]


def forward_and_backward() -> None:
    for result in forward():
        result.sum().backward()


@pytest.mark.parametrize(
    "cpu, work",
    [
        ("neoverse-v2", forward),
        *(pytest.param(cpu, forward_and_backward, marks=pytest.mark.slow) for cpu in ARM),
    ],
)
def test_no_kernel_uses_what_x86_alone_has(cpu, work):
    """Every kernel that operators ask for on such a processor compiles, and none of them calls a function of x86."""
    target = complete(ARM[cpu])
    asked = _recorded(work, target, (2,))
    assert len(asked) >= 4
    met: set[str] = set()
    for each in asked.values():
        build = each.build
        function = stage3(build.program, build.schedule) if hasattr(build, "program") else build.function()
        text = compiled(as_module(function), target).inspect_source("ll")
        met |= set(re.findall(r"@(llvm\.[\w.]+|gsb_amx\w*)", text))
    assert met and not [name for name in met if "x86" in name or "amx" in name]
    assert any(name.endswith("bfmmla") for name in met) == target.has_arm_bf16


def test_rows_are_fetched_ahead_by_an_instruction_of_arm():
    target = complete(ARM["neoverse-n1"])
    spec = RgmsSpec(64, 64, 1, 16, 0, 0, 0, True, "float32")
    text = generate_assembly(stage3(*rgms.scheduled("gather", spec, True, 16, target)), target)
    assert "\tprfm\tpldl1keep" in text and "prefetch" not in text.replace("gsb_prefetch", "")


# Other systems


@pytest.mark.parametrize("name", OTHERS)
def test_objects_for_other_systems(name, tmp_path):
    target = complete(OTHERS[name])
    path = tmp_path / "double.o"
    compiled(as_module(double), target).write_to_file(str(path))
    format_ = COFF if target.system == "windows" else MACH_O
    assert machine_of(path.read_bytes()) == Machine(format_, target.architecture)


def test_objects_for_linux(tmp_path):
    path = tmp_path / "double.o"
    compiled(as_module(double), complete(ARM["neoverse-n1"])).write_to_file(str(path))
    assert machine_of(path.read_bytes()) == Machine(ELF, "aarch64")
    assert machine_of(b"neither" * 9) is None and machine_of(b"") is None


@pytest.mark.parametrize("name", ["a Mac", "Windows"])
def test_an_operator_compiles_for_other_systems(name, tmp_path):
    """A kernel with loops on several threads, checks of arguments and exponentials."""
    target = complete(OTHERS[name])
    asked = _recorded(softmax, target, (2,))
    for at, each in enumerate(asked.values()):
        path = tmp_path / f"{at}.o"
        compiled(as_module(stage3(each.build.program, each.build.schedule)), target).write_to_file(str(path))
        assert machine_of(path.read_bytes()).architecture == target.architecture


def softmax() -> None:
    graph = gsb.Graph.from_edge_index(torch.randint(50, (2, 300)), size=(50, 50))
    gsb.edge_softmax(graph, torch.rand(300, 2))


# The planner


def test_constants_for_arm_are_called_predictions(monkeypatch, tmp_path):
    graph = gsb.Graph.from_edge_index(torch.randint(50, (2, 300)), size=(50, 50))
    with database.using(PlanDatabase(tmp_path / "plans.json")):
        monkeypatch.setattr(system.platform, "machine", lambda: "x86_64")
        assert "its constants are times of an AMD" in str(gsb.explain(graph))
        monkeypatch.setattr(system.platform, "machine", lambda: "aarch64")
        said = " ".join(str(gsb.explain(graph)).split())
        assert "its constants are predictions" in said and "no aarch64 processor was measured" in said
        database().set_units(cost.DEFAULT_UNITS)
        assert "its constants" not in str(gsb.explain(graph)), "they are this machine's own now"

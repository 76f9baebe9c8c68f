"""The code of every kernel that operators launch on a GPU by default: it is generated, and nvcc takes it, without a GPU.

Operators run through the very dispatch, forward and backward, on a stand-in that is told what to build (`recorded_gpu`).
"""
from __future__ import annotations

import re

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.compiler.target import compile_cuda
from gnn_sparse_backend.compiler.target.cuda import nvcc_path
from tests.compiler.cuda_batches import joined, machine_code, sources
from tests.ops.operators import OPERATORS, RGMS, some_graph, step

ARCHITECTURES = ("sm_80", "sm_90")
TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
EVERY = (*OPERATORS, *RGMS)
WIDE = ("spmm", "spmm_weighted_mean", "gspmm_mul_max", "gspmm_last_max", "gsddmm_div", "sddmm", "segment_reduce_max")
# (rows, columns, edges), sizes, operators
CASES = {
    # vectors; products that fit Tensor Cores
    "whole vectors": ((9, 12, 40), {"heads": 4, "width": 32, "out": 64}, EVERY),
    # edges in stretches, or shared out to lanes; no vectors, and less than a lane for each feature
    "long rows, odd widths": ((8, 9, 400), {"heads": 3, "width": 5, "out": 4}, EVERY),
    # more features than a team accumulates at once
    "several passes": ((9, 12, 40), {"heads": 1, "width": 1100, "out": 4}, WIDE),
}
INSTRUCTIONS = {
    "float32": "m16n8k8.row.col.f32.tf32.tf32.f32", "float16": "m16n8k16.row.col.f32.f16.f16.f32",
    "bfloat16": "m16n8k16.row.col.f32.bf16.bf16.f32",
}


def some_relations(rows: int, columns: int, edges: int) -> gsb.RelGraph:
    """Several edges for each pair of a row and a relation."""
    generator = torch.Generator().manual_seed(0)
    source, destination, relation = (torch.randint(0, n, (5 * edges,), generator=generator) for n in (columns, rows - 1, 3))
    return gsb.RelGraph.from_triples(source, destination, relation, (rows, columns), 3)


def functions_of(recorded_gpu, case: str, dtype: str) -> dict:
    """name -> (stage III function, schedule, operators that launch it), in an order that the type does not change."""
    shape, sizes, operators = CASES[case]
    found = {}
    for name in operators:
        graph = some_relations(*shape) if name in RGMS else some_graph(*shape)
        recorded_gpu.clear()
        step(name, graph, {**OPERATORS, **RGMS}[name].operands(graph, TYPES[dtype], **sizes))
        assert recorded_gpu
        for key, (program, schedule) in recorded_gpu.items():
            number = list(found).index(key) if key in found else len(found)
            found.setdefault(key, (f"{program.name}_{number}", program, schedule, []))[3].append(name)
    return {name: (stage3(program, schedule), schedule, users) for name, program, schedule, users in found.values()}


# of both half types programs and schedules differ in the type alone
@pytest.mark.parametrize("case, dtype", [
    *(("whole vectors", dtype) for dtype in TYPES), ("long rows, odd widths", "float32"), ("several passes", "float32"),
])  # fmt: skip
def test_every_kernel_of_the_default_plans(case, dtype, recorded_gpu, matmul_precision):
    """TVM makes code of all of them. Of half of them nvcc makes code for one architecture, of the others for another, which
    takes turns from type to type; nothing is spilled, and all arrays but shared ones are registers. What is promised to the
    Tensor Cores goes to them.
    """
    found = functions_of(recorded_gpu, case, dtype)
    programs = {name: name.rpartition("_")[0] for name in found}
    assert {"aggregate", "edge_map"} <= set(programs.values())
    if CASES[case][2] is EVERY:
        assert {"edge_softmax", "edge_softmax_gradient", "attention", "attention_gradient", "sums"} <= set(programs.values())
    texts = sources({name: function for name, (function, _, _) in found.items()})
    for name, (_, schedule, users) in found.items():
        kernel = texts[name].split('extern "C"')[-1]
        assert "blockIdx.x" in kernel and "atomic" not in kernel, (name, users)
        assert bool(schedule.shared) == ("__shared__" in kernel), (name, users)
        assert bool(schedule.mma) == (f"mma.sync.aligned.{INSTRUCTIONS[dtype]}" in kernel), (name, users)
    promised = {programs[name]: name for name, (_, schedule, _) in found.items() if schedule.mma}
    if case == "whole vectors":
        assert set(promised) == {"grouped_tiles", "grouped_sum_tiles", "rgms_tiles", "rgms_sum_tiles"}
    if nvcc_path() is None:
        return
    if promised:
        ptx = compile_cuda(joined({name: texts[name] for name in promised.values()}), "sm_80", "ptx").code.decode()
        entries = dict(re.findall(r"\.entry (\w+)_kernel\((.*?)(?=\.entry|\Z)", ptx, re.DOTALL))
        assert entries.keys() == set(promised.values())
        assert all(f"mma.sync.aligned.{INSTRUCTIONS[dtype]}" in text for text in entries.values())
    for turn, arch in enumerate(ARCHITECTURES):
        taken = {name: text for number, (name, text) in enumerate(texts.items()) if (number + list(TYPES).index(dtype)) % 2 == turn}
        for name, kernel in machine_code(taken, arch).items():
            said = f"{arch}, {found[name][2]}: {kernel}"
            assert kernel.spill_stores == kernel.spill_loads == 0, said
            # ptxas may have use of a stack by itself; arrays that are none of registers show in PTX
            assert not kernel.stack or b".local" not in compile_cuda(texts[name], arch, "ptx").code, said
            assert kernel.registers <= (255 if found[name][1].mma else 128), said  # four blocks of 128 threads on a multiprocessor
            assert kernel.shared <= (16 << 10 if found[name][1].shared else 0), said

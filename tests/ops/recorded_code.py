"""The code of kernels that were recorded (`recorded_gpu`): all of them in one source, which TVM and nvcc are started
for once.
"""

from __future__ import annotations

from pathlib import Path

import tvm_ffi
from tvm import s_tir

from gnn_sparse_backend.compiler.codegen.cuda.machine_code import nvcc_path
from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.compiler.schedules.primitives.cuda.mma import multiply_fragments
from gnn_sparse_backend.compiler.schedules.primitives.shared.local_memory import in_shared_memory
from gnn_sparse_backend.compiler.schedules.sequence import Schedule
from tests.compiler.cuda_batches import assembled, ptx_of, sources

ARCHITECTURES = ("sm_80", "sm_90")
INSTRUCTIONS = {
    "float32": "m16n8k8.row.col.f32.tf32.tf32.f32",
    "float16": "m16n8k16.row.col.f32.f16.f16.f32",
    "bfloat16": "m16n8k16.row.col.f32.bf16.bf16.f32",
}


def scopes(function) -> set[str]:
    """Where the buffers are that a stage III function has beside its parameters."""
    found: set[str] = set()
    tvm_ffi.structural_walk(
        function.body,
        (s_tir.SBlock, lambda block: found.update(buffer.ty.storage_scope for buffer in block.alloc_buffers)),
        order="post",
    )
    return found


def promises(schedule: Schedule) -> tuple[bool, bool]:
    """Whether a schedule puts products on the Tensor Cores, and buffers into shared memory."""
    names = {step.name for step in schedule}
    return multiply_fragments.__name__ in names, in_shared_memory.__name__ in names


class Kernels:
    """Kernels without repetition, by name: their programs, schedules, and who launched each."""

    def __init__(self) -> None:
        self._names: dict[tuple, str] = {}
        self._found: dict[str, tuple] = {}

    def add(self, user: str, recorded: dict) -> None:
        """What `recorded_gpu` was told while ``user`` ran: something at least."""
        assert recorded, user
        for key, (program, schedule) in recorded.items():
            name = self._names.setdefault(key, f"{program.name}_{len(self._names)}")
            self._found.setdefault(name, (program, schedule, []))[2].append(user)

    def programs(self, promised: bool = False) -> set[str]:
        """Names of the programs; of those alone whose schedules promise products to the Tensor Cores."""
        return {program.name for program, schedule, _ in self._found.values() if promises(schedule)[0] or not promised}

    def check(self, dtype: str, arch: str, folder: Path, registers: int = 128) -> None:
        """TVM makes code of all kernels, and nvcc takes it for this architecture. Machine code is made for it and for
        those that are newer: nothing is spilled, and all arrays but shared ones are registers. What is promised to the
        Tensor Cores goes to them. No kernel asks for memory beside its operands, which would be the driver's and not
        PyTorch's.

        registers: of a thread at most, but of those that multiply on Tensor Cores: with 128 there is room for four
        blocks of 128 threads on a multiprocessor.
        """
        functions = {name: stage3(program, schedule) for name, (program, schedule, _) in self._found.items()}
        for name, function in functions.items():
            assert scopes(function) <= {"local", "shared"}, (name, scopes(function), self._found[name][2])
        texts = sources(functions)
        mma = f"mma.sync.aligned.{INSTRUCTIONS[dtype]}"
        for name, (_, schedule, users) in self._found.items():
            kernel = texts[name].split('extern "C"')[-1]
            assert "blockIdx.x" in kernel and "atomic" not in kernel, (name, users)
            assert promises(schedule) == (mma in kernel, "__shared__" in kernel), (name, users)
        if nvcc_path() is None:
            return
        ptx, entries = ptx_of(texts, arch)
        for newer in ARCHITECTURES[ARCHITECTURES.index(arch) :]:
            for name, kernel in assembled(ptx, texts, newer, folder).items():
                _, schedule, users = self._found[name]
                on_tensor_cores, shared = promises(schedule)
                said = f"{newer}, {users}: {kernel}"
                assert on_tensor_cores == (mma in entries[name]), said
                assert kernel.spill_stores == kernel.spill_loads == 0, said
                # ptxas may have use of a stack by itself; arrays that are none of registers show in PTX
                assert not kernel.stack or ".local" not in entries[name], said
                assert kernel.registers <= (255 if on_tensor_cores else registers), said
                assert kernel.shared <= (16 << 10 if shared else 0), said


__all__ = ["ARCHITECTURES", "Kernels"]

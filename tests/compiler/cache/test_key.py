"""A key changes with everything that decides the machine code, and with nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gnn_sparse_backend.compiler import compile
from gnn_sparse_backend.compiler.cache import KernelKey
from gnn_sparse_backend.compiler.codegen import cuda_target, host_target
from gnn_sparse_backend.compiler.library.products import csr_spmm
from gnn_sparse_backend.compiler.packs.toolchain import source_hash, toolchain
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.cuda import gpu_schedule
from gnn_sparse_backend.compiler.schedules.primitives.cpu.prefetch import prefetch_gather
from gnn_sparse_backend.compiler.schedules.teams import team_schedule

BASE = {"program": "p", "plan": "q", "target": "llvm-x", "symbol": "main"}


@pytest.mark.parametrize("part", BASE)
def test_every_part_changes_the_key(part):
    assert KernelKey(**{**BASE, part: "other"}).digest != KernelKey(**BASE).digest


def test_every_schedule_and_target_of_a_program_has_a_key(monkeypatch):
    """As `compile_program` asks for kernels: with all parameters of the schedule, and whether its loops are serial."""

    def digest(program, plan, target, build, *, name, symbol, written):
        return KernelKey(program, plan, getattr(target, "key", target), symbol).digest

    monkeypatch.setattr(compile, "get_kernel", digest)
    cpu, gpus = host_target(), [cuda_target(arch) for arch in ("sm_80", "sm_90")]
    ways = [
        (cpu_schedule(), cpu),
        (cpu_schedule(parallel=False), cpu),
        *((cpu_schedule(ahead=(prefetch_gather("spmm", "B", 0, 4, distance),)), cpu) for distance in (8, 16)),
        *(
            (schedule, gpu)
            for schedule in (gpu_schedule(), team_schedule(32), team_schedule(32, teams=2))
            for gpu in gpus
        ),
    ]
    asked = [(width, *way, False) for width in (4, 8) for way in ways] + [(4, team_schedule(32), cpu, True)]
    keys = [compile.compile_program(csr_spmm(width), *way) for width, *way in asked]
    assert len(set(keys)) == len(asked)


@pytest.mark.parametrize("part", ["tvm", "tvm_ffi", "gnn_sparse_backend", "compiler_source", "platform"])
def test_every_part_of_the_toolchain_changes_the_key(part):
    other = {**toolchain(), part: "0.0.0"}
    assert part in toolchain()
    assert KernelKey(**BASE, toolchain=other).digest != KernelKey(**BASE).digest


def test_keys_are_values():
    other = KernelKey(**BASE, toolchain={**toolchain(), "tvm": "0.1"})
    assert {KernelKey(**BASE), KernelKey(**BASE), other} == {KernelKey(**BASE), other}
    assert KernelKey(**BASE) != other


def test_text_cannot_move_between_parts():
    assert KernelKey("ab", "c", "t").digest != KernelKey("a", "bc", "t").digest
    assert KernelKey('a", "b', "c", "t").digest != KernelKey("a", 'b", "c', "t").digest
    assert KernelKey("a\n", "b", "t").digest != KernelKey("a", "\nb", "t").digest


def test_key_is_the_same_in_another_process():
    code = (
        "from gnn_sparse_backend.compiler.cache import KernelKey;"
        "print(KernelKey('prögram', 'plan', 'llvm-x', toolchain={'b': '1', 'a': '2'}).digest)"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == KernelKey("prögram", "plan", "llvm-x", toolchain={"a": "2", "b": "1"}).digest
    assert len(other.stdout.strip()) == 64


def test_source_hash_sees_edits_renames_and_new_files(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "sub" / "b.py").write_text("y = 1\n")
    seen = {source_hash(tmp_path)}

    (tmp_path / "a.py").write_text("x = 2\n")
    seen.add(source_hash(tmp_path))
    (tmp_path / "sub" / "b.py").rename(tmp_path / "sub" / "c.py")
    seen.add(source_hash(tmp_path))
    (tmp_path / "d.py").write_text("")
    seen.add(source_hash(tmp_path))
    assert len(seen) == 4

    (tmp_path / "notes.txt").write_text("no source")
    assert source_hash(tmp_path) in seen


@pytest.mark.parametrize(
    "wrong, error, text",
    [
        ({"program": ""}, ValueError, "program of a kernel key is empty"),
        ({"target": ""}, ValueError, "target of a kernel key is empty"),
        ({"plan": None}, TypeError, "plan of a kernel key must be text, got NoneType"),
        ({"program": b"p"}, TypeError, "got bytes: b'p'"),
        ({"target": "llvm -mcpu=native"}, ValueError, "another CPU"),
        ({"target": '{"kind": "llvm", "mcpu": "native"}'}, ValueError, "another CPU"),
    ],
)
def test_bad_parts_are_refused(wrong, error, text):
    with pytest.raises(error, match=text):
        KernelKey(**{**BASE, **wrong})

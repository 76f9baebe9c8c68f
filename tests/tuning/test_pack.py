"""gsb.pack and gsb.load_pack: kernels of a run in another process, without TVM and without a folder to write into."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend import cli
from gnn_sparse_backend.compiler.codegen import BuildError, compiling_for, host_target, target_of
from gnn_sparse_backend.compiler.codegen.linker import linker_for
from gnn_sparse_backend.compiler.packs import Pack, PackError
from gnn_sparse_backend.compiler.packs.file import FORMAT, read_pack, write_pack
from gnn_sparse_backend.compiler.packs.in_force import Packs
from gnn_sparse_backend.compiler.packs.toolchain import calling_versions
from gnn_sparse_backend.runtime import threads as threads_of_work

WORK = """
import torch
import gnn_sparse_backend as gsb

def work(width=12):
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(200, (2, 3000), generator=generator)
    graph = gsb.Graph.from_edge_index(index, size=(200, 200))
    x = torch.rand(200, width, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(3000, generator=generator, dtype=torch.float64, requires_grad=True)
    y = gsb.spmm(graph, x, weight)
    given = torch.autograd.grad(y.square().sum(), (x, weight))
    dense = torch.zeros(200, 200, dtype=torch.float64).index_put((index[1], index[0]), weight, accumulate=True)
    wanted = dense @ x
    torch.testing.assert_close(y, wanted)
    torch.testing.assert_close(given, torch.autograd.grad(wanted.square().sum(), (x, weight)))
"""
ELSEWHERE = """
import os, sys, threading
from importlib.machinery import PathFinder
found = PathFinder.find_spec
PathFinder.find_spec = staticmethod(lambda name, *more: None if name.partition(".")[0] == "tvm" else found(name, *more))
"""
"""A process in which TVM is not installed."""
COUNTED = """
from gnn_sparse_backend.compiler.cache import stats
print(stats().pack_loads, stats().compiles, stats().disk_loads, "tvm" in sys.modules)
"""


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """A pack of the work for this processor and two levels, made where its kernels are in memory already."""
    names: dict = {}
    exec(WORK, names)
    names["work"]()
    targets = ["native", "x86-64-v3", "x86-64-v4"] if host_target().triple.startswith("x86_64") else ["native"]
    return gsb.pack(names["work"], tmp_path_factory.mktemp("pack") / "kernels.gsb", targets, threads=(1, 2, 3))


def elsewhere(code: str, folder, **environment: str) -> subprocess.CompletedProcess:
    """Run code where TVM is not installed, by a user without a home, who cannot write into the folder of kernels."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GSB_", "XDG_"))}
    kept |= {"HOME": "/proc/nowhere", **environment}  # no user, root neither, makes a folder there
    command = [sys.executable, "-W", "error::gnn_sparse_backend.compiler.cache.errors.KernelCacheWarning", "-c"]
    return subprocess.run([*command, ELSEWHERE + code], env=kept, capture_output=True, text=True, cwd=folder)


def counts(done: subprocess.CompletedProcess) -> tuple[int, list[str]]:
    assert not done.returncode, done.stderr
    loaded, *others = done.stdout.split()
    return int(loaded), others


def test_a_process_without_tvm_runs_from_a_pack(packed, tmp_path):
    (tmp_path / "file").touch()
    load = f"{WORK}\ngsb.load_pack({str(packed.path)!r}, {packed.sha256!r})\nwork()\n{COUNTED}"
    below = str(tmp_path / "file" / "kernels")
    one, others = counts(elsewhere(load, tmp_path, OMP_NUM_THREADS="1", GSB_CACHE_DIR=below))
    assert one >= 2 and others == ["0", "0", "False"]
    told = "print(gsb.status(), file=sys.stderr)"
    code = f"{WORK}\ntorch.set_num_threads(7)\nwork()\n{COUNTED}\n{told}"
    several, others = counts(done := elsewhere(code, tmp_path, GSB_PACK=str(packed.path)))
    assert several >= 2 and others == ["0", "0", "False"]
    assert f"pack {packed.path}: " in done.stderr and f" of {len(packed.kernels)} kernels taken" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.slow
def test_threads_and_a_fork_share_a_pack(packed, tmp_path):
    code = f"""{WORK}
gsb.load_pack({str(packed.path)!r})
wrong = []
def guarded():
    try:
        work()
    except BaseException as error:
        wrong.append(error)
threads = [threading.Thread(target=guarded) for _ in range(4)]
for each in threads: each.start()
for each in threads: each.join()
child = os.fork()
if not child:
    work(12)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0 and not wrong, wrong
{COUNTED}"""
    assert counts(elsewhere(code, tmp_path))[1] == ["0", "0", "False"]


@pytest.mark.slow
def test_a_lower_level_runs_here(packed, tmp_path):
    if "avx2" not in host_target().features:
        pytest.skip("no processor of x86-64-v3")
    code = f"{WORK}\nwork()\n{COUNTED}"
    done = elsewhere(code, tmp_path, GSB_PACK=str(packed.path), GSB_TARGET="x86-64-v3")
    assert counts(done)[1] == ["0", "0", "False"]


def test_every_target_has_its_own_kernels(packed):
    names = {t.name: sorted(k.name for k in packed.kernels if k.target == t.key) for t in packed.targets}
    assert len({t.key for t in packed.targets}) == len(names) and all(
        each == names["native"] for each in names.values()
    )
    sums = {k.file.partition("/")[0]: set() for k in packed.kernels}
    for kernel in packed.kernels:
        if kernel.name == "aggregate":
            sums[kernel.file.partition("/")[0]].add(kernel.sha256)
    assert sums["native"]
    if "x86-64-v3" in sums:  # vectors of another length are other code
        assert sums["x86-64-v3"] and sums["x86-64-v4"] and not sums["x86-64-v3"] & sums["x86-64-v4"]


def test_several_threads_are_nearer_to_several_than_to_one(monkeypatch):
    found = Packs()
    assert found.nearest_threads(5) == 5
    for counts in ((1, 8), (16,)):
        found._loaded = (*found.loaded, Pack(Path(), "", {}, (), (), {"threads": counts}, b""))
    assert [found.nearest_threads(threads) for threads in (1, 2, 8, 11, 64)] == [1, 8, 8, 8, 16]
    monkeypatch.setattr(threads_of_work, "packs", found)
    assert threads_of_work.planned_threads() == torch.get_num_threads()  # where TVM is installed
    monkeypatch.setattr(threads_of_work, "can_compile", lambda: False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 11)
    assert threads_of_work.planned_threads() == 8


def test_packing_leaves_the_process_as_it_was(packed):
    assert host_target() == target_of("native")
    with compiling_for(target_of("x86-64-v2")):
        assert host_target().vector_bytes == 16
    assert host_target() == target_of("native")


def test_a_matrix_that_was_multiplied_before_is_packed_each_time(tmp_path):
    graph = gsb.Graph.from_edge_index(torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]), size=(4, 4))
    parts, values, x = gsb.formats.decompose(graph, ["bsr(2)"]), torch.ones(4), torch.ones(4, 40)
    made = [gsb.pack(lambda: gsb.composed_spmm(parts, values, x), tmp_path / "kernels.gsb") for _ in range(2)]
    assert made[0].sha256 == made[1].sha256
    assert "composed_spmm" in [kernel.name for kernel in made[0].kernels]


@pytest.mark.slow
def test_a_kernel_that_is_missing_is_named(packed, tmp_path):
    done = elsewhere(f"{WORK}\nwork(20)", tmp_path, GSB_PACK=str(packed.path))
    for words in (
        "MissingKernelError",
        "kernel 'aggregate'",
        "'float64'",
        "`gsb pack`",
        "pip install apache-tvm",
        str(packed.path),
    ):
        assert words in done.stderr
    done = elsewhere(f"{WORK}\nwork()", tmp_path)
    assert "no pack of kernels is loaded" in done.stderr


def changed(packed, folder, how):
    data = bytearray(packed.path.read_bytes())
    path = folder / "changed.gsb"
    path.write_bytes(how(data))
    return path


def flipped(data):
    data[len(data) // 2] ^= 1
    return data


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (flipped, "was damaged or changed after it was made: copy it again"),
        (lambda data: data[:-1], "is cut short"),
        (lambda data: b"", "is no pack of kernels"),
        (lambda data: b"hello" * 100, "is no pack of kernels"),
    ],
)
def test_a_file_that_is_not_as_it_was_made_is_refused(packed, tmp_path, how, words):
    with pytest.raises(PackError, match=words):
        gsb.load_pack(changed(packed, tmp_path, how))


def test_other_packs_are_refused(packed, tmp_path, monkeypatch):
    with pytest.raises(PackError, match="cannot be read"):
        gsb.load_pack(tmp_path / "none.gsb")
    with pytest.raises(PackError, match="another pack than was asked for"):
        gsb.load_pack(packed.path, sha256="0" * 64)
    with pytest.raises(PackError, match=r"made by other versions \(gnn_sparse_backend .*, here 99"):
        read_pack(packed.path, {**calling_versions(), "gnn_sparse_backend": "99"})
    monkeypatch.setattr("gnn_sparse_backend.compiler.packs.file.FORMAT", FORMAT + 1)
    with pytest.raises(PackError, match=f"has format {FORMAT}, and this version reads format {FORMAT + 1}"):
        read_pack(packed.path, calling_versions())


def test_a_pack_for_other_processors_is_refused(packed, tmp_path):
    libraries = {kernel: packed.read(kernel) for kernel in packed.kernels}
    there = [type(each)(each.name, each.key, "riscv64", (), each.fields) for each in packed.targets]
    write_pack(tmp_path / "there.gsb", packed.made_by, there, libraries, {})
    with pytest.raises(PackError, match="has no kernels that run on this processor .*an riscv64 processor"):
        gsb.load_pack(tmp_path / "there.gsb")


def test_equal_kernels_are_equal_bytes(packed, tmp_path):
    libraries = {kernel: packed.read(kernel) for kernel in packed.kernels}
    again = write_pack(tmp_path / "again.gsb", packed.made_by, packed.targets, libraries, packed.settings)
    assert again.path.read_bytes() == packed.path.read_bytes() and again.sha256 == packed.sha256
    assert zipfile.ZipFile(again.path).testzip() is None


def test_what_cannot_be_packed_is_refused(tmp_path):
    with pytest.raises(TypeError, match="work must be a function without arguments, got int"):
        gsb.pack(3, tmp_path / "k.gsb")
    with pytest.raises(ValueError, match="unknown target 'x86-64-v9': choose from native"):
        gsb.pack(print, tmp_path / "k.gsb", ["x86-64-v9"])
    with pytest.raises(ValueError, match="threads must be numbers"):
        gsb.pack(print, tmp_path / "k.gsb", threads=(0,))
    with pytest.raises(PackError, match="the work used no kernel"):
        gsb.pack(lambda: None, tmp_path / "k.gsb")
    if linker_for(other := target_of("aarch64")) is None and "x86_64" in host_target().triple:
        assert other.vector_bytes == 16
        with pytest.raises(BuildError, match="binutils-aarch64-linux-gnu.*ziglang"):
            gsb.pack(lambda: None, tmp_path / "k.gsb", ["aarch64"])
    assert not list(tmp_path.iterdir())


def test_the_command_packs_a_script_and_a_function(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "packed_work.py").write_text(
        WORK + "\nif __name__ == '__main__':\n    import sys\n    work(int(sys.argv[1]))\n"
    )
    assert cli.main(["pack", "packed_work.py", "-o", "script.gsb", "--threads", "2", "--args", "12"]) == 0
    assert cli.main(["pack", "packed_work:work", "-o", "function.gsb", "--threads", "2"]) == 0
    script, function = (read_pack(tmp_path / name, calling_versions()) for name in ("script.gsb", "function.gsb"))
    assert script.sha256 == function.sha256 and script.sha256 in capsys.readouterr().out
    for wrong, words in (("none.py", "no script none.py"), ("packed_work:none", "no function 'none'")):
        assert cli.main(["pack", wrong]) == 1
        assert words in capsys.readouterr().err

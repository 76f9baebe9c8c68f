"""What the command line answers at once: typing mistakes, versions, help, what is kept here; within 80 columns."""

import subprocess
import sys

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend import cli
from gnn_sparse_backend.cli.described import described

_HEAVY = {"numpy", "rich", "scipy", "torch", "tvm", "tvm_ffi"}


@pytest.mark.parametrize(
    "arguments, meant",
    [
        (["docter"], "did you mean 'doctor'?"),
        (["help", "cahce"], "did you mean 'cache'?"),
        (["cache", "prun"], "did you mean 'prune'?"),
        (["tune", "g.npz", "--fetures", "64"], "did you mean '--features'?"),
        (["explain", "g.npz", "--device", "cude"], "did you mean 'cuda'?"),
        (["cache", "prune", "--bytes", "much"], "'much' is no number of bytes, such as 500MB or 2GB"),
    ],
)
def test_a_typing_mistake_is_told_with_what_was_meant(arguments, meant, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2 and meant in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["docter"], ["version"], ["help"], ["tune"]], ids=lambda each: each[0])
def test_nothing_is_imported_for_that_which_takes_long(arguments):
    code = (
        "import sys\nfrom gnn_sparse_backend import cli\n"
        f"try: cli.main({arguments})\nexcept SystemExit: pass\nprint(sorted({_HEAVY} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.stdout.endswith("[]\n"), told


def test_version_and_help(capsys):
    assert cli.main(["version"]) == 0 and capsys.readouterr().out == f"gnn-sparse-backend {gsb.__version__}\n"
    assert cli.main(["help"]) == 0
    out = capsys.readouterr().out
    for command in ("doctor", "status", "tune", "explain", "cache", "pack", "version", "help"):
        assert f"\n    {command} " in out
    assert cli.main(["help", "cache"]) == 0 and "prune" in capsys.readouterr().out


def test_status_says_what_there_is_and_imports_no_framework(own_cache):
    code = (
        "import sys\nfrom gnn_sparse_backend import cli\ncode = cli.main(['status'])\n"
        "print(code, sorted({'torch', 'tvm', 'dgl', 'torch_geometric'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert told.endswith("0 []\n")
    for words in (f"torch {torch.__version__}", "kernels 0, of 2 GB at most", "GSB_CACHE_DIR"):
        assert words in " ".join(told.split()), told


def test_status_tells_a_folder_that_cannot_be_used(own_cache, capsys):
    own_cache.mkdir()
    own_cache.chmod(0o777)
    assert cli.main(["status"]) == 1
    assert "chmod 700" in " ".join(capsys.readouterr().out.split())


@pytest.fixture
def with_kernels(own_cache):
    """A cache with the kernels of two calls of another process."""
    code = (
        "import torch, gnn_sparse_backend as gsb\n"
        "graph = gsb.Graph.from_coo(torch.tensor([0, 1]), torch.tensor([1, 0]), (2, 2))\n"
        "gsb.spmm(graph, torch.ones(2, 48))\ngsb.spmm(graph, torch.ones(2, 6), torch.ones(2))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    return own_cache


def test_kernels_are_listed_with_operands_and_message_and_pruned(with_kernels, wide_terminal, capsys):
    assert cli.main(["cache", "ls"]) == 0
    out = capsys.readouterr().out
    assert f"2 kernels in {with_kernels}" in out and "of 2 GB at most" in out
    for operands, message in (("X0 48, C 48, float32", "X0"), ("X0 6, X1 1, C 6, float32", "X1 * X0")):
        assert any(operands in line and line.rstrip().endswith(message) for line in out.splitlines()), out
    assert cli.main(["cache", "prune"]) == 0
    assert "0 kernels of other versions and 0 not used for longest deleted" in capsys.readouterr().out
    assert cli.main(["cache", "prune", "--bytes", "0"]) == 0
    assert "2 not used for longest deleted" in capsys.readouterr().out
    assert cli.main(["cache", "ls"]) == 0 and "0 kernels in" in capsys.readouterr().out


@pytest.mark.parametrize("columns", [80, 120])
def test_tables_fit_the_terminal(columns, own_cache, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    for arguments in (["status"], ["cache", "ls"], ["doctor"]):
        cli.main(arguments)
        lines = capsys.readouterr().out.splitlines()
        long = [line for line in lines if len(line) > columns and str(own_cache) not in line]
        assert not long, long


def test_what_a_kernel_computes_is_read_from_its_program():
    program = """p = ProgramBuilder('aggregate')
N = p.dense_fixed('N', n)
K = p.dense_fixed('K', 64)
Z = p.dense_fixed('Z', 1)
E = p.buffer('E', (N,), 'int32')
X0 = p.buffer('X0', (N, K), 'bfloat16')
X1 = p.buffer('X1', (E, Z), 'float32', strided=True)
with p.iterate('rows', (N,), 'S', ('i',)) as (i,):
    Total[k] = number(0.0, 'float32')
    Total[k] = Total[k] + X0[J[i, k], k] * (X1[E[i], 0] + number(2.0, 'float32'))
"""
    found = described(program)
    assert found.operands == ("X0 64 bfloat16", "X1 1 float32") and found.message == "X0 * (X1 + 2.0)"
    assert described("written at stage III").operands == ()

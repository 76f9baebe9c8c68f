"""What a process pays before its first result: with its kernels in the cache it imports nothing that compiles."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import pytest

from gnn_sparse_backend import deferred

_OURS = (
    "compiler.codegen.build",
    "compiler.lowering.emit",
    "compiler.transforms.decompose",
    "ops.attention.executables_cuda",
    "ops.message.schedules_cuda",
    "ops.relational.api",
    "ops.relational.executables",
    "planner.cuda.plan",
    "sampling.draws",
    "structures.relational.graph",
)
_HEAVY = (
    *("filelock", "psutil", "rich", "scipy.sparse", "sympy", "tvm"),
    *("torch._dynamo", "torch._inductor", "torch.fx.experimental.symbolic_shapes"),
    *(f"gnn_sparse_backend.{name}" for name in _OURS),
)
"""What is imported when it is first needed: libraries, some of which PyG imports by itself; what lowers and builds;
what is for a GPU; and families of operators that a layer has no use for.
"""
_BEGIN = """
import sys
{framework}
before = set(sys.modules)
"""
_END = """
from pathlib import Path
from gnn_sparse_backend.compiler.cache.default import stats
mapped = "libtvm_compiler" in Path("/proc/self/maps").read_text()
read = ["torch.ops.gsb" for name in ["torch"] if name in sys.modules and "gsb" in vars(sys.modules[name].ops)]
heavy = sorted(set({heavy}) & (set(sys.modules) - before))
print(stats().compiles, heavy, *["TVM's compiler"] * mapped, *read)
"""
_OPERANDS = """
import torch
import gnn_sparse_backend as gsb
nodes, edges = 3000, 200_000
index = torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(0))
x = torch.ones(nodes, 8, requires_grad=True)
"""
_PYG = f"""{_OPERANDS}
from torch_geometric.nn import GATConv, SAGEConv
gsb.enable("pyg")
for layer in (SAGEConv(8, 8), GATConv(8, 8)):
    layer(x, index).sum().backward()
"""
_DGL = f"""{_OPERANDS}
from dgl.nn.pytorch import GATConv, SAGEConv
gsb.enable("dgl")
graph = dgl.add_self_loop(dgl.graph((index[0], index[1]), num_nodes=nodes))
for layer in (SAGEConv(8, 8, "mean"), GATConv(8, 8, 1)):
    layer(graph, x).sum().backward()
"""
_STAND_INS = "gnn_sparse_backend.integrations.core.substitutes.stand_ins"
_PLAIN = f"""{_OPERANDS}
graph = gsb.Graph.from_coo(index[1], index[0], (nodes, nodes))
gsb.spmm(graph, x).sum().backward()
"""


@pytest.mark.parametrize(
    ("framework", "program"),
    [
        pytest.param("import torch_geometric.nn", _PYG, marks=pytest.mark.slow),
        (f"from {_STAND_INS} import import_dgl; import_dgl(); import dgl", _DGL),
        pytest.param("", _PLAIN, marks=pytest.mark.slow),  # which DGL asks the most of what is here
    ],
    ids=["pyg", "dgl", "plain"],
)
def test_a_process_with_a_full_cache_imports_nothing_that_compiles(framework, program, tmp_path):
    (compiled, imported), (again, imported_again) = (_run(framework, program, tmp_path) for _ in range(2))
    assert compiled > 0 and "'tvm'" in imported
    assert (again, imported_again) == (0, "[]")


@pytest.mark.parametrize(
    "program",
    [
        "gsb.nn.SparseTensor(torch.ones(2, 1), torch.tensor([[0, 1], [0, 3]])).coordinates",
        "x = torch.rand(9, 2)\nimport torch_cluster\nassert torch_cluster.radius(x, x, 2.0).shape[1] == 81",
    ],
    ids=["sites", "points"],
)
def test_loops_may_be_the_first_to_be_compiled(program, tmp_path):
    """They have no blocks of TVM's, whose module names the passes that compile."""
    enable = (
        'import torch\nimport gnn_sparse_backend as gsb\nimport gnn_sparse_backend.nn\ngsb.enable("torch_cluster")\n'
    )
    compiled, _ = _run("", enable + program, tmp_path)
    assert compiled > 0


def test_what_compiles_imports_no_part_of_tvm_that_compiles_nothing(tmp_path):
    program = """
import os
import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.codegen.build import generate_cuda
from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.compiler.library.products import csr_spmm
from gnn_sparse_backend.compiler.schedules.teams import team_schedule
gsb.compiler.compile_program(csr_spmm(4), gsb.compiler.cpu_schedule())
PARTS = {"tvm.relax.expr", "tvm.runtime.disco.session", "tvm.s_tir.dlight.base", "tvm.s_tir.meta_schedule.database"}
import tvm
devices = lambda: list(filter(tvm.backend.is_loaded, ("cuda", "rocm", "trn")))
assert devices() == [] and not PARTS & set(sys.modules) and "TVM_DEVICE_BACKEND_AUTOLOAD" not in os.environ
assert "__global__" in generate_cuda(stage3(csr_spmm(4), team_schedule(1)), "sm_90")
assert devices() == ["cuda"] and not PARTS & set(sys.modules)
from tvm.s_tir.dlight.gpu import Matmul  # a module below one of the parts
from tvm.script import relax as R
assert tvm.relax.Function and R.function and tvm.s_tir.meta_schedule.Database
assert set(sys.modules) >= PARTS - {"tvm.runtime.disco.session"} and not hasattr(tvm.relax, "no such name")
"""
    _run("", program, tmp_path)


def test_a_schedule_for_a_gpu_may_be_the_first_to_be_compiled(tmp_path):
    """What is called there is known to TVM once devices are, for which nothing else asked."""
    program = """
from gnn_sparse_backend.deferred import tir_builder
assert tir_builder.let and tir_builder.cuda.warp_sync and not hasattr(tir_builder, "no such name")
"""
    _run("", program, tmp_path)


def test_the_package_imports_nothing_by_itself(tmp_path):
    assert _run("", "import gnn_sparse_backend", tmp_path)[1] == "[]"
    program = "import gnn_sparse_backend; assert not {'numpy', 'torch', 'tvm_ffi'} & (set(sys.modules) - before)"
    _run("", program, tmp_path)


def test_operators_are_registered_when_the_namespace_is_first_read(tmp_path):
    program = """
import torch, gnn_sparse_backend.ops.message.operators
lib = "gsb::aggregate", "gsb::masked"
there = lambda: [torch._C._dispatch_has_kernel(name) for name in lib]
assert there() == [False, False] and "gsb" not in list(torch.ops)
torch.ops.gsb.aggregate
assert there() == [True, False] and list(torch.ops).count("gsb") == 1
import gnn_sparse_backend.ops.random.masked
assert there() == [True, True] and torch.ops.gsb.masked.default
"""
    _run("", program, tmp_path)


@pytest.mark.parametrize("extension", [False, True], ids=["no extension", "torch-c-dlpack-ext"])
def test_tvm_ffi_builds_nothing_for_a_pytorch_that_gives_it_no_pointers(extension, tmp_path):
    if extension:
        (tmp_path / "torch_c_dlpack_ext.py").write_text("import torch; torch.Tensor.__dlpack_c_exchange_api__ = taken")
    program = f"""
import builtins, os, subprocess, sys, torch, warnings
os.environ.pop("TVM_FFI_DISABLE_TORCH_C_DLPACK", None)  # which the process of this test has set
os.environ["TVM_FFI_CACHE_DIR"] = {str(tmp_path / "built")!r}
warnings.simplefilter("error")
sys.path.insert(0, {str(tmp_path)!r})
builtins.taken = torch.Tensor.__dlpack_c_exchange_api__
del torch.Tensor.__dlpack_c_exchange_api__  # as PyTorch 2.8 is
run = subprocess.run
def without_builds(arguments, **options):
    assert not any("dlpack" in each for each in arguments), arguments
    return run(arguments, **options)
subprocess.run = without_builds
import gnn_sparse_backend as gsb
import tvm_ffi
assert hasattr(torch.Tensor, "__dlpack_c_exchange_api__") is {extension}
graph = gsb.Graph.from_coo(torch.tensor([0, 1]), torch.tensor([1, 0]), (2, 2))
assert gsb.spmm(graph, torch.eye(2)).tolist() == [[0, 1], [1, 0]]
"""
    _run("", program, tmp_path)


@pytest.mark.parametrize("collecting", [True, False])
def test_imports_collect_no_garbage_and_leave_collection_as_it_was(collecting, tmp_path, monkeypatch):
    (tmp_path / "whether_collecting.py").write_text("import gc\nfound = gc.isenabled()\n")
    (tmp_path / "raising.py").write_text("import gc\nraise OSError(gc.isenabled())\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = gc.isenabled()
    (gc.enable if collecting else gc.disable)()
    try:
        assert not deferred.import_module("whether_collecting").found
        assert gc.isenabled() == collecting
        with pytest.raises(OSError, match="False"):
            deferred.import_module("raising")
        assert gc.isenabled() == collecting
        first = threading.Thread(target=deferred.no_collection.__enter__)
        first.start()
        first.join()
        with deferred.no_collection:
            deferred.no_collection.__exit__(None, None, None)  # of the other thread, which ends before this one
            assert not gc.isenabled()
        assert gc.isenabled() == collecting
    finally:
        (gc.enable if before else gc.disable)()


def _run(framework: str, program: str, folder) -> tuple[int, str]:
    """(kernels compiled, heavy modules imported) of a process."""
    code = "".join((_BEGIN.format(framework=framework), program, _END.format(heavy=_HEAVY)))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "GSB_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr
    compiled, _, imported = done.stdout.partition(" ")
    return int(compiled), imported.strip()

"""What a type checker knows of the package: every public name, and the types of what users write with it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import gnn_sparse_backend as gsb

ROOT = Path(__file__).parents[1]
# As a user's: strict, and nothing of this project's configuration.
CONFIGURATION = """
[mypy]
strict = True

[mypy-scipy.*,dgl.*,torch_geometric.*,tvm.*,psutil.*]
ignore_missing_imports = True

[mypy-gnn_sparse_backend.*]
ignore_errors = True
"""
PROGRAM = """
import torch
import gnn_sparse_backend as gsb
from gnn_sparse_backend import Graph, compiler, spmm

edges, x, w = torch.zeros(2, 5, dtype=torch.int64), torch.zeros(3, 4), torch.zeros(5)
graph: Graph = Graph.from_edge_index(edges, (3, 3))
rel = gsb.RelGraph.from_edge_index(edges, w.long(), (3, 3))
segments = gsb.Segments.from_lengths(torch.tensor([1, 2]))
reveal_type(spmm(graph, x, w, reduce="mean"))  # Tensor
reveal_type(gsb.spmm_linear(graph, x, x))  # Tensor
reveal_type(gsb.linear(x, x))  # Tensor
reveal_type(gsb.gspmm(graph, "mul", "sum", x, w))  # Tensor
reveal_type(gsb.gsddmm(graph, "dot", x, x))  # Tensor
reveal_type(gsb.aggregate(graph, "mul(x0, x1)", [("u", x), ("e", w)]))  # Tensor
reveal_type(gsb.edge_map(graph, "x0", [("u", x)]))  # Tensor
reveal_type(gsb.sddmm(graph, x, x))  # Tensor
reveal_type(gsb.segment_mm(x, x, segments))  # Tensor
reveal_type(gsb.gather_mm(x, x, segments))  # Tensor
reveal_type(gsb.segment_reduce(x, segments))  # Tensor
reveal_type(gsb.rgms(rel, x, w))  # Tensor
reveal_type(gsb.rgms(rel, {"user": x}, {"likes": w}))  # dict[str, Tensor]
pairs = gsb.KernelMap.from_pairs(x, x, x, (3, 3))
reveal_type(gsb.sparse_conv(x, x, pairs))  # Tensor
voxels = gsb.nn.SparseTensor(x, edges)
reveal_type(gsb.nn.union(voxels, voxels))  # tuple[SparseTensor, ...]
reveal_type(gsb.nn.select(voxels, w))  # SparseTensor
reveal_type(gsb.nn.interpolate(voxels, x))  # Tensor
reveal_type(voxels.kernel_map(3))  # KernelMap
reveal_type(voxels.kernel_map(gsb.nn.Cross(3), sites=True))  # tuple[KernelMap, SparseTensor]
reveal_type(gsb.nn.convert.from_minkowski(torch.nn.Linear(4, 4)))  # Module
parts = gsb.formats.decompose(graph, ["bsr(2)", "csr"])
reveal_type(gsb.tune_format(graph, 16))  # FormatChoice
reveal_type(gsb.composed_spmm(parts, w, x))  # Tensor
reveal_type(gsb.composed_linear(parts, w, x, w))  # Tensor
reveal_type(gsb.composed_sddmm(parts, x, x))  # Tensor
reveal_type(gsb.voxelize(x, 0.1))  # tuple[Tensor, Tensor, Tensor]
reveal_type(gsb.attention(graph, x, x, x))  # Tensor
reveal_type(gsb.gat_attention(graph, x, x, x))  # Tensor
reveal_type(gsb.gatv2_attention(graph, x, x, w))  # Tensor
reveal_type(gsb.edge_softmax(graph, w))  # Tensor
reveal_type(gsb.Prefetcher([w], lambda batch: x))  # Prefetcher[Tensor]
reveal_type(gsb.distributed.Dropout(w, 0.5, seed=1).forward(x))  # Tensor
reveal_type(gsb.distributed.DistGraph.load("parts", wire=torch.bfloat16).features())  # Tensor
reveal_type(gsb.sample_neighbors(graph, w, [10, 10]).graph)  # Graph
reveal_type(gsb.reuse_memory())  # bool
reveal_type(gsb.status())  # Status
reveal_type(gsb.precompile(graph, features=(16, 32), ops="mean"))  # Report
reveal_type(str(gsb.explain(graph)))  # str
reveal_type(gsb.pack(lambda: x, "kernels.gsb").sha256)  # str
reveal_type(gsb.load_pack("kernels.gsb"))  # Pack
gsb.wait_for_kernels(timeout=1.5)
reveal_type(gsb.export(torch.nn.Linear(4, 4), (x,), "model.pt2"))  # Export
gsb.load_export("model.pt2")
reveal_type(gsb.__version__)  # str
reveal_type(gsb.last_run())  # Run | None
reveal_type(gsb.schedule("spmm", lambda schedule, kernel: schedule, features=16))  # OwnSchedule
reveal_type(gsb.memory(rel))  # Memory
reveal_type(graph.transpose().shape)  # tuple[int, int]
reveal_type(graph.edge_ids)  # Tensor | None
reveal_type(graph.in_degrees)  # Tensor
reveal_type(gsb.reorder(graph).graph)  # Graph
reveal_type(gsb.reorder(rel, "degree").graph)  # RelGraph
reveal_type(gsb.reorder(graph).nodes.apply(x))  # Tensor
reveal_type(rel.num_relations)  # int
reveal_type(segments.offsets)  # Tensor
mask = gsb.masks.band(100, 8, 8, global_tokens=[0]) & gsb.masks.padding(w, 100)
reveal_type(mask)  # Mask
reveal_type(gsb.masks.heads([mask | gsb.masks.causal(100)]).tile)  # Tensor
reveal_type(gsb.sparse_attention(x, x, x, mask))  # Tensor
reveal_type(gsb.flex_attention(x, x, x, block_mask=mask))  # Tensor
reveal_type(gsb.flex_attention(x, x, x, return_lse=True)[1])  # Tensor
reveal_type(gsb.masked_spmm(mask, gsb.masked_sddmm(mask, x, x), x))  # Tensor
a = gsb.tensor.array(x, "csr")
reveal_type(a)  # Array
reveal_type(gsb.tensor.evaluate("y[i] = A[i,j]", A=a, format="dense").to_torch())  # Tensor
reveal_type(gsb.tensor.einsum("ij->ji", a).T.to("coo"))  # Array
reveal_type(gsb.tensor.compile("y[i] = A[i,j]", A=a).stages())  # str
scheduled = gsb.tensor.statement("y[i] = A[i,j]", A=a).split("i", "i0", "i1", 4).parallelize("i0", "threads")
reveal_type(scheduled)  # Statement
reveal_type(gsb.tensor.compile(scheduled)(A=a))  # Array
reveal_type((a @ x + 1).sum(0).shape)  # tuple[int, ...]
p = compiler.ProgramBuilder("scale")
rows = p.dense_fixed("I", p.size("m"))
values = p.buffer("X", (rows,), "float32")
with p.iterate("scale", (rows,), "S") as (i,):
    values[i] = values[i] * 2.0
reveal_type(compiler.sparse_reorder(p.finish(), "scale", ("I",)))  # Program
reveal_type(compiler.compile_program(p.finish(), compiler.cpu_schedule()).stages())  # str
reveal_type(compiler.unit_schedule((("scale", "threads"),))[0].on_gpu)  # bool
reveal_type(compiler.maximum(values[i], 0.0))  # Expr
reveal_type(gsb.radius_graph(x, 1.0).distances)  # Tensor
reveal_type(gsb.load_features("features.npy").tensor)  # Tensor
gsb.dgl_graph(graph)
reveal_type(gsb.checkpoint_layers(torch.nn.Linear(2, 2)))  # Linear
gsb.compile(torch.nn.Linear(2, 2), backend="eager")
gsb.enable("pyg")
gsb.disable("pyg")
with gsb.enabled("dgl"):
    gsb.empty_cache()
"""
WRONG = {
    "gsb.spmmm": 'Module has no attribute "spmmm"',
    "gsb.spmm(x, x)": 'Argument 1 to "spmm" has incompatible type "Tensor"; expected "Graph | Partitioned"',
    'gsb.explain(graph, features="64")': 'Argument "features" to "explain" has incompatible type "str"',
    "compiler.cpu_schedule(threads=2)": 'Unexpected keyword argument "threads" for "cpu_schedule"',
    "gsb.sddmm(graph, x)": 'Missing positional argument "v" in call to "sddmm"',
}


@pytest.fixture(scope="module")
def checked(tmp_path_factory) -> list[str]:
    """What mypy says of the program, and of the wrong lines behind it."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("user")
    (folder / "mypy.ini").write_text(CONFIGURATION)
    (folder / "user.py").write_text(PROGRAM + "\n".join(WRONG) + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "user.py"],
        cwd=folder,
        env={"MYPYPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()[:-1]  # the last counts the errors


def plain(revealed: str) -> str:
    """A type without modules, and without what it may or may not be in another version of mypy."""
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", revealed)


@pytest.mark.slow
def test_results_have_types(checked):
    lines = PROGRAM.splitlines()
    wanted = {n: line.rpartition("  # ")[2] for n, line in enumerate(lines, 1) if line.startswith("reveal_type")}
    found = {
        int(line.split(":")[1]): plain(re.findall('Revealed type is "(.*)"', line)[0])
        for line in checked
        if "Revealed type is" in line
    }
    assert found == wanted


@pytest.mark.slow
def test_mistakes_are_found_and_nothing_else(checked):
    first = len(PROGRAM.splitlines()) + 1
    errors = [line for line in checked if ": error: " in line]
    assert len(errors) == len(WRONG), errors
    for number, (error, wanted) in enumerate(zip(errors, WRONG.values()), first):
        assert error.startswith(f"user.py:{number}: error: {wanted}"), error


def test_every_public_name_is_in_the_program():
    assert [name for name in gsb.__all__ if not re.search(rf"\b{name}\b", PROGRAM)] == []


def test_the_package_says_that_it_has_types():
    assert (Path(gsb.__file__).parent / "py.typed").is_file()

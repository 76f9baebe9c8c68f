"""What ran: every operator tells its kernels, forward and backward, and every kernel has the text of each stage."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache import KernelStore, default
from gnn_sparse_backend.compiler.cache.disk import DiskCache
from gnn_sparse_backend.compiler.codegen import cuda_target, load
from gnn_sparse_backend.compiler.codegen.cuda.machine_code import default_compiler
from gnn_sparse_backend.compiler.codegen.cuda.nvidia import nvcc_path
from gnn_sparse_backend.compiler.compile import _texts, compile_program, stage2, stage3
from gnn_sparse_backend.compiler.language.printer import program_from_script
from gnn_sparse_backend.compiler.library.products import csr_spmm
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.schedules.cuda import gpu_schedule
from gnn_sparse_backend.compiler.schedules.sequence import is_for_gpu
from gnn_sparse_backend.ops.core.last_run import _recent, last_runs
from gnn_sparse_backend.ops.core.library import OPERATORS as REGISTERED
from tests.ops.operators import OPERATORS, RGMS, some_graph

SHORT = ("spmm", "gspmm_copy_u_max", "attention", "segment_mm", "rgms")
STAGES = ("program", "plan", "stage2", "stage3", "assembly")


def assert_told() -> None:
    """Of all that ran since the memory was cleared, and there was something: an operator that there is, and of each of
    its steps a plan and kernels.
    """
    runs = list(last_runs())
    assert runs and runs[0] == gsb.last_run()
    for run in runs:
        assert run.operator in REGISTERED and str(run).startswith(f"gsb::{run.operator}\n")
        assert run.steps and all(str(step.plan) and step.kernels for step in run.steps), str(run)
        assert all(f"{kernel.name} {kernel.key[:12]}" in str(run) for kernel in run.kernels)


def assert_written() -> None:
    """The kernels that ran have a text of each stage."""
    for kernel in {kernel for run in last_runs() for kernel in run.kernels}:
        assert sorted(kernel.stage_names) == sorted(STAGES)
        assert f"ProgramBuilder('{kernel.name}')" in kernel.script() and "Schedule(" in kernel.script("plan")
        for stage in ("stage2", "stage3"):
            assert f"def {kernel.name}(" in kernel.script(stage)
        assert f"{kernel.name}:" in kernel.script("assembly")


@pytest.fixture(autouse=True)
def nothing_ran():
    _recent.events.clear()
    assert gsb.last_run() is None


def run_forward_and_back(name: str) -> Iterator[None]:
    """Comes back after each of the two, with nothing told of before."""
    operator, graph = OPERATORS.get(name) or RGMS[name], some_graph()
    if name in RGMS:
        graph = gsb.RelGraph.from_graph(graph, torch.arange(graph.num_edges) % 3, 3)
    out = operator.run(graph, *operator.operands(graph))
    yield
    _recent.events.clear()
    out.backward(torch.randn_like(out))
    yield


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in SHORT else pytest.mark.exhaustive) for name in (*OPERATORS, *RGMS)],
)
def test_an_operator_tells_what_it_ran(name):
    for _ in run_forward_and_back(name):
        assert_told()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [*OPERATORS, *RGMS])
def test_every_kernel_of_an_operator_has_all_texts(name):
    for _ in run_forward_and_back(name):
        assert_written()


def test_what_flows_back_through_a_choice_is_told():
    """Of maxima that copy, on a graph so dense that they keep it."""
    graph, x = some_graph(5, 30, 100), torch.randn(30, 3, requires_grad=True)
    out = gsb.aggregate(graph, "x0", [("u", x)], "max", ties="last")
    _recent.events.clear()
    out.sum().backward()
    assert gsb.last_run().operator == "argmax_scatter"
    assert_told()


def test_a_call_of_torch_ops_is_told():
    graph = some_graph()
    torch.ops.gsb.spmm(
        graph.indptr, graph.indices, graph.edge_ids, graph.shape[1], torch.ones(12, 2), None, False, False
    )
    assert gsb.last_run().operator == "spmm"
    assert_told()


def test_another_thread_has_its_own():
    graph = some_graph()
    gsb.spmm(graph, torch.ones(12, 2))
    found = []
    thread = threading.Thread(target=lambda: found.append(gsb.last_run()))
    thread.start()
    thread.join()
    assert found == [None] and gsb.last_run() is not None


def test_what_had_nothing_to_compute_says_so():
    gsb.spmm(some_graph(), torch.ones(12, 0))
    assert gsb.last_run().kernels == () and "there was nothing to compute" in str(gsb.last_run())


def test_update_all_of_dgl_is_told():
    dgl = pytest.importorskip("dgl")
    graph = dgl.graph(([0, 1, 2], [1, 2, 2]))
    graph.ndata["h"], graph.edata["w"] = torch.ones(3, 2, requires_grad=True), torch.ones(3, 1)
    with gsb.enabled("dgl"):
        graph.update_all(dgl.function.u_mul_e("h", "w", "m"), dgl.function.sum("m", "y"))
        assert_told()
        graph.ndata["y"].sum().backward()
    assert_told()


def test_a_layer_of_pyg_is_told():
    nn = pytest.importorskip("torch_geometric.nn")
    with gsb.enabled("pyg"):
        out = nn.SAGEConv(2, 3)(torch.ones(3, 2, requires_grad=True), torch.tensor([[0, 1, 2], [1, 2, 2]]))
        assert_told()
        out.sum().backward()
    assert_told()


@pytest.mark.parametrize("schedule", [cpu_schedule(), gpu_schedule()], ids=["cpu", "cuda"])
def test_texts_are_the_same_from_the_compiler_and_from_disk(schedule, tmp_path, monkeypatch):
    """And those of the program itself. A schedule for a GPU runs serially here."""
    program = csr_spmm(6)
    serial, kernels = is_for_gpu(schedule), []
    for _ in range(2):
        monkeypatch.setattr(default.default_store, "_store", KernelStore(DiskCache(tmp_path), load))
        kernels.append(compile_program(program, schedule, serial=serial))
    assert [kernel.origin for kernel in kernels] == ["compiled", "disk"]
    for kernel in kernels:
        assert program_from_script(kernel.script()).script() == program.script()
        assert kernel.script("stage2") == stage2(program, schedule, serial).script()
        assert kernel.script("stage3") == stage3(program, schedule, serial).script()
    assert len({kernel.script("assembly") for kernel in kernels}) == 1
    with pytest.raises(ValueError, match=f"kernel '{program.name}' has no text 'ptx'; it has plan, program, stage2, "):
        kernels[0].script("ptx")


@pytest.mark.slow
def test_kernels_of_a_gpu_have_ptx():
    if default_compiler() == "nvcc" and nvcc_path() is None:
        pytest.skip("no compiler of CUDA source on this machine")
    texts = _texts(csr_spmm(4).script(), gpu_schedule(), cuda_target("sm_80"), False)
    assert sorted(texts) == ["ptx", "stage2", "stage3"]
    assert ".visible .entry csr_spmm" in texts["ptx"]() and ".target sm_80" in texts["ptx"]()


@pytest.mark.parametrize("groups", [1, 5])
def test_a_convolution_is_told(groups):
    """Of matrices, and of channels by themselves."""
    pairs, starts = torch.arange(4), torch.tensor([0, 2, 4])
    x = torch.randn(4, 5, requires_grad=True)
    weight = torch.randn((2, 5 // groups, 5), requires_grad=True)
    out = gsb.sparse_conv(x, weight, gsb.KernelMap.from_pairs(pairs, pairs, starts, (4, 4)), groups=groups)
    assert_told()
    _recent.events.clear()
    out.sum().backward()
    assert_told()

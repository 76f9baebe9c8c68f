"""Packages give what PyG gives, on other graphs than the example, in a process that has neither PyG nor TVM."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.export import Dim

import gnn_sparse_backend as gsb

from .networks import CLASSES, WIDTH, Calls, Maps, Voxels, arguments, networks, voxels

SHORT = ("GCN", "RGCN", "by hand")
LONG = tuple(name for name in networks() if name not in SHORT)
BLOCKED = """
import sys
from importlib.machinery import PathFinder
found = PathFinder.find_spec
absent = ("torch_geometric", "tvm")
PathFinder.find_spec = staticmethod(
    lambda name, *more: None if name.partition(".")[0] in absent else found(name, *more)
)
"""
LOAD = """
import torch
import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache import stats

for path in sys.argv[1:]:
    package = gsb.load_export(path)
    gsb.integrations.reset_status()
    before = stats().pack_loads
    for given, expected in torch.load(path + ".kept", weights_only=True):
        with torch.no_grad():
            torch.testing.assert_close(package(*given), expected)
    assert any(row.ours for row in gsb.status().rows) or stats().pack_loads > before, path
"""


@pytest.fixture(autouse=True)
def _fresh():
    torch.manual_seed(3)
    yield
    gsb.disable()


def exported(name, folder, **options):
    """(what was exported, the network)."""
    model = networks()[name].eval()
    nodes, edges = Dim("nodes"), Dim("edges")
    changing = {"x": {0: nodes}, "edges": {1: edges}} | (
        {"relations": {0: edges}} if name in ("RGCN", "blocks") else {}
    )
    with gsb.enabled("pyg"):
        path = folder / f"{name.replace(' ', '_')}.pt2"
        return gsb.export(model, arguments(name, 40, 200), path, dynamic_shapes=changing, **options), model


def keep(path, model, cases):
    """Keep arguments beside a package, with the results of the framework alone."""
    with torch.no_grad():
        torch.save([(given, model(*given)) for given in cases], f"{path}.kept")


def load_elsewhere(paths):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BLOCKED + LOAD, *map(str, paths)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("names", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)], ids=["short", "long"])
def test_packages_run_without_framework_and_compiler(names, tmp_path):
    paths = []
    for name in names:
        package, model = exported(name, tmp_path)
        assert sum(package.operators.values()) >= (1 if name == "by hand" else 2), package
        cases = [arguments(name, *sizes) for sizes in ((40, 200), (45, 230))]
        keep(package.path, model, cases)
        paths.append(package.path)
    load_elsewhere(paths)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["GAT", "RGCN"])
def test_packages_of_aotinductor(name, tmp_path):
    package, model = exported(name, tmp_path, aot=True)
    keep(package.path, model, [arguments(name, *sizes) for sizes in ((40, 200), (45, 230))])  # kernels go by sizes
    load_elsewhere([package.path])


@pytest.mark.slow
def test_a_graph_or_matrix_that_the_model_holds_is_in_the_package(tmp_path):
    model = Calls(gsb.Graph.from_coo(*torch.randint(30, (2, 100)), (30, 30)))
    x = torch.randn(30, WIDTH)
    package = gsb.export(model, (x,), tmp_path / "graph.pt2")
    assert package.operators == {"sddmm": 1, "edge_softmax": 1, "spmm": 1}
    keep(package.path, model, [(torch.randn(30, WIDTH),)])
    layers = (gsb.nn.SparseLinear.from_dense(torch.nn.Linear(16, 16), format=words) for words in ("csr", "bsr(8)"))
    sparse = torch.nn.Sequential(*layers).eval()
    sparse(torch.randn(9, 16))  # what the layers keep of this call is no reason to pack less
    weights = gsb.export(sparse, (torch.randn(9, 16),), tmp_path / "weights.pt2", dynamic_shapes=({0: Dim("n")},))
    assert weights.operators == {"composed_spmm": 2}
    keep(weights.path, sparse, [(torch.randn(9, 16),)])
    load_elsewhere([package.path, weights.path])


@pytest.mark.slow  # another process, and a network of its own
def test_sparse_convolutions_run_on_other_sites(tmp_path):
    model, sites = Voxels().eval(), Dim("sites", min=2)
    package = gsb.export(model, voxels(60), tmp_path / "voxels.pt2", dynamic_shapes=({0: sites}, {0: sites}))
    assert package.operators["sparse_conv_of_sites"] == 3 and package.operators["aggregate_of_sites"] == 1, package
    assert {layer.name for layer in package.layers} > {"stem.0", "down", "up", "pool"}, package
    keep(package.path, model, [voxels(count) for count in (60, 71)])
    load_elsewhere([package.path])
    features, coordinates = voxels(50)
    coordinates[7] = coordinates[3]
    with pytest.raises(ValueError, match="are equal"):
        gsb.load_export(package.path)(features, coordinates)


def test_the_report_names_layers_and_reasons(tmp_path):
    package, _ = exported("own", tmp_path)
    first, second, last = package.layers
    assert (first.name, first.ours, first.left) == ("first.aggr_module", {"aggregate_of_edges": 1}, {})
    assert (second.name, second.kind, second.ours) == ("second", "Maps", {})
    assert second.left == {"gather by index_select": "its rows are used by cat"}
    assert (last.name, last.ours) == ("second.aggr_module", {"aggregate_of_edges": 1})
    assert "second (Maps)" in str(package) and "its rows are used by cat" in str(package)


def test_a_model_without_edges_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"nothing in this model is for our operators; use torch\.export\.save"):
        gsb.export(torch.nn.Linear(WIDTH, 4), (torch.randn(5, WIDTH),), tmp_path / "linear.pt2")
    assert not (tmp_path / "linear.pt2").exists()


def test_gradients_of_a_package(tmp_path):
    package, model = exported("GAT", tmp_path)
    given = arguments("GAT", 30, 100)
    expected = torch.autograd.grad(model(*given).square().sum(), tuple(model.parameters()))
    loaded = gsb.load_export(package.path)
    found = torch.autograd.grad(loaded(*given).square().sum(), tuple(loaded.parameters()))
    by_name = dict(zip((name for name, _ in loaded.named_parameters()), found))
    for (name, _), gradient in zip(model.named_parameters(), expected):
        torch.testing.assert_close(by_name[name], gradient, rtol=1e-4, atol=1e-5)


def test_ids_out_of_range(tmp_path):
    package, _ = exported("SAGE", tmp_path)
    x, edges = arguments("SAGE", 40, 200)
    edges[0, 7] = 40
    with pytest.raises(IndexError, match="an edge index is out of range"):
        gsb.load_export(package.path)(x, edges)


def test_errors_say_what_to_do(tmp_path):
    given = arguments("SAGE", 40, 200)
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module, got function; wrap it"):
        gsb.export(lambda x: x, given, tmp_path / "model.pt2")
    with pytest.raises(TypeError, match="args must be a tuple of the model's arguments, got list"):
        gsb.export(Maps(WIDTH, CLASSES), [*given], tmp_path / "model.pt2")
    with pytest.raises(ValueError, match=r"ends in \.pt2, got 'model\.onnx'"):
        gsb.export(Maps(WIDTH, CLASSES), given, "model.onnx")
    with pytest.raises(FileNotFoundError, match=r"there is no .*model\.pt2; gsb\.export writes .* copy both"):
        gsb.load_export(tmp_path / "model.pt2")
    (tmp_path / "model.gsb").touch()
    (tmp_path / "model.pt2").write_text("no package")
    with pytest.raises(ValueError, match=r"model\.pt2 is no package of torch\.export or AOTInductor"):
        gsb.load_export(tmp_path / "model.pt2")


_ALL = """
import importlib, pkgutil
from gnn_sparse_backend.integrations.exported.operators import register
register()
from gnn_sparse_backend.ops.core.library import OPERATORS
import gnn_sparse_backend.ops as ops
known = set(OPERATORS)
for each in pkgutil.walk_packages(ops.__path__, ops.__name__ + "."):
    importlib.import_module(each.name)
assert known >= set(OPERATORS) and len(known) > 20, set(OPERATORS) - known
"""


@pytest.mark.slow
def test_every_operator_is_known_before_a_package_is_read():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", _ALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_onnx_has_standard_operators(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    model, path = networks()["GCN"].eval(), tmp_path / "model.onnx"
    with gsb.enabled("pyg"):
        torch.onnx.export(model, arguments("GCN", 40, 200), path, dynamo=True, verbose=False)
    program = onnx.load(path)
    assert {node.domain for node in program.graph.node} == {""}
    assert {each.domain for each in program.opset_import} == {""}
    assert "ScatterElements" in {node.op_type for node in program.graph.node}

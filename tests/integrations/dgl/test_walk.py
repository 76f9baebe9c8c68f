"""Everything in DGL that passes messages takes a training step with the backend and without: the results are equal."""

import importlib
import inspect

import dgl
import dgl.nn.pytorch as dglnn
import dgl.nn.pytorch.conv as dgl_conv
import dgl.nn.pytorch.explain as dgl_explain
import dgl.nn.pytorch.glob as dgl_glob
import pytest
import torch

import gnn_sparse_backend as gsb
from tests.coverage import report as coverage
from tests.coverage.dgl import conv as zoo_dgl_conv
from tests.coverage.dgl import explain as zoo_dgl_explain
from tests.coverage.dgl import layers as zoo_dgl
from tests.coverage.dgl import nn as zoo_dgl_nn
from tests.coverage.report import compare, exceptions, run_case, run_pair, shortfall
from tests.integrations.layers_of_a_walk import DGL, walk

CASES = {case.name: case for case in zoo_dgl.CASES}
# Cases take turns at the types, which are for the operators' own tests.
RUNS = [(name, case.dtypes[at % len(case.dtypes)]) for at, (name, case) in enumerate(CASES.items())]
SMOOTH = [name for name, case in CASES.items() if torch.float64 in case.dtypes and "forward alone" not in case.note]
SLOPES = (
    "GraphConv",
    "GATConv",
    "EdgeConv",
    "RelGraphConv",
    "dgl.ops.edge_softmax",
    "dgl.ops.u_div_e_mean",
    "dgl.ops.v_dot_u",
)
SEED = 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name, dtype", walk(RUNS, DGL))
def test_a_step_with_the_backend_is_a_step_without(name, dtype):
    case = CASES[name]
    with_backend, without = run_pair("dgl", case, SEED, dtype)
    assert compare(with_backend, without) == []
    assert all(each is None or each.isfinite().all() for each in without.gradients.values()), "NaN hides differences"
    assert without.counters == {}
    print(f"\n{name}: {with_backend.ours} calls on our kernels, fallen back {with_backend.fallbacks}")
    assert shortfall("dgl", case, with_backend) is None
    assert with_backend.ours or with_backend.fallbacks or case.note, "no call to any operator, and no note says why"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", walk(((name,) for name in SMOOTH), SLOPES))
def test_gradients_are_the_slopes_of_the_outputs(name):
    """In a drawn direction through all parameters and inputs, by central differences: no gradient of DGL's is asked."""
    case, step = CASES[name], 1e-6
    directions, expected = {}, 0.0
    with gsb.enabled("dgl"):
        outcome = run_case("dgl", case, SEED, torch.float64)
        for seed, (key, gradient) in enumerate(outcome.gradients.items()):
            if gradient is not None:
                directions[key] = coverage.features(*gradient.shape, seed=100 + seed)
                expected += (gradient * directions[key]).sum().item()
        values = [moved(case, directions, sign * step) for sign in (1, -1)]
    slope = (values[0] - values[1]) / (2 * step)
    assert abs(slope - expected) <= 1e-6 * max(1.0, abs(slope)), f"slope {slope}, by gradients {expected}"


def moved(case, directions, step):
    """The outputs' product with their cotangents after a step of all parameters and inputs."""

    def build():
        module = case.build().double()
        with torch.no_grad():
            for key, parameter in module.named_parameters():
                if key in directions:
                    parameter.add_(step * directions[key])
        return module

    outcome = run_case("dgl", coverage.Case(case.name, build, case.call), SEED, torch.float64, backward=False)
    return sum(
        (output.nan_to_num(posinf=0.0, neginf=0.0) * cotangent).sum().item()
        for output, cotangent in zip(outcome.outputs, coverage.cotangents(outcome.outputs, SEED))
        if cotangent is not None
    )


# --- nothing is left out --------------------------------------------------------------------------------------------


def modules_of(package):
    return {
        name: value
        for name, value in vars(package).items()
        if inspect.isclass(value) and issubclass(value, torch.nn.Module) and value is not torch.nn.Module
    }


def built():
    """Names of the classes of all modules that the cases build."""
    return {type(module).__name__ for case in zoo_dgl.CASES for module in case.build().modules()}


def test_every_exported_module_of_dgl_is_built():
    exported = modules_of(dglnn) | modules_of(dgl_conv) | {name: getattr(dgl_glob, name) for name in dgl_glob.__all__}
    exported = {name for name, value in exported.items() if value.__module__.startswith("dgl.")}
    explainers = {case.name.split(",")[0] for case in zoo_dgl_explain.CASES}
    left_out = {*zoo_dgl_conv.NOT_BUILT, *zoo_dgl_nn.NO_MESSAGES}
    assert explainers == set(modules_of(dgl_explain)) - zoo_dgl_explain.OF_DGL_2 and set(dgl_conv.__all__) <= exported
    assert exported - built() - explainers - zoo_dgl_explain.OF_DGL_2 - left_out == set(), "no case builds it"
    assert left_out - exported == set(), "not exported any more"
    assert left_out & built() == set(), "said not to be built"


@pytest.mark.parametrize("name", zoo_dgl_conv.NOT_BUILT)
def test_what_is_not_built_cannot_be(name):
    with pytest.raises(ImportError, match=zoo_dgl_conv.NOT_BUILT[name]):
        getattr(dglnn, name)(4, 4, 2)


@pytest.mark.parametrize("package", ["dgl.ops", "dgl.mpops"])
def test_every_exported_function_has_a_case(package):
    exported = {
        name
        for name, value in vars(importlib.import_module(package)).items()
        if callable(value) and not name.startswith("_")
    }
    walked = {name.removeprefix(f"{package}.").split(",")[0] for name in CASES if name.startswith(f"{package}.")}
    assert exported == walked


def test_names_of_cases_are_unique():
    assert len(CASES) == len(zoo_dgl.CASES)


# --- the share on our kernels -----------------------------------------------------------------------------------------


def test_exceptions_name_cases_and_say_why():
    assert set(zoo_dgl.EXCEPTIONS) <= {"*", *CASES}
    assert all(why.strip() for table in zoo_dgl.EXCEPTIONS.values() for why in table.values())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in zoo_dgl.EXCEPTIONS if name != "*"])
def test_exceptions_are_needed(name):
    with_backend, _ = run_pair("dgl", CASES[name], SEED)
    assert set(zoo_dgl.EXCEPTIONS[name]) <= set(with_backend.fallbacks), "no call falls back for this reason any more"
    assert exceptions("dgl", CASES[name]) == {**zoo_dgl.EXCEPTIONS.get("*", {}), **zoo_dgl.EXCEPTIONS[name]}


def test_a_wrong_result_would_be_noticed():
    graph = dgl.rand_graph(5, 12)

    def wrong(m):
        result = dgl.ops.copy_u_sum(graph, m.x)
        return result * (1 + 1e-8) if gsb.status().enabled else result

    case = coverage.Case("wrong", lambda: coverage.Bound(x=coverage.features(5, 3)), wrong)
    differences = compare(*run_pair("dgl", case))
    assert [each.split(":")[0] for each in differences] == ["output 0", "gradient of x"]

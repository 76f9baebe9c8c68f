"""Everything in PyG that passes messages takes a training step with the backend and without: the results are equal."""

import inspect
import warnings

import pytest
import torch
import torch_geometric.nn as gnn
from torch_geometric.nn import aggr, conv, models, norm, pool

import gnn_sparse_backend as gsb

if not hasattr(gnn, "PatchTransformerAggregation"):
    pytest.skip("the walk is over layers of later releases", allow_module_level=True)

from tests.coverage import report as coverage
from tests.coverage.pyg import attention as zoo_pyg_attention
from tests.coverage.pyg import conv as zoo_pyg_conv
from tests.coverage.pyg import graphs as zoo_pyg_graphs
from tests.coverage.pyg import layers as zoo_pyg
from tests.coverage.pyg import models as zoo_pyg_models
from tests.coverage.pyg import pool as zoo_pyg_pool
from tests.coverage.pyg import reduce as zoo_pyg_reduce
from tests.coverage.report import compare, exceptions, run_case, run_pair, shortfall
from tests.integrations.layers_of_a_walk import PYG, walk

CASES = {case.name: case for case in zoo_pyg.CASES}
SEED = 0
# These run in all of their types, the others, whose kernels would be compiled for float32 too, in the first of them.
BOTH = {"SAGEConv, mean", "EdgeConv, max", "GATConv", "RGCNConv", "utils.softmax, index"}
RUNS = [(name, dtype) for name, case in CASES.items() for dtype in (case.dtypes if name in BOTH else case.dtypes[:1])]


@pytest.fixture(scope="module")
def outcomes(request):
    """{(name, type): outcomes with the backend and without, or what was raised} of the runs that are selected.

    The backend is enabled once, for all of them: what one case leaves behind, the next one meets.
    """
    wanted = [
        (item.callspec.params["name"], item.callspec.params["dtype"])
        for item in request.session.items
        if getattr(item, "originalname", "") == test_a_step_with_the_backend_is_a_step_without.__name__
        and item.module is request.module
    ]

    def run(name, dtype):
        try:
            return run_case("pyg", CASES[name], SEED, dtype)
        except Exception as error:  # of this case alone
            return error

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gsb.disable()
        without = {key: run(*key) for key in wanted}
        with gsb.enabled("pyg"):
            return {key: (run(*key), without[key]) for key in wanted}


@pytest.mark.parametrize("name, dtype", walk(RUNS, PYG))
def test_a_step_with_the_backend_is_a_step_without(outcomes, name, dtype):
    case, (with_backend, without) = CASES[name], outcomes[name, dtype]
    for outcome in (without, with_backend):
        if isinstance(outcome, Exception):
            raise outcome
    assert compare(with_backend, without) == []
    assert all(each is None or each.isfinite().all() for each in without.gradients.values()), "NaN hides differences"
    assert without.counters == {}
    print(f"\n{name}: {with_backend.ours} calls on our kernels, fallen back {with_backend.fallbacks}")
    assert shortfall("pyg", case, with_backend) is None
    assert with_backend.ours or with_backend.fallbacks or case.note, "no call to any operator, and no note says why"


# --- nothing is left out --------------------------------------------------------------------------------------------


def classes(package):
    """Modules that ``package`` exports."""
    return {
        name
        for name in package.__all__
        if inspect.isclass(getattr(package, name)) and issubclass(getattr(package, name), torch.nn.Module)
    }


@pytest.fixture(scope="module")
def built():
    """Names of the classes of all modules that the cases build."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {type(module).__name__ for case in zoo_pyg.CASES for module in case.build().modules()}


@pytest.mark.layers
@pytest.mark.parametrize(
    "package, left_out",
    [
        (conv, {*zoo_pyg_attention.NOT_BUILT, *zoo_pyg_attention.ABSTRACT}),
        (aggr, {*zoo_pyg_reduce.BASES}),
        (norm, {*zoo_pyg_pool.OF_ROWS}),
        (models, {*zoo_pyg_models.NO_MESSAGES}),
        (pool, {*zoo_pyg_pool.NOT_BUILT}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_exported_module_is_built(built, package, left_out):
    exported = classes(package)
    assert exported - built - left_out == set(), "exported by PyG, and no case builds it"
    assert left_out - set(package.__all__) == set(), "not exported any more"
    if package not in (models, norm):  # dense ones may be parts of what passes messages
        assert left_out & built == set(), "said not to be built"


@pytest.mark.parametrize("name", zoo_pyg_attention.NOT_BUILT)
def test_what_is_not_built_cannot_be(name):
    attempt, missing = zoo_pyg_attention.NOT_BUILT[name]
    with pytest.raises(ImportError, match=missing):
        attempt()


def test_every_exported_function_has_a_case():
    def walked(prefix=""):
        return {name.removeprefix(prefix).split(",")[0] for name in CASES if name.startswith(prefix)}

    reduce = zoo_pyg_reduce.functions_that_reduce()
    assert {"scatter", "softmax", "degree", "add_self_loops", "to_undirected"} <= reduce
    assert reduce - walked("utils.") - set(zoo_pyg_reduce.OF_INDICES) == set(), "reduces, and no case calls it"
    assert set(zoo_pyg_reduce.OF_INDICES) - reduce == set()
    functions = {name for name in pool.__all__ if inspect.isfunction(getattr(pool, name))}
    assert functions - walked() - set(zoo_pyg_pool.NOT_BUILT) == set()
    functions = {name for name in models.__all__ if not inspect.isclass(getattr(models, name))}
    assert functions - set(zoo_pyg_models.NO_MESSAGES) == {"to_captum_model"}, "walked where captum is installed"


def test_the_graphs_have_what_makes_a_graph_hard():
    for index, rows in (
        (zoo_pyg_graphs.isolated(), zoo_pyg_graphs.NODES),
        (zoo_pyg_graphs.bipartite(), zoo_pyg_graphs.TARGETS),
    ):
        pairs = index.t().tolist()
        assert len({tuple(pair) for pair in pairs}) < len(pairs), "edges that come twice"
        assert set(range(rows)) - {target for _, target in pairs}, "nodes without edges"
        assert pairs != sorted(pairs, key=lambda pair: pair[1]), "in no order"
    assert any(source == target for source, target in zoo_pyg_graphs.isolated().t().tolist()), "self loops"


def test_names_of_cases_are_unique():
    assert BOTH <= set(CASES)
    assert len(CASES) == len(zoo_pyg.CASES)


# --- the share on our kernels -----------------------------------------------------------------------------------------


def test_exceptions_name_cases_and_say_why():
    assert set(zoo_pyg.EXCEPTIONS) <= {"*", *CASES}
    assert all(why.strip() for table in zoo_pyg.EXCEPTIONS.values() for why in table.values())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in zoo_pyg.EXCEPTIONS if name != "*"])
def test_exceptions_are_needed(name):
    with_backend, _ = run_pair("pyg", CASES[name], SEED)
    assert set(zoo_pyg.EXCEPTIONS[name]) <= set(with_backend.fallbacks), "no call falls back for this reason any more"
    assert exceptions("pyg", CASES[name]) == {**zoo_pyg.EXCEPTIONS.get("*", {}), **zoo_pyg.EXCEPTIONS[name]}


def test_a_wrong_result_would_be_noticed():
    layer = gnn.SimpleConv("sum")

    def wrong(m):
        result = layer(m.x, zoo_pyg_graphs.isolated())
        return result * (1 + 1e-8) if gsb.status().enabled else result

    case = coverage.Case("wrong", lambda: coverage.Bound(x=zoo_pyg_conv.X), wrong)
    differences = compare(*run_pair("pyg", case))
    assert [each.split(":")[0] for each in differences] == ["output 0", "gradient of x"]

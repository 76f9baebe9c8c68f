"""The rooms of the package: what may import what, and how large they may be."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.layout import Package, circles, crowded, knots, long, misplaced, named, room_of, strangers

ROOT = Path(__file__).parents[1]
HOUSE = Package(ROOT / "gnn_sparse_backend")

_SETTINGS = {"config", "log"}
_BELOW_STRUCTURES = {"compiler", "config", "deferred", "formats", "frozen", "planner", "runtime"}
ROOMS = {
    # room: what it may import
    "extras": set(),
    "spelling": set(),
    "config": {"frozen", "spelling"},
    "log": {"config"},
    "deferred": set(),
    "frozen": set(),
    "system": set(),
    "dynamo": set(),
    "": _SETTINGS | {"deferred"},  # public names are imported when they are first used
    "compiler": {"config", "deferred", "frozen", "system"},
    "tensor": {"compiler", "frozen", "planner", "runtime"},
    "runtime": {"compiler", "config", "deferred", "system"},
    "formats": {"compiler", "deferred", "frozen"},
    "planner": {"compiler", "deferred", "frozen", "system"},
    "structures": _BELOW_STRUCTURES | {"dynamo", "system"},
    "sampling": {"compiler", "frozen", "runtime", "structures", "system"},
    "ops": _BELOW_STRUCTURES | {"log", "spelling", "structures"},
    "tuning": _BELOW_STRUCTURES | {"ops", "spelling", "structures", "system"},
    "distributed": {"frozen", "ops", "runtime", "structures", "system"},
    "nn": {"compiler", "dynamo", "formats", "frozen", "ops", "planner", "runtime", "structures"},
    "integrations": _BELOW_STRUCTURES
    | _SETTINGS
    | {"dynamo", "extras", "nn", "ops", "sampling", "spelling", "structures", "tuning"},
    "cli": _BELOW_STRUCTURES
    | _SETTINGS
    | {"", "extras", "integrations", "ops", "spelling", "structures", "system", "tuning"},
    "__main__": {"cli"},
}
FAMILIES = {
    # family: the others that it builds on, and why
    "core": {},
    "random": {"core": "every family"},
    "message": {"core": "every family"},
    "composed": {"core": "every family", "message": "a product with CSR alone is an aggregation"},
    "grouped": {"core": "every family", "message": "sums over segments are aggregations of edges into rows"},
    "attention": {
        "core": "every family",
        "message": "scores and values are messages, and what one pass cannot do is an aggregation or an edge map",
    },
    "chunked": {
        "core": "every family",
        "message": "sums of chunks are aggregations",
        "attention": "passes over the rows of a chunk are those of attention",
    },
    "relational": {
        "core": "every family",
        "grouped": "products of pairs by relation are grouped products",
        "message": "products are summed over edges by aggregations",
    },
    "masked": {"core": "every family"},
    "convolution": {
        "core": "every family",
        "message": "poolings and depthwise products are aggregations",
        "grouped": "an offset's pairs are rows of a group",
        "relational": "offsets are relations, where its panels are the faster dataflow",
    },
    "eager": {
        "core": "every family",
        "message": "messages are evaluated as they are written",
        "attention": "its forms are taken apart",
        "random": "what a mask says of rectified units",
        "masked": "attention composed of products, and changed scores as PyTorch evaluates them",
    },
}
LATE = {
    # (importer, imported): why an import within a function closes a circle
    ("compiler.language.program", "compiler.language.printer"): "a program prints itself by what knows all its parts",
    (
        "compiler.packs.toolchain",
        "",
    ): "the version of the package, which no module below it has, is a part of every key",
    (
        "integrations.minkowski.sparse_tensor",
        "integrations.minkowski.field",
    ): "what is sliced of a sparse tensor is a field, and the voxels of a field are a sparse tensor",
}
LIBRARIES = {
    # room: packages that it may import, beside Python's own
    "deferred": {"filelock", "rich", "scipy", "tvm", "tvm_ffi"},
    "dynamo": {"torch"},
    "compiler": {"numpy", "platformdirs", "tvm_ffi"},
    "planner": {"matplotlib", "numpy", "scipy"},
    "tensor": {"numpy", "scipy", "torch", "typing_extensions"},
    "formats": {"numpy", "torch"},  # indices are inferred on the tensors' own device
    "system": {"psutil"},
    "runtime": {"torch"},
    "structures": {"numpy", "scipy", "torch"},
    "sampling": {"numpy", "torch"},  # files of arrays are NumPy's
    "ops": {"numpy", "rich", "torch"},
    "tuning": {"numpy", "rich", "torch"},
    "distributed": {"dgl", "matplotlib", "numpy", "pymetis", "rich", "scipy", "torch"},
    "nn": {"rich", "torch"},
    "integrations": {
        *(
            "cumm",
            "dgl",
            "numpy",
            "psutil",
            "pymetis",
            "pytest",
            "rich",
            "scipy",
            "spconv",
            "transformers",
            "torch",
            "torch_geometric",
        ),
    },
    "cli": {"numpy", "rich", "scipy", "torch", "tvm"},
}
RECORDING = {"torch.library", "torch.autograd.Function"}
RECORDED = {
    "ops.chunked.mapped_sum": "a layer whose gradients are made chunk by chunk",
    "ops.chunked.gat": "the same of attention",
    # who records operators for autograd or for compiled programs, and why
    "ops.core.library": "torch.library of every Operator",
    "ops.core.operator": "autograd.Function of every Operator",
    "ops.message.sparse_rows": "maps by non-zeros, whose gradient is dense where what flows back is not finite",
    "tensor.gradients": "expressions, whose gradients are expressions of the same operands, and maxima over modes",
    "ops.core.transforms": "every Operator where a function of it is transformed",
    "integrations.lazy.history": "the history of tensors that nobody has computed",
    "integrations.dgl.spmm": "sums whose gradients depend on both operands in DGL's formulas",
    "integrations.torch.rectified": "a rectified unit whose gradient is one pass with that of its dropout",
    "integrations.torch_sparse.gustavson": "a product of sparse matrices, whose pattern is a result, too",
    "integrations.lazy.gathers": "a gather of a framework, whose gradient is an aggregation",
    "integrations.core.substitutes.namespaces": "operators of libraries, for who calls them by their names in C++",
    "integrations.core.substitutes.scripted": "what TorchScript calls in the place of functions of libraries",
    "integrations.pyg.scripting": "what TorchScript calls in the place of PyG's reductions",
}


def test_imports_between_rooms_point_down():
    assert misplaced(HOUSE, ROOMS, but=LATE) == []


def test_families_import_those_that_they_build_on():
    families = {family: set(others) for family, others in FAMILIES.items()}
    assert misplaced(HOUSE, families, "ops") == []


def test_the_table_of_families_has_no_circle():
    placed: set[str] = set()
    for family, others in FAMILIES.items():
        assert set(others) <= placed, f"{family} builds on what comes after it"
        placed.add(family)


def test_no_module_waits_for_itself():
    assert circles(HOUSE) == []


def test_imports_within_functions_close_no_circle():
    assert circles(HOUSE, late=True, but=LATE) == []


def test_no_files_name_each_other():
    knotted = knots(HOUSE, LATE) + knots(Package(ROOT / "models")) + knots(Package(ROOT / "benchmarks"))
    # expressions read buffers of programs, whose bounds are expressions
    assert knotted == [" and ".join(f"compiler.language.{name}" for name in ("expr", "program", "traversal"))]


def test_every_exception_is_needed():
    for each in LATE:
        others = {other: why for other, why in LATE.items() if other != each}
        assert misplaced(HOUSE, ROOMS, but=others) + circles(HOUSE, late=True, but=others), each
        assert all(found.late for found in HOUSE.imports if (found.importer, found.imported) == each), each
    used = {(room_of(each.importer, "ops"), room_of(each.imported, "ops")) for each in within("ops")}
    assert {(family, other) for family, others in FAMILIES.items() for other in others} <= used


def test_rooms_and_files_are_small():
    assert crowded(HOUSE) == [] and long(HOUSE) == []


def test_rooms_know_few_libraries():
    assert strangers(HOUSE, LIBRARIES, sys.stdlib_module_names) == []
    assert not {"torch"} & (LIBRARIES["compiler"] | LIBRARIES["planner"])


def test_the_compiler_and_the_planner_name_no_framework_for_types():
    lines = {name: re.findall(r"^ *(?:from|import) (\w+)", text, re.MULTILINE) for name, text in HOUSE.sources.items()}
    frameworks = {"torch", "dgl", "torch_geometric"}
    rooms = "compiler", "planner"
    assert [name for name, found in lines.items() if room_of(name) in rooms and frameworks & set(found)] == []


def test_operators_are_recorded_in_one_place():
    assert set(named(HOUSE, RECORDING)) == set(RECORDED)


def within(room: str):
    """Imports within a room."""
    return [each for each in HOUSE.imports if all(x.startswith(f"{room}.") for x in (each.importer, each.imported))]


# The checks themselves, on a small package, and on it with one thing wrong.

SMALL = {
    "__init__.py": "",
    "low/__init__.py": "",
    "low/one.py": "import os\nX = 1\n",
    "low/two.py": "from .one import X\n\ndef late():\n    from . import three\n    return three\n",
    "low/three.py": "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
    "if TYPE_CHECKING:\n    from ..high.top import top\n",
    "high/__init__.py": "",
    "high/top.py": "from ..low import two\nimport house.low.one\n\ndef top(): ...\n",
    "high/wing/__init__.py": "",
    "high/wing/left.py": "from ...low.one import X\n",
    "high/hall/__init__.py": "",
    "high/hall/right.py": "from ..wing import left\n",
}
ALLOWED = {"": set(), "low": set(), "high": {"low"}}


def built(folder: Path, changed: dict[str, str] = {}) -> Package:  # noqa: B006  # nobody writes to it
    """A package of these files, some of them changed."""
    for name, text in (SMALL | changed).items():
        path = folder / "house" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Package(folder / "house")


def problems(package: Package) -> list[str]:
    """By all checks."""
    return [
        *misplaced(package, ALLOWED),
        *misplaced(package, {"top": set(), "wing": set(), "hall": {"wing"}}, "high"),
        *circles(package),
        *circles(package, late=True),
        *crowded(package, 4),
        *long(package, 5),
        *strangers(package, {"high": {"numpy"}}, sys.stdlib_module_names),
        *named(package, RECORDING),
    ]


def test_a_small_package_without_faults(tmp_path):
    package = built(tmp_path)
    assert problems(package) == []
    assert {(each.importer, each.imported, each.late) for each in package.imports} == {
        ("low.two", "low.one", False),
        ("low.two", "low.three", True),
        ("high.top", "low.two", False),
        ("high.top", "low.one", False),
        ("high.wing.left", "low.one", False),
        ("high.hall.right", "high.wing.left", False),
    }


@pytest.mark.parametrize(
    ("changed", "check", "told"),
    [
        ({"low/one.py": "from ..high.top import top\n"}, misplaced, "low.one, line 1: imports high.top"),
        ({"low/one.py": "def f():\n    import house.high.top\n"}, misplaced, "low.one, line 2: imports high.top"),
        (
            {"low/one.py": "import importlib\nimportlib.import_module('house.high')\n"},
            misplaced,
            "low.one, line 2: imports high",
        ),
        ({"low/one.py": "import house\n"}, misplaced, "low.one, line 1: imports the package"),
        ({"cellar/one.py": ""}, misplaced, "cellar has no place among the rooms"),
        ({"low/one.py": "from .two import late\n"}, circles, "low.one and low.two"),
        ({"low/one.py": "class A:\n    from . import two\n"}, circles, "low.one and low.two"),
        (
            {"low/__init__.py": "from .three import X\n", "low/three.py": "from ..high.top import top\n"},
            circles,
            "low.three",
        ),
    ],
)
def test_wrong_imports_are_told(changed, check, told, tmp_path):
    package = built(tmp_path, changed)
    found = check(package, ALLOWED) if check is misplaced else check(package)
    assert any(told in each for each in found), found


def test_rooms_within_a_room(tmp_path):
    package = built(tmp_path, {"high/wing/left.py": "from ..hall import right\n", "high/hall/right.py": ""})
    families = {"top": set(), "wing": set(), "hall": {"wing"}}
    assert misplaced(package, families, "high") == ["high.wing.left, line 1: imports high.hall.right"]
    assert misplaced(package, families | {"wing": {"hall"}}, "high") == []


def test_circles_of_late_imports(tmp_path):
    package = built(tmp_path, {"low/three.py": "def f():\n    from .two import late\n    return late\n"})
    assert circles(package) == []
    assert circles(package, late=True) == ["low.three and low.two"]
    assert circles(package, late=True, but={("low.three", "low.two"): "a reason"}) == []


def test_files_that_name_each_other(tmp_path):
    package = built(tmp_path)
    assert circles(package, late=True) == [] and knots(package) == ["high.top and low.three and low.two"]
    assert knots(package, {("low.three", "high.top"): "a reason"}) == []


def test_sizes(tmp_path):
    package = built(tmp_path, {"low/four.py": "", "low/one.py": "x = 1\n" * 6})
    assert crowded(package, 4) == ["low: 5 files, 4 at most"]
    assert long(package, 5) == ["low.one: 6 lines, 5 at most"]


def test_strangers(tmp_path):
    package = built(
        tmp_path,
        {"low/one.py": "import numpy.linalg\n", "high/top.py": "import numpy as np\nfrom torch import nn\n"},
    )
    assert strangers(package, {"high": {"numpy"}}, sys.stdlib_module_names) == [
        "high.top, line 2: imports torch",
        "low.one, line 1: imports numpy.linalg",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\n\nclass F(torch.autograd.Function): ...\n",
        "from torch.autograd import Function\n",
        "from torch import library\n",
        "import torch.library\n",
        "import torch\ntorch.library.define('x', 'y')\n",
        "def f():\n    from torch.library import define\n    return define\n",
    ],
)
def test_names_of_other_packages(text, tmp_path):
    assert [*named(built(tmp_path, {"low/one.py": text}), RECORDING)] == ["low.one"]
    assert named(built(tmp_path, {"low/one.py": "# torch.library\nx = 'torch.autograd.Function'\n"}), RECORDING) == {}

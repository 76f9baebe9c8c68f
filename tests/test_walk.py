"""docs/architecture.md is true: imports run down its table of rooms, and calls enter what it says, in that order."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache import KernelStore, default
from gnn_sparse_backend.compiler.cache.disk import DiskCache
from gnn_sparse_backend.compiler.codegen import load
from gnn_sparse_backend.ops.message import schedules_cpu
from tests.layout import Package

PACKAGE = Path(gsb.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "architecture.md").read_text()
MOST_ROOMS = 8
# Functions that call what a room above has given them, by the words of the page.
GIVEN = {
    ("integrations/traced/eager_region.py", "asking"),
    ("integrations/core/refusal.py", "attempting"),
    ("ops/core/operator.py", "__call__"),
    ("ops/core/operator.py", "forward"),
    ("ops/core/operator.py", "gradients"),
    ("ops/core/executable.py", "build"),
    ("compiler/cache/bounded.py", "found"),
    ("structures/derived.py", "derived"),
    ("structures/derived.py", "kept"),
}
OF_VALUES = "__hash__", "__eq__"  # which a dictionary calls of its keys


class Entered(NamedTuple):
    """A function that was called, and the function of the package that called it, each as (file, name)."""

    function: tuple[str, str]
    caller: tuple[str, str] | None


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def tables(title: str) -> list[list[list[str]]]:
    """The cells of each row of the tables of a section, without their heads."""
    found = re.findall(r"(?:^\|.*\n)+", section(title), re.MULTILINE)
    return [[[cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines()[2:]] for text in found]


GROUND = ["config.py", "log.py", "deferred.py", "dynamo.py", "extras.py", "frozen.py", "spelling.py", "system.py"]
"""Files below all rooms."""


def rooms() -> list[str]:
    (table,) = tables("Rooms")
    return [name for row in table for name in re.findall(r"`([\w/]+)`", row[0])] + GROUND


@functools.cache
def room(file: str) -> str:
    """The room of a file, both as paths within the package: the longest that holds it."""
    found = [name for name in rooms() if file == name or file.startswith(f"{name}/")]
    assert found, f"{file} is in no room of docs/architecture.md"
    return max(found, key=len)


def steps(table: list[list[str]]) -> Iterator[tuple[str, str]]:
    """(file, function) of the rows of a walk, in their order."""
    for of_room, cell, _ in table:
        file, *names = re.findall(r"`([^`]+)`", cell)
        for name in names:
            yield f"{of_room.strip('`')}/{file}", name


def watched(call: Callable[[], object], enter: Callable[[FrameType], object]) -> None:
    """Make a call, and have ``enter`` given the frame of each function of the package that it enters."""

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(f"{PACKAGE}/"):
            enter(frame)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)


def file_of(frame: FrameType) -> str:
    """The file of a function, as a path within the package."""
    return frame.f_code.co_filename.removeprefix(f"{PACKAGE}/")


def entered(call: Callable[[], object]) -> list[Entered]:
    """The functions of the package that a call enters."""
    found = []

    def named(frame: FrameType | None) -> tuple[str, str] | None:
        while frame is not None and file_of(frame) == frame.f_code.co_filename:
            frame = frame.f_back
        return None if frame is None else (file_of(frame), frame.f_code.co_name)

    watched(call, lambda frame: found.append(Entered(named(frame), named(frame.f_back))))
    return found


def assert_walk(found: list[Entered], wanted: Iterable[tuple[str, str]]) -> None:
    """All that is wanted is entered, in this order."""
    functions = iter([each.function for each in found])
    for step in wanted:
        assert step in functions, f"{step} is not entered where docs/architecture.md says"


def outer(name: str) -> str:
    """The compiler's rooms are one, to those above."""
    return "compiler" if name.startswith("compiler/") else name


def rooms_of(found: list[Entered]) -> set[str]:
    return {outer(room(each.function[0])) for each in found}


def assert_never_up(found: list[Entered]) -> None:
    """But by functions that were handed down."""
    order = [outer(name) for name in rooms()]
    for function, caller in found:
        if caller is None or caller in GIVEN or function[1] in OF_VALUES:
            continue
        above, below = outer(room(caller[0])), outer(room(function[0]))
        assert order.index(above) <= order.index(below), f"{caller} calls up: {function}"


def test_imports_run_down_the_table_of_rooms():
    house = Package(PACKAGE)
    # a folder of rooms has a docstring at most
    modules = [name for name, text in house.sources.items() if name not in ("", "__main__", "ops") and text.strip()]
    place = {name: room(house.path_of(name)) for name in modules}
    order = rooms()
    assert set(place.values()) == set(order)
    imports = [each for each in (*house.imports, *house.for_types) if {each.importer, each.imported} <= place.keys()]
    height = {name: len(order) if found in GROUND else order.index(found) for name, found in place.items()}
    assert [str(each) for each in imports if height[each.importer] > height[each.imported]] == []


def a_graph() -> gsb.Graph:
    index = torch.randint(9, (2, 40), generator=torch.Generator().manual_seed(0))
    return gsb.Graph.from_edge_index(index, size=(9, 9))


def test_a_call_of_spmm_enters_what_the_page_says():
    graph, x = a_graph(), torch.ones(9, 6)
    known_call, unknown_call, first_on_a_graph, _ = tables("One call of `gsb.spmm`")
    for _ in range(2):
        gsb.spmm(graph, x)
    found = entered(lambda: gsb.spmm(graph, x))
    assert_walk(found, steps(known_call))
    assert rooms_of(found) == {row[0].strip("`") for row in known_call}
    assert_never_up(found)
    graph.calls.clear()
    found = entered(lambda: gsb.spmm(graph, x))
    assert_walk(found, steps(unknown_call))
    assert rooms_of(found) - {"compiler"} == {row[0].strip("`") for row in unknown_call} | {"planner"}
    assert_never_up(found)
    other = a_graph()
    found = entered(lambda: gsb.spmm(other, x))
    assert_walk(found, steps(first_on_a_graph))
    assert len(rooms_of(found)) <= MOST_ROOMS
    assert_never_up(found)


def test_the_first_call_of_a_width_enters_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.setattr(default.default_store, "_store", KernelStore(DiskCache(tmp_path), load))
    graph, x = a_graph(), torch.ones(9, 43)
    gsb.spmm(a_graph(), torch.ones(9, 41))  # modules are imported when first used, whichever test comes first
    schedules_cpu.aggregate_kernel.cache_clear()
    found = entered(lambda: gsb.spmm(graph, x))
    _, unknown_call, first_on_a_graph, first_of_a_width = tables("One call of `gsb.spmm`")
    assert_walk(found, steps(first_of_a_width))
    on_the_page = {outer(row[0].strip("`")) for row in (*unknown_call, *first_on_a_graph, *first_of_a_width)}
    assert rooms_of(found) - set(GROUND) == on_the_page and len(on_the_page) <= MOST_ROOMS
    assert_never_up(found)


def test_a_call_of_update_all_enters_what_the_page_says():
    dgl = pytest.importorskip("dgl")
    graph = dgl.graph(([0, 1, 2], [1, 2, 2]))
    graph.ndata["h"], graph.edata["w"] = torch.ones(3, 2), torch.ones(3, 1)

    def call():
        graph.update_all(dgl.function.u_mul_e("h", "w", "m"), dgl.function.sum("m", "y"))

    with gsb.enabled("dgl"):
        call()
        found = entered(call)
    (of_dgl,), (_, of_spmm, *_) = tables("One call of DGL's `update_all`"), tables("One call of `gsb.spmm`")
    above, below = (
        next(at for at, row in enumerate(table) if row[1].startswith("`operator.py`")) for table in (of_dgl, of_spmm)
    )
    whole = of_dgl[: above + 1] + of_spmm[below + 1 :] + of_dgl[above + 1 :]
    assert_walk(found, steps(whole))
    assert rooms_of(found) == {row[0].strip("`") for row in whole} | {"planner"}
    assert len(rooms_of(found)) <= MOST_ROOMS
    assert_never_up(found)


def test_a_walk_that_is_wrong_is_found():
    found = [
        Entered(("ops/message/api/spmm.py", "spmm"), None),
        Entered(("planner/choose.py", "plan_for"), ("ops/core/plans.py", "plan_of")),
        Entered(("ops/core/plans.py", "plan_of"), ("planner/choose.py", "plan_for")),
    ]
    assert_walk(found, [("ops/message/api/spmm.py", "spmm"), ("ops/core/plans.py", "plan_of")])
    with pytest.raises(AssertionError, match="'spmm'.* is not entered where"):
        assert_walk(found, [("ops/core/plans.py", "plan_of"), ("ops/message/api/spmm.py", "spmm")])
    with pytest.raises(AssertionError, match="'plan_for'.* calls up: .*'plan_of'"):
        assert_never_up(found)
    with pytest.raises(AssertionError, match="attic/old.py is in no room"):
        room("attic/old.py")

"""docs/design/journeys.md is true: it says how many files and rooms an operand passes on its way to a kernel."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple

import pytest
import torch

import gnn_sparse_backend as gsb
from tests.test_walk import PACKAGE, file_of, outer, room, watched

PAGE = (PACKAGE.parent / "docs" / "design" / "journeys.md").read_text()


class Journey(NamedTuple):
    """The files whose functions are given a value, in the order in which they are first entered."""

    files: tuple[str, ...]

    @property
    def rooms(self) -> set[str]:
        return {outer(room(file)) for file in self.files}


def same_storage(one: object, other: object) -> bool:
    """Whether one is a view of the other."""
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def journey(call: Callable[[], object], value: object) -> Journey:
    """Where a value goes: each function of the package that has it, or a view of it, as an argument, alone or in a
    tuple or list.
    """
    files: dict[str, None] = {}

    def is_it(argument: object) -> bool:
        if isinstance(argument, tuple | list):
            return any(each is value or same_storage(each, value) for each in argument)
        return argument is value or same_storage(argument, value)

    def enter(frame: FrameType) -> None:
        given = inspect.getargvalues(frame)
        names = [*given.args, *filter(None, (given.varargs, given.keywords))]
        if any(is_it(given.locals[name]) for name in names if name in given.locals):
            files.setdefault(file_of(frame))

    watched(call, enter)
    return Journey(tuple(files))


def spmm_of_graph() -> tuple[Callable[[], object], object]:
    index = torch.randint(9, (2, 40), generator=torch.Generator().manual_seed(0))
    graph, x = gsb.Graph.from_edge_index(index, size=(9, 9)), torch.ones(9, 6)
    return lambda: gsb.spmm(graph, x), graph


def rgms_of_weight() -> tuple[Callable[[], object], object]:
    draw = torch.Generator().manual_seed(0)
    edges, types = torch.randint(9, (2, 40), generator=draw), torch.randint(3, (40,), generator=draw)
    graph = gsb.RelGraph.from_edge_index(edges, types, num_relations=3, size=(9, 9))
    x, weight = torch.ones(9, 6), torch.ones(3, 6, 4)
    return lambda: gsb.rgms(graph, x, weight), weight


def convolution_of_features() -> tuple[Callable[[], object], object]:
    inputs = torch.arange(9).repeat(27)
    outputs = (inputs + torch.arange(27).repeat_interleave(9)) % 9
    kernel_map = gsb.KernelMap.from_pairs(inputs, outputs, 9 * torch.arange(28), (9, 9))
    features, weight = torch.ones(9, 6), torch.ones(27, 6, 4)
    return lambda: gsb.sparse_conv(features, weight, kernel_map), features


JOURNEYS = {
    "`graph` of `gsb.spmm`": spmm_of_graph,
    "`weight` of `gsb.rgms`": rgms_of_weight,
    "`features` of `gsb.sparse_conv`": convolution_of_features,
}


def table() -> dict[str, list[int]]:
    """The numbers of each row of the page's table of today."""
    today = PAGE.partition("\n## Today")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`\w+` of `[\w.]+`[^|]*) \|(.*)\|$", today, re.MULTILINE)
    return {name: [int(cell) for cell in cells.split("|")] for name, cells in rows}


@pytest.mark.parametrize("name", JOURNEYS)
def test_an_operand_passes_through_what_the_page_says(name):
    warm, _ = JOURNEYS[name]()
    warm()  # all is compiled and imported
    call, value = JOURNEYS[name]()
    first = journey(call, value)
    call()
    known = journey(call, value)
    found = [len(first.files), len(first.rooms), len(known.files), len(known.rooms)]
    own_loops = (
        ", by its own loops" if "ops/convolution/executables_cpu.py" in first.files else ""
    )  # the machine decides
    assert found == table()[name + own_loops], (
        f"first: {first.files}, {first.rooms}; known: {known.files}, {known.rooms}"
    )


def test_a_value_is_followed_into_tuples_and_no_other_is():
    graph, x = spmm_of_graph()[1], torch.ones(9, 6)
    assert "ops/core/operator.py" in journey(lambda: gsb.spmm(graph, x), x).files
    assert not journey(lambda: gsb.spmm(graph, x.clone()), x).files

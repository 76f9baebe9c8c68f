"""The suite runs with deferred messages, on graphs that are few edges, and with the immediate kernels alone."""

import pytest

pytest.importorskip("dgl")
pytest.importorskip("torch_geometric")

from tests.integrations.equality import pair

MODES = [True, *(pytest.param(mode, marks=pytest.mark.exhaustive) for mode in (pair.FEW_EDGES, False))]
_NAMES = {True: "deferred", False: "immediate", pair.FEW_EDGES: "few"}


@pytest.fixture(params=MODES, ids=_NAMES.get)
def deferred(request):
    """Whether messages may wait for their use; or that edges are few, of which nothing does."""
    return request.param


@pytest.fixture
def check(deferred):
    """``pair.check`` in the mode of the test."""

    def check(program, *frameworks, **options):
        pair.check(program, *frameworks, deferred=deferred, **options)

    return check

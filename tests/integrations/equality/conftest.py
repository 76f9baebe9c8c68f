"""The suite runs with deferred messages, and once more with the immediate kernels alone."""

import pytest

pytest.importorskip("dgl")
pytest.importorskip("torch_geometric")

from tests.integrations.equality import pair

MODES = [True, pytest.param(False, marks=pytest.mark.exhaustive)] if pair.HAS_SWITCH else [True]


@pytest.fixture(params=MODES, ids=lambda deferred: "deferred" if deferred else "immediate")
def deferred(request):
    """Whether messages may wait for their use."""
    return request.param


@pytest.fixture
def check(deferred):
    """``pair.check`` in the mode of the test."""

    def check(program, *frameworks, **options):
        pair.check(program, *frameworks, deferred=deferred, **options)

    return check

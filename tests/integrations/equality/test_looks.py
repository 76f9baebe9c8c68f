"""Every look at every layer: a program sees with the backend on what it sees with it off."""

from __future__ import annotations

import pytest
import torch

from tests.integrations.equality.every_look import LAYERS, OWN, cases, program, why_not
from tests.integrations.equality.looks import LOOKS
from tests.integrations.equality.pair import Raised, differing, run

PLAIN = [name for name, look in LOOKS.items() if not look.write and not look.compiled]
WRITES = [name for name, look in LOOKS.items() if look.write]
COMPILED = [name for name, look in LOOKS.items() if look.compiled]


def _check(framework, layer, look, check):
    if (reason := why_not(framework, layer, look)) is not None:
        pytest.skip(reason)
    check(program(framework, layer, look), framework, rough=LOOKS[look].rough)


@pytest.mark.short(64)
@pytest.mark.parametrize("framework, layer, look", cases(PLAIN, short=2))
def test_a_program_sees_the_same(framework, layer, look, check):
    _check(framework, layer, look, check)


@pytest.mark.short(64)
@pytest.mark.parametrize("framework, layer, look", cases(WRITES, short=1))
def test_a_program_that_writes_in_place_sees_the_same(framework, layer, look, check):
    _check(framework, layer, look, check)


@pytest.mark.slow
@pytest.mark.parametrize("framework, layer, look", cases(COMPILED, short=1))
def test_a_program_of_which_some_is_compiled_sees_the_same(framework, layer, look, check):
    torch._dynamo.reset()
    _check(framework, layer, look, check)


NO_TRANSFORMS = ("vmap", "functorch", "forward mode AD", "doesn't have storage")
"""What the errors say where DGL's own functions do not know a transform of PyTorch's."""


@pytest.mark.parametrize("framework", LAYERS)
def test_the_frameworks_alone_can_be_looked_at(framework):
    """A look that raises everywhere would show nothing."""
    layer = next(iter(OWN[framework]))
    for look in PLAIN:
        found, _ = run(program(framework, layer, look))
        if type(found) is Raised:
            assert framework == "dgl" and any(words in found.message for words in NO_TRANSFORMS), (look, found)


@pytest.mark.slow
@pytest.mark.parametrize("framework", LAYERS)
def test_the_frameworks_alone_see_the_same_twice(framework):
    for layer in list(OWN[framework])[:3]:
        for look in PLAIN:
            assert differing(program(framework, layer, look)) == [], (layer, look)

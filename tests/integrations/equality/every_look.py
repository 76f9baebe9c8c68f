"""All looks, layers and programs by name."""

from __future__ import annotations

import pytest

from tests.integrations.equality import (  # noqa: F401
    layers_dgl,
    layers_pyg,
    looks_gradients,
    looks_identity,
    looks_transforms,
    looks_writes,
)
from tests.integrations.equality.looks import LOOKS

LAYERS = {"pyg": layers_pyg.LAYERS, "dgl": layers_dgl.LAYERS}
OWN = {"pyg": layers_pyg.OWN, "dgl": layers_dgl.OWN}

LONG, LONG_COMPILED = 8, 3
"""At how many layers each look is in the long run."""
STRIDE = 7
"""How far apart these layers are in the list, so that they are of other kinds."""


def program(framework: str, layer: str, look: str):
    """The program that builds the layer and looks at it."""
    build, function = LAYERS[framework][layer], LOOKS[look].function
    return lambda: function(build())


def why_not(framework: str, layer: str, look: str) -> str | None:
    """Why the framework is no oracle of this look."""
    if framework == "dgl" and LOOKS[look].second and layer in layers_dgl.SOFTMAX:
        return "in DGL alone, the gradient of an edge softmax has no gradient, or a wrong one"
    return None


def cases(looks: list[str], short: int) -> list:
    """``(framework, layer, look)`` of each look at some layers in turn, of which the first ``short`` are of the short
    run; in the long run at ``LONG`` layers. A layer of a user's own comes first where a look is at what is in between.
    """
    found = []
    for framework, layers in LAYERS.items():
        names, inner = list(layers), list(OWN[framework])
        turn = dict.fromkeys((True, False), 0)
        for look in looks:
            between = LOOKS[look].between
            pool, most = (inner if between else names), (LONG_COMPILED if LOOKS[look].compiled else LONG)
            for number in range(min(most, len(pool))):
                layer = pool[(turn[between] + number * STRIDE) % len(pool)]
                marks = () if number < short else pytest.mark.exhaustive
                found.append(pytest.param(framework, layer, look, id=f"{framework}-{layer}-{look}", marks=marks))
            turn[between] += 1
    return found

"""A small graph of three node types for layers over several, and such a layer as a function of tensors."""

from __future__ import annotations

import torch

from tests.integrations.pyg.pair import features

COUNTS = {"user": 7, "item": 9, "shop": 4}
RELATIONS = {
    ("user", "likes", "item"): 600,
    ("user", "knows", "user"): 25,
    ("shop", "sells", "item"): 12,
    ("item", "liked by", "user"): 30,
    ("item", "like", "item"): 0,
}


def edges():
    """By relation a (2, E) edge index."""
    generator = torch.Generator().manual_seed(3)
    return {
        name: torch.stack([torch.randint(0, COUNTS[name[end]], (count,), generator=generator) for end in (0, 2)])
        for name, count in RELATIONS.items()
    }


def inputs(widths=None):
    """The features of each node type, six where ``widths`` does not say."""
    return [
        features((widths or {}).get(kind, 6), nodes=count, seed=seed)
        for seed, (kind, count) in enumerate(COUNTS.items())
    ]


class Flat(torch.nn.Module):
    """A layer as a function of the features of each type: outputs in one tensor."""

    def __init__(self, conv, call=None, given=None):
        super().__init__()
        self.conv, self.call, self.given = conv, call, edges() if given is None else given

    def forward(self, *inputs):
        x = dict(zip(COUNTS, inputs))
        out = (
            self.conv(x, self.given)
            if self.call is None
            else self.call(self.conv, x, self.given, inputs[len(COUNTS) :])
        )
        return torch.cat([out[kind].flatten() for kind in sorted(out)])

"""Records what spconv computes on the CPU: ``python -m tests.nn.record_spconv`` where spconv 2 is installed."""

from __future__ import annotations

import json
from pathlib import Path

import torch

RECORD = Path(__file__).with_name("recorded_spconv.json")
SHAPE = (6, 5, 4)


def main() -> None:
    import spconv
    import spconv.pytorch as sp

    torch.manual_seed(0)
    sites = torch.cat([torch.randint(0, 2, (30, 1)), torch.stack([torch.randint(0, n, (30,)) for n in SHAPE], 1)], 1)
    sites = sites.unique(dim=0)
    sites = sites[torch.randperm(len(sites))].int()
    features = torch.randn(len(sites), 2)
    native = {"algo": sp.ConvAlgo.Native}
    layers = torch.nn.ModuleDict(
        {
            "submanifold": sp.SubMConv3d(2, 4, 3, indice_key="a", **native),
            "down": sp.SparseConv3d(4, 3, (3, 2, 1), (2, 2, 1), (1, 0, 0), indice_key="b", **native),
            "inverse": sp.SparseInverseConv3d(3, 2, (3, 2, 1), indice_key="b", **native),
        }
    )
    x, results = sp.SparseConvTensor(features, sites, SHAPE, 2), {}
    for name, layer in layers.items():
        x = layer(x)
        results[name] = {"coordinates": x.indices.tolist(), "features": x.features.tolist()}
    state = {name: value.tolist() for name, value in layers.state_dict().items()}
    record = {"spconv": spconv.__version__, "coordinates": sites.tolist(), "features": features.tolist()}
    RECORD.write_text(json.dumps(record | {"state": state, "results": results}) + "\n")


if __name__ == "__main__":
    main()

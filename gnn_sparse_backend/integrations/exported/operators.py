"""Every operator that a package may call, known to PyTorch: a program is read where its operators are there."""

from __future__ import annotations

import torch

from ...deferred import import_module

_PACKAGE = __name__.rsplit(".", 3)[0]
_MODULES = (
    *("ops.attention.operators", "ops.composed.operators", "ops.convolution.traced_sites"),
    *(
        "ops.grouped.half_products",
        "ops.grouped.operators",
        "ops.masked.operators",
        "ops.message.operators",
        "ops.message.products",
    ),
    *("ops.message.reductions.argmax_scatter", "ops.message.reductions.recurrence", "ops.message.shared_maps"),
    *("ops.random.dropout", "ops.random.masked", "ops.relational.operators"),
    *("integrations.exported.relations", "integrations.traced.dropouts", "integrations.traced.edges"),
    "integrations.traced.segments",
)


def register() -> None:
    """Have PyTorch know all operators, and how they enter a package."""
    for module in _MODULES:
        import_module(f"{_PACKAGE}.{module}")
    torch.ops.gsb  # noqa: B018  (what is declared is registered when the namespace is read)

"""Epochs of many machines, from what one was measured to do. A prediction: none of it has been run.

A machine has its share of rows and edges. Sums over inner edges hide as much of an exchange as they take; a machine
sends its halo once for every layer forward and, but for the first, once backward, and gradients twice (a ring).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.partitioned.graphs import COMMUNITY, LOCALITY


@dataclass(frozen=True)
class Rates:
    """Of one machine. edge, flop: seconds of an edge's number in a sum, and of a floating-point operation of dense
    layers. byte: seconds to pack, unpack and add a byte of a halo. latency: of a message. row: seconds of a number of a
    layer's rows in whatever is none of these: activations, their gradients, loss and optimiser.
    """

    edge: float
    flop: float
    byte: float
    latency: float
    row: float = 0.0

    def of_a_process(self, processes: int, latency: float) -> Rates:
        """Of each of several processes that share the machine evenly."""
        each = (processes * rate for rate in (self.edge, self.flop, self.byte))
        return Rates(*each, latency, processes * self.row)


@dataclass(frozen=True)
class Shape:
    """A graph and a model. halo: rows of a machine's halo over its own rows. inner: share of edges from own rows."""

    nodes: float
    edges: float
    width: int
    layers: int
    halo: float
    inner: float


def halo_of(nodes: float, edges: float, machines: int) -> tuple[float, float]:
    """(halo rows over own rows, share of inner edges) of ranges of whole communities, by counting: of the edges that
    leave their community the sources are any nodes, and a source counts once.
    """
    own = nodes / machines
    away = edges / machines * (1 - LOCALITY) * (1 - 1 / machines)
    others = nodes - own
    rows = others * -np.expm1(-away / others) if others > 0 else 0.0
    assert own >= COMMUNITY
    return rows / own, 1 - (1 - LOCALITY) * (1 - 1 / machines)


def seconds(shape: Shape, machines: int, rates: Rates, bandwidth: float) -> dict[str, float]:
    """An epoch's time and its parts. bandwidth: bytes a second of a machine, each way; 0 for none in between."""
    rows, edges = shape.nodes / machines, shape.edges / machines
    exchanges = 2 * shape.layers - 1 if machines > 1 else 0
    passes = 2 * shape.layers - 1  # sums, forward and backward: the first layer's input has no gradient
    sums = passes * edges * shape.width * rates.edge
    dense = 3 * shape.layers * 2 * 2 * rows * shape.width**2 * rates.flop
    rest = shape.layers * rows * shape.width * rates.row
    sent = exchanges * rows * shape.halo * shape.width * 4
    packing = sent * rates.byte
    wire = (sent / bandwidth if bandwidth else 0.0) + exchanges * (machines - 1) * rates.latency
    hidden = min(wire, sums * shape.inner)
    parameters = shape.layers * 2 * shape.width**2 * 4
    gradients = 2 * parameters / bandwidth + 2 * (machines - 1) * rates.latency if machines > 1 and bandwidth else 0.0
    return {
        "epoch": sums + dense + rest + packing + wire - hidden + gradients,
        "compute": sums + dense + rest,
        "packing": packing,
        "wire": wire,
        "waited": wire - hidden,
        "gradients": gradients,
        "sent": sent,
    }


def calibrated(rates: Rates, shape: Shape, measured: float) -> Rates:
    """With the rate of all that is neither a sum nor a product, from the seconds of an epoch of one machine."""
    rest = measured - seconds(shape, 1, rates, 0.0)["epoch"]
    return replace(rates, row=max(rest, 0.0) / (shape.layers * shape.nodes * shape.width))


def memory(shape: Shape, machines: int) -> float:
    """Bytes of a machine: indices of the edges both ways, in the whole and by inner and outer (24 bytes each, twice
    over), and for each layer input, sum, output and their gradients, halos too.
    """
    rows, edges = shape.nodes / machines, shape.edges / machines
    return edges * 48 + rows * (1 + shape.halo) * shape.width * 4 * 6 * shape.layers

"""The relational graphs of the RGCN benchmark: real ones, and generated ones with the sizes of known data sets.

Sizes of AIFB, MUTAG, BGS and AM are those of DGL's data sets, inverse edges included; of ogbl-biokg those of its
training set (Hu et al., "Open Graph Benchmark", 2020), node types included. What matters for the cost is how many
distinct (node, relation) pairs the edges have at either end, so reports state it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.support.graphs import Unavailable, data_file


@dataclass(frozen=True)
class RelationalGraph:
    """Edges by relation. source, destination, relation: (E,) int64, each edge once; ``relation`` ascends."""

    name: str
    origin: str
    nodes: int
    num_relations: int
    source: np.ndarray
    destination: np.ndarray
    relation: np.ndarray

    @property
    def num_edges(self) -> int:
        return len(self.source)

    @cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """For each relation its distinct destinations, and its distinct sources: two of (R,) int64."""

        def count(ends: np.ndarray) -> np.ndarray:
            return np.bincount(np.unique(self.relation * self.nodes + ends) // self.nodes, minlength=self.num_relations)

        return count(self.destination), count(self.source)

    @cached_property
    def norm(self) -> np.ndarray:
        """(E, 1) float32: one over the number of edges of the same relation into the same destination."""
        _, pair, counts = np.unique(
            self.relation * self.nodes + self.destination, return_inverse=True, return_counts=True
        )
        return (1 / counts[pair]).astype(np.float32)[:, None]

    def describe(self) -> dict:
        rows, columns = (int(found.sum()) for found in self.pairs)
        sizes = np.bincount(self.relation, minlength=self.num_relations)
        return {
            "name": self.name,
            "origin": self.origin,
            "nodes": self.nodes,
            "edges": self.num_edges,
            "relations": self.num_relations,
            "largest_relation": int(sizes.max(initial=0)),
            "destination_pairs": rows,
            "source_pairs": columns,
            "fewer_pairs": int(np.minimum(*self.pairs).sum()),
            "max_in_degree": int(np.bincount(self.destination, minlength=1).max()),
        }


def of_triples(name: str, origin: str, nodes: int, relations: int, source, destination, relation) -> RelationalGraph:
    """The graph of (E,) triples, sorted by relation."""
    order = np.argsort(relation, kind="stable")
    return RelationalGraph(
        name,
        origin,
        nodes,
        relations,
        *(np.ascontiguousarray(a[order], np.int64) for a in (source, destination, relation)),
    )


ONE_EDGE = of_triples("one edge", "", 1, 1, *np.zeros((3, 1), np.int64))


def rdf(
    nodes: int, edges: int, relations: int, seed: int, skew: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(source, destination, relation) of a knowledge graph with the inverse of each relation; all three (edges,).

    Half of the relations have edges of their own, their numbers as rank^-skew; relation r + relations / 2 has those of
    r reversed. Two relations of five are attributes: a subject has one, and the values are few, some of them far more
    frequent than others. Two have an object that is nearly the subject's own, as literals and blank nodes are: in such
    data sets nodes are a third to two thirds as many as triples. One links subjects to objects, both with a mild skew.
    Subjects of a relation are consecutive nodes, as the instances of a class are.
    """
    rng = np.random.default_rng(seed)
    half, own = relations // 2, edges // 2
    sizes = _shares(own, np.arange(1, half + 1, dtype=float) ** -skew)
    found = []
    for number, size in enumerate(sizes):
        if number % 5 < 4 and size <= nodes:
            subjects = _range(nodes, size, rng)
            few = number % 2 == 0
            values = _range(nodes, int(size ** rng.uniform(0.2, 0.7) if few else size * rng.uniform(0.5, 1.0)) + 2, rng)
            source, destination = subjects, values[_skewed(len(values), len(subjects), 1.0 if few else 0.0, rng)]
        else:
            subjects, objects = (_range(nodes, int(size / rng.uniform(1, 3)) + 2, rng) for _ in range(2))
            source, destination = _links(subjects, objects, size, 0.4, nodes, rng)
        found.append((source, destination, np.full(size, number)))
    source, destination, relation = (np.concatenate(part) for part in zip(*found))
    return (
        np.concatenate((source, destination)),
        np.concatenate((destination, source)),
        np.concatenate((relation, relation + half)),
    )


# (node type of the source, of the destination, edges); node types by their numbers of nodes
_BIOKG_NODES = {"disease": 10_687, "drug": 10_533, "function": 45_085, "protein": 17_499, "sideeffect": 9_969}
_BIOKG = (
    ("disease", "protein", 73_547),
    ("drug", "disease", 5_147),
    ("drug", "protein", 117_930),
    ("drug", "sideeffect", 157_479),
    ("function", "function", 1_433_230),
    ("protein", "function", 777_577),
)
_BIOKG_EDGES = 4_762_678


def biokg(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(source, destination, relation) with the sizes of ogbl-biokg: 51 relations, of which 38 between drugs and 7
    between proteins share equally what the other six leave."""
    rng = np.random.default_rng(seed)
    first = dict(zip(_BIOKG_NODES, np.cumsum([0, *_BIOKG_NODES.values()])))
    rest = _BIOKG_EDGES - sum(count for *_, count in _BIOKG)
    shares = _shares(rest, np.ones(45))
    kinds = [
        *_BIOKG,
        *(("drug", "drug", count) for count in shares[:38]),
        *(("protein", "protein", count) for count in shares[38:]),
    ]
    found = []
    for number, (subject, value, count) in enumerate(kinds):
        ends = [first[kind] + rng.permutation(_BIOKG_NODES[kind]) for kind in (subject, value)]
        source, destination = _links(*ends, count, 0.7, 93_773, rng)
        found.append((source, destination, np.full(count, number)))
    return tuple(np.concatenate(part) for part in zip(*found))


def _shares(total: int, weights: np.ndarray) -> np.ndarray:
    """Integers of at least 1 that are about proportional to the weights and add up to ``total``."""
    shares = np.maximum(1, np.floor(total * weights / weights.sum()).astype(np.int64))
    shares[0] += total - shares.sum()
    return shares


def _range(nodes: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """At most ``count`` consecutive nodes somewhere, in random order."""
    count = min(nodes, max(1, count))
    return rng.integers(0, nodes - count + 1) + rng.permutation(count)


def _skewed(size: int, count: int, skew: float, rng: np.random.Generator) -> np.ndarray:
    """``count`` numbers below ``size``, number k with a probability proportional to (k + 1)^-skew."""
    total = np.cumsum(np.arange(1, size + 1, dtype=float) ** -skew)
    return np.minimum(np.searchsorted(total, rng.random(count) * total[-1], side="right"), size - 1)


def _links(
    subjects: np.ndarray, objects: np.ndarray, count: int, skew: float, nodes: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """``count`` distinct pairs of a subject and an object."""
    keys = np.empty(0, np.int64)
    for attempt in range(100):
        missing = count - len(keys)
        if missing == 0:
            break
        # where the popular ones are exhausted, the others have to do
        kind = skew if attempt < 4 else 0.0
        drawn = [ends[_skewed(len(ends), missing, kind, rng)] for ends in (subjects, objects)]
        keys = np.unique(np.concatenate((keys, drawn[0] * nodes + drawn[1])))
    if len(keys) < count:
        raise ValueError(f"{count} distinct edges do not fit {len(subjects)} subjects and {len(objects)} objects")
    return keys // nodes, keys % nodes


def _real(name: str) -> RelationalGraph:
    from models import relational_data

    data_file(f"{name}.npz")
    data = relational_data.load(name, "dgl", nodes=0, edges=0, seed=0)
    return of_triples(
        name, "real", data.num_nodes, data.num_relations, *data.edge_index.numpy(), data.edge_type.numpy()
    )


@dataclass(frozen=True)
class Recipe:
    """How to get a graph; ``load`` takes a seed. edges: about how many, for dividing the time of a run."""

    load: Callable[[int], RelationalGraph]
    edges: int


def _generated(name: str, title: str, nodes: int, edges: int, relations: int) -> Recipe:
    return Recipe(
        lambda seed: of_triples(
            name, f"generated at {title}'s size", nodes, relations, *rdf(nodes, edges, relations, seed)
        ),
        edges,
    )


RECIPES: dict[str, Recipe] = {
    "debian": Recipe(lambda seed: _real("debian"), 780_532),
    "wordnet": Recipe(lambda seed: _real("wordnet"), 729_104),
    "aifb": _generated("aifb", "AIFB", 7_262, 48_810, 78),
    "mutag": _generated("mutag", "MUTAG", 27_163, 148_100, 46),
    "bgs": _generated("bgs", "BGS", 94_806, 672_884, 96),
    "biokg": Recipe(
        lambda seed: of_triples("biokg", "generated at ogbl-biokg's size", 93_773, 51, *biokg(seed)), _BIOKG_EDGES
    ),
    "am": _generated("am", "AM", 1_885_136, 5_668_682, 96),
}


def load_available(names: Iterable[str], seed: int) -> Iterable[RelationalGraph | tuple[str, str]]:
    """Each graph when it is asked for; (name, reason) for one whose data are not here."""
    for name in names:
        try:
            yield RECIPES[name].load(seed)
        except Unavailable as missing:
            yield name, str(missing)

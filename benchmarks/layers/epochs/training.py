"""Training of a network, on a full graph or on neighbour-sampled batches, as the benchmarks of epochs time it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch

import gnn_sparse_backend as gsb
from benchmarks.layers.epochs.networks import Network, edges_of
from benchmarks.layers.epochs.work import network_work
from benchmarks.operators.work import NOTHING, Pattern, Work
from models.dataset import Dataset
from models.neighbours import NeighbourSampler


class Training:
    """Full-batch training of one network; ``epoch()`` is one step, and keeps its loss in ``losses``.

    The random state is set at each epoch, so that all variants draw the same dropout masks.

    kind: of the layers (``networks.KINDS``). backend, reuse: whether `gsb.enable` and `gsb.reuse_memory` are on.
    autocast: to bfloat16. compiled: by ``torch.compile``.
    """

    repeats = True
    """Whether two variants see the same numbers."""

    def __init__(
        self,
        framework: str,
        dataset: Dataset,
        *,
        hidden: int,
        layers: int,
        dropout: float,
        seed: int,
        backend: bool,
        reuse: bool = False,
        device: torch.device | str = "cpu",
        kind: str = "sage",
        autocast: bool = False,
        compiled: bool = False,
    ) -> None:
        torch.manual_seed(seed)
        self._widths = [dataset.features.shape[1]] + [hidden] * (layers - 1) + [dataset.num_classes]
        network = Network(framework, kind, self._widths, dropout).to(device)
        self._model = torch.compile(network) if compiled else network
        dataset = dataset.to(device)
        self._graph = edges_of(framework, kind, dataset, seed)
        self._dataset = dataset
        self._optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
        self._train = dataset.train.nonzero().squeeze(1)
        self._labels = dataset.labels[self._train]
        self._seed = seed
        self._framework, self._backend, self._reuse = framework, backend, reuse
        self._kind, self._autocast = kind, autocast
        self.losses: list[float] = []

    def step(self) -> tuple[torch.Tensor]:
        """One step; the loss stays where it is, so that nobody waits for it."""
        return (self._step(self._graph, self._dataset.features, self._train, self._labels),)

    def _step(self, graph, x: torch.Tensor, rows: torch.Tensor | slice, labels: torch.Tensor) -> torch.Tensor:
        """A step on the logits of these rows."""
        self._optimizer.zero_grad()
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self._autocast):
            loss = torch.nn.functional.cross_entropy(self._model(graph, x)[rows], labels)
        loss.backward()
        self._optimizer.step()
        return loss.detach()

    def epoch(self) -> None:
        torch.manual_seed(self._seed + len(self.losses))
        self.losses.append(self.step()[0].item())

    def work(self) -> Work:
        """The least that an epoch must do."""
        return network_work(self._framework, self._kind, pattern_of(self._dataset), self._widths)

    @contextmanager
    def switched(self) -> Iterator[None]:
        """The variant's switches, for the epochs inside."""
        gsb.reuse_memory(self._reuse)
        try:
            with gsb.enabled(self._framework) if self._backend else nullcontext():
                yield
        finally:
            gsb.reuse_memory(False)


class SampledTraining(Training):
    """Training on batches of training nodes and their sampled neighbours, drawn anew in every epoch.

    Batches are the framework's own: blocks of DGL's NeighborSampler, or subgraphs as PyG's NeighborLoader gives them.
    ``sampling`` has, for each epoch, the seconds until its batches were there, which no backend changes. (DGL's sampler
    draws other neighbours at each run on several threads, whatever its seed.)

    fanouts: neighbours of a node in each layer. batch_size: training nodes of a batch. batches: of an epoch, at most;
    None for all.
    """

    def __init__(
        self,
        framework: str,
        dataset: Dataset,
        *,
        fanouts: Sequence[int],
        batch_size: int,
        batches: int | None,
        **settings,
    ) -> None:
        super().__init__(framework, dataset, layers=len(fanouts), **settings)
        self.repeats = framework != "dgl"
        self._fanouts, self._batch_size, self._most = list(fanouts), batch_size, batches
        self._draw = {"dgl": self._blocks, "pyg": self._subgraphs}[framework]
        self._sampler = NeighbourSampler(dataset.edge_index, dataset.num_nodes) if framework == "pyg" else None
        self._patterns: list[list[Pattern]] = []
        self.sampling: list[float] = []

    def epoch(self) -> None:
        torch.manual_seed(self._seed + len(self.losses))
        self._patterns, losses, waited = [], [], 0.0
        begin = time.perf_counter()
        for graph, nodes, rows, labels, patterns in self._draw(self._train[torch.randperm(len(self._train))]):
            waited += time.perf_counter() - begin
            losses.append(self._step(graph, self._dataset.features[nodes], rows, self._dataset.labels[labels]))
            self._patterns.append(patterns)
            begin = time.perf_counter()
        self.sampling.append(waited)
        self.losses.append(torch.stack(losses).mean().item())

    def work(self) -> Work:
        """That of the last epoch: its steps, without the sampling."""
        total = NOTHING
        for patterns in self._patterns:
            for layer, pattern in enumerate(patterns):
                widths = self._widths[layer : layer + 2]
                total += network_work(self._framework, self._kind, pattern, widths, input_gradient=layer > 0)
        return total

    def _batches(self, order: torch.Tensor) -> Iterator[torch.Tensor]:
        yield from order.split(self._batch_size)[: self._most]

    def _blocks(self, order: torch.Tensor) -> Iterator[tuple]:
        import dgl

        dgl.seed(self._seed + len(self.losses))
        sampler = dgl.dataloading.NeighborSampler(self._fanouts)
        for seeds in self._batches(order):
            nodes, out, blocks = sampler.sample_blocks(self._graph[0], seeds)
            patterns = [
                Pattern(b.num_dst_nodes(), b.num_src_nodes(), b.num_edges(), b.num_dst_nodes(), b.num_src_nodes())
                for b in blocks
            ]
            yield (blocks,), nodes, slice(None), out, patterns

    def _subgraphs(self, order: torch.Tensor) -> Iterator[tuple]:
        for seeds in self._batches(order):
            nodes, edge_index = self._sampler.sample(seeds, self._fanouts)
            count = len(nodes)
            pattern = Pattern(count, count, edge_index.shape[1], count, count)
            yield (edge_index,), nodes, slice(len(seeds)), seeds, [pattern] * len(self._fanouts)


def without_edges(dataset: Dataset) -> Dataset:
    """The same nodes alone."""
    return dataclasses.replace(dataset, edge_index=dataset.edge_index[:, :0])


def one_edge(dataset: Dataset) -> Dataset:
    """Two nodes and an edge, with as many features and classes."""
    everything, nothing = torch.ones(2, dtype=torch.bool), torch.zeros(2, dtype=torch.bool)
    return Dataset(
        "one edge",
        "",
        torch.tensor([[0], [1]]),
        dataset.features[:2],
        torch.tensor([0, dataset.num_classes - 1]),
        everything,
        nothing,
        nothing,
    )


def pattern_of(dataset: Dataset) -> Pattern:
    sources, destinations = dataset.edge_index
    nodes = dataset.num_nodes
    return Pattern(nodes, nodes, dataset.num_edges, len(destinations.unique()), len(sources.unique()))

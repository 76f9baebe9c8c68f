"""Training of one model, on the whole graph or by mini-batches, with the backend off, on, or both ways in turns."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

import gnn_sparse_backend as gsb
from benchmarks.support import memory
from gnn_sparse_backend.tuning.precompile import seconds_of
from models.dataset import Dataset
from models.prepare import prepare

INFERENCES = 4  # the first indexes the whole graph again, the second measures memory; each draws mini-batches anew


@dataclass(frozen=True)
class Config:
    """Hyper-parameters, and how the trainings of a comparison take turns.

    turn: epochs in a row before the other training goes on. warmup: epochs at the start of each turn that the time
    leaves out: they compile kernels and index the graph, which the backend forgets when it is switched off.
    model: of the modules ``{model}_dgl`` and ``{model}_pyg``. bases: of relational models, of their matrices.
    batch: training nodes of a mini-batch, 0 for the whole graph; fanout: neighbours drawn for each node of a batch.
    evaluate: "batches" for mini-batches of so many nodes and neighbours, "full" for the whole graph, "" for what
    training has.
    precompile: time to compile and measure in what the layers run, before the backend's training; "" for none.
    device: where model and data are, "cpu" or "cuda"; mini-batches are drawn on the host.
    """

    hidden: int = 128
    layers: int = 2
    dropout: float = 0.5
    lr: float = 0.01
    weight_decay: float = 5e-4
    epochs: int = 30
    turn: int = 10
    warmup: int = 2
    seed: int = 0
    model: str = "sage"
    bases: int = 30
    batch: int = 0
    fanout: int = 10
    evaluate: str = ""
    precompile: str = ""
    device: str = "cpu"

    def __post_init__(self):
        for name in ("hidden", "layers", "epochs", "bases", "fanout"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.batch < 0:
            raise ValueError(f"batch must be at least 1, or 0 for the whole graph, got {self.batch}")
        object.__setattr__(self, "evaluate", self.evaluate or ("batches" if self.batch else "full"))
        if self.evaluate not in ("batches", "full"):
            raise ValueError(f"evaluate must be 'batches' or 'full', got {self.evaluate!r}")
        if self.evaluate == "batches" and not self.batch:
            raise ValueError("evaluate is 'batches', but batch is 0: say how many nodes a mini-batch has")
        if self.device not in ("cpu", "cuda"):
            raise ValueError(f"device must be 'cpu' or 'cuda', got {self.device!r}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")
        if self.precompile:
            seconds_of(self.precompile)
        if not self.lr > 0:
            raise ValueError(f"lr must be positive, got {self.lr}")
        if not 0 <= self.warmup < self.turn:
            raise ValueError(f"warmup must be in [0, turn = {self.turn}), got {self.warmup}")


@dataclass
class Run:
    """What one training gave. Seconds are of an epoch's training steps, drawing of mini-batches left out. Accuracies
    are of the final parameters. Inference seconds are of one pass over the whole graph, or, drawing left out, over the
    mini-batches that together have every validation and test node once. peak_bytes and inference_peak_bytes: what an
    epoch, and such a pass, take at most above what is there before them: of resident memory, of a GPU's what PyTorch
    has allocated; None where the system does not tell.
    """

    framework: str
    backend: str  # "off" or "on"
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    val_accuracy: float = float("nan")
    test_accuracy: float = float("nan")
    test_nodes: int = 0
    inference_seconds: float = float("nan")
    peak_bytes: int | None = None
    inference_peak_bytes: int | None = None
    own_calls: int = 0
    framework_calls: int = 0

    def timed(self, config: Config) -> list[int]:
        """The epochs whose time counts: those after a warm-up, or the last where there are none."""
        epochs = [epoch for epoch in range(len(self.seconds)) if epoch % config.turn >= config.warmup]
        return epochs or [len(self.seconds) - 1]

    def epoch_seconds(self, config: Config) -> float:
        """Median time of the epochs that count."""
        return statistics.median(self.seconds[epoch] for epoch in self.timed(config))

    @property
    def own_share(self) -> float | None:
        """Share of the framework's operator calls that ran on our kernels; None where the backend saw none."""
        calls = self.own_calls + self.framework_calls
        return self.own_calls / calls if calls else None


class Trainee:
    """A model with its optimiser, stepped with the backend switched as its run says."""

    def __init__(self, framework: str, backend: str, host: Dataset, dataset: Dataset, config: Config):
        """host, dataset: the same data, on the host and on the configuration's device."""
        module = importlib.import_module(f"models.{config.model}_{framework}")
        torch.manual_seed(config.seed)
        self.model = module.model_of(dataset, config).to(config.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
        self.graph = module.graph_of(dataset) if not config.batch or config.evaluate == "full" else None
        if backend == "on" and config.precompile:
            prepare(framework, dataset, config)
        self.batches = module.batches_of(host, config) if config.batch else None
        self.dataset, self.config = dataset, config
        self.run = Run(framework, backend, test_nodes=int(dataset.test.sum()))

    def turn(self, epochs: Iterable[int], on_epoch: Callable[[Run], None]) -> None:
        """Train these epochs; ``on_epoch`` is called after each."""
        self.model.train()
        with self._backend():
            for number, epoch in enumerate(epochs):
                # dropout depends on the seed and the epoch alone, so that trainings can take turns
                torch.manual_seed(self.config.seed * 1_000_003 + epoch)
                # memory is measured where the time does not count, after what is made once
                if 0 < number < self.config.warmup:
                    _, peak = measured(partial(self._epoch, epoch), self.config.device)
                    if peak is not None:
                        self.run.peak_bytes = max(self.run.peak_bytes or 0, peak)
                else:
                    self._epoch(epoch)
                on_epoch(self.run)

    def _epoch(self, epoch: int) -> None:
        losses, seconds, nodes = 0.0, 0.0, 0
        for graph, features, rows, labels in self._parts(epoch):
            start = self._clock()
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(graph, features)[rows], labels)
            loss.backward()
            self.optimizer.step()
            seconds += self._clock() - start
            losses += loss.item() * len(labels)
            nodes += len(labels)
        self.run.seconds.append(seconds)
        self.run.losses.append(losses / max(1, nodes))

    def _parts(self, epoch: int) -> Iterator[tuple]:
        """(graph, features, rows of the result that have labels, these labels): one for the whole graph, or
        mini-batches.
        """
        data = self.dataset
        if self.batches is None:
            yield self.graph, data.features, data.train, data.labels[data.train]
        else:
            yield from self.batches("train", epoch)

    @torch.no_grad()
    def evaluate(self) -> None:
        """Set the accuracies of the run, and time and memory of inference."""
        self.model.eval()
        infer = self._infer if self.config.evaluate == "full" else self._infer_batches
        with self._backend():
            passes = [infer(0)]
            second, self.run.inference_peak_bytes = measured(partial(infer, 1), self.config.device)
            passes += [second, *map(infer, range(2, INFERENCES))]
        self.run.inference_seconds = min(seconds for seconds, *_ in passes)
        _, *hits = passes[-1]
        self.run.val_accuracy, self.run.test_accuracy = (each.double().mean().item() for each in hits)

    def _infer(self, _: int) -> tuple[float, Tensor, Tensor]:
        """(seconds, whether each validation node is classified right, and each test node), on the whole graph."""
        data, start = self.dataset, self._clock()
        logits = self.model(self.graph, data.features)
        seconds = self._clock() - start
        hits = logits.argmax(1) == data.labels
        return seconds, hits[data.val], hits[data.test]

    def _infer_batches(self, number: int) -> tuple[float, Tensor, Tensor]:
        """The same by mini-batches, nodes in their order. Other ones for each ``number``: what the backend keeps of a
        graph that it has seen would make batches look faster than they are."""
        seconds, hits = (
            0.0,
            {part: [torch.empty(0, dtype=torch.bool, device=self.config.device)] for part in ("val", "test")},
        )
        for part, of_part in hits.items():
            for graph, features, rows, labels in self.batches(part, number):
                start = self._clock()
                logits = self.model(graph, features)
                seconds += self._clock() - start
                of_part.append(logits[rows].argmax(1) == labels)
        return seconds, *map(torch.cat, hits.values())

    def _backend(self):
        return _counted(self.run) if self.run.backend == "on" else nullcontext()

    def _clock(self) -> float:
        """Seconds, once the GPU has done what it was given."""
        if self.config.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def measured(work: Callable[[], object], device: str) -> tuple:
    """(what ``work`` gives, the bytes that it takes at most above what is there before: of resident memory, of a GPU's
    what PyTorch has allocated; None where the system does not tell).
    """
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return work(), torch.cuda.max_memory_allocated() - before
    try:
        memory.release()
        before = memory.resident()
        memory.reset_peak()
    except memory.CannotMeasure:
        return work(), None
    return work(), max(0, memory.peak() - before)


@contextmanager
def _counted(run: Run) -> Iterator[None]:
    """The backend switched on for a block, its calls added to ``run``."""
    before = _calls(run.framework)
    with gsb.enabled(run.framework):
        yield
    after = _calls(run.framework)
    run.own_calls += after[0] - before[0]
    run.framework_calls += after[1] - before[1]


def _calls(framework: str) -> tuple[int, int]:
    """Calls so far on our kernels and on the framework's own."""
    rows = [row for row in gsb.status().rows if row.framework == framework]
    return sum(row.ours for row in rows), sum(sum(row.fallbacks.values()) for row in rows)


def train(
    framework: str,
    backends: Sequence[str],
    dataset: Dataset,
    config: Config,
    on_epoch: Callable[[Run], None] = lambda run: None,
) -> list[Run]:
    """Train once for each entry of ``backends`` (``"off"``, ``"on"``), from the same initial parameters.

    The trainings take turns of ``config.turn`` epochs, the first to go changing each time, so that whatever else the
    machine does meets all of them alike. ``on_epoch`` is called after each epoch.
    """
    moved = dataset.to(config.device)
    trainees = [Trainee(framework, backend, dataset, moved, config) for backend in backends]
    for turn, first in enumerate(range(0, config.epochs, config.turn)):
        epochs = range(first, min(first + config.turn, config.epochs))
        for trainee in trainees if turn % 2 == 0 else reversed(trainees):
            trainee.turn(epochs, on_epoch)
    for trainee in trainees:
        trainee.evaluate()
    return [trainee.run for trainee in trainees]


# The two runs add float32 numbers in different orders. The loss of the first step, from equal parameters, shows a
# wrong kernel at once; later, training amplifies rounding, so that a few test nodes may change sides.
LOSS_TOLERANCE = 1e-4
ACCURACY_TOLERANCE = 0.005


def disagreement(off: Run, on: Run) -> str | None:
    """How the run with the backend differs from the one without by more than rounding explains; None if it does not."""
    first, other = off.losses[0], on.losses[0]
    if not abs(first - other) <= LOSS_TOLERANCE * abs(first):
        return f"loss of the first epoch: {first:.7g} without the backend, {other:.7g} with it"
    allowed = max(ACCURACY_TOLERANCE, 2 / max(1, off.test_nodes))
    if not abs(off.test_accuracy - on.test_accuracy) <= allowed:
        return f"test accuracy: {off.test_accuracy:.4f} without the backend, {on.test_accuracy:.4f} with it"
    return None

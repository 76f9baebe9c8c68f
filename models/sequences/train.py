"""Training of encoders on sequences that become longer, and what it gave."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import torch
from torch.nn.functional import cross_entropy

from benchmarks.support import memory
from models.sequences import task
from models.sequences.network import Encoder

ARMS = {
    # name: (what it is, arguments of Encoder)
    "global": ("window and a global token", {}),
    "window": ("window alone", {"global_token": False}),
    "dense": ("every pair by PyTorch, then the mask", {"dense": True}),
}
MOST_SEQUENCES = 32
CHECKS = 8
"""Batches of an evaluation."""


@dataclass(frozen=True)
class Config:
    """steps: of each length, which doubles from ``start`` to ``length``: Longformer was trained on sequences that grew,
    too. batch: sequences of full length in a step; of shorter ones there are more, up to MOST_SEQUENCES. window: tokens
    on either side.
    """

    length: int = 4096
    start: int = 16
    window: int = 64
    width: int = 64
    heads: int = 4
    layers: int = 2
    batch: int = 4
    steps: int = 40
    lr: float = 3e-3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("length", "start", "window", "width", "heads", "layers", "batch", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 2 <= self.start <= self.length:
            raise ValueError(f"start must be from 2 to length = {self.length}, got {self.start}")
        if self.width % self.heads:
            raise ValueError(f"heads must divide the width {self.width}, got {self.heads}")
        if not self.lr > 0:
            raise ValueError(f"lr must be positive, got {self.lr}")

    @property
    def lengths(self) -> list[int]:
        """Of the stages."""
        found = [self.length]
        while found[0] // 2 >= self.start:
            found.insert(0, found[0] // 2)
        return found

    def sequences(self, length: int) -> int:
        """In a step of this length."""
        return max(self.batch, min(MOST_SEQUENCES, self.batch * self.length // length))

    @property
    def reach(self) -> int:
        """How far away a token is that another can know of by windows alone."""
        return self.layers * self.window


@dataclass
class Run:
    """What a training gave. losses, lengths, seconds: of each step. accuracy: over all tokens of new sequences, and
    ``far_accuracy`` over those beyond the reach of windows. peak_bytes: what a step at full length takes at most, None
    where the system does not tell.
    """

    name: str
    losses: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    accuracy: float = float("nan")
    far_accuracy: float = float("nan")
    peak_bytes: int | None = None

    def step_seconds(self) -> float:
        """Median of the steps at full length, the first two left out: they make masks and compile kernels."""
        full = [each for each, length in zip(self.seconds, self.lengths) if length == self.lengths[-1]]
        full = sorted(full[2:] or full)
        return full[len(full) // 2]

    def to_dict(self) -> dict:
        return asdict(self)


def train(name: str, config: Config, on_step: Callable[[Run], None] = lambda run: None) -> Run:
    """Train one arm from the start. ``on_step`` is called after each step."""
    torch.manual_seed(config.seed)
    model = Encoder(config.width, config.heads, config.layers, config.window, **ARMS[name][1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    total = config.steps * len(config.lengths)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, config.lr, total_steps=total, pct_start=0.1)
    generator = torch.Generator().manual_seed(config.seed)
    run = Run(name)
    for length in config.lengths:
        for _ in range(config.steps):
            drawn = task.draw(config.sequences(length), length, generator)
            begin = time.perf_counter()
            loss = _step(model, optimizer, drawn)
            run.seconds.append(time.perf_counter() - begin)
            schedule.step()
            run.losses.append(loss)
            run.lengths.append(length)
            on_step(run)
    run.accuracy, run.far_accuracy = evaluate(model, config)
    run.peak_bytes = _peak(lambda: _step(model, optimizer, drawn))
    return run


def _step(model: Encoder, optimizer: torch.optim.Optimizer, drawn: task.Sequences) -> float:
    model.train()
    optimizer.zero_grad()
    scores = model(drawn.symbols, drawn.marks)
    answers = drawn.answer[:, None].expand(scores.shape[:2])
    loss = cross_entropy(scores.flatten(0, 1), answers.flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


@torch.no_grad()
def evaluate(model: Encoder, config: Config) -> tuple[float, float]:
    """(accuracy over all tokens, over those that windows cannot reach), of sequences that nobody was trained on."""
    model.eval()
    generator = torch.Generator().manual_seed(config.seed + 1)
    hits, far = [], []
    for _ in range(CHECKS):
        drawn = task.draw(config.batch, config.length, generator)
        hits.append(model(drawn.symbols, drawn.marks).argmax(-1) == drawn.answer[:, None])
        far.append(~task.reached(drawn, config.reach))
    right, apart = torch.cat(hits), torch.cat(far)
    return right.double().mean().item(), right[apart].double().mean().item()


def most_by_windows(config: Config) -> float:
    """The best accuracy that windows alone allow, on the sequences of the evaluation."""
    generator = torch.Generator().manual_seed(config.seed + 1)
    found = [task.best_within(task.draw(config.batch, config.length, generator), config.reach) for _ in range(CHECKS)]
    return sum(found) / len(found)


def _peak(call: Callable[[], object]) -> int | None:
    try:
        return memory.of_call(call)["step"]
    except memory.CannotMeasure:
        return None

"""``Prefetcher``: the next batch is made while this one is used."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Prefetcher(Generic[T]):
    """An iterable of batches, of which the next ones are made by a thread while one is used.

        batches = gsb.Prefetcher(order.split(1024), lambda seeds: sample_and_gather(seeds))
        for batch in batches: ...

    Kernels and PyTorch's operators let other threads run, so that sampling, and gathering features with
    ``index_select``, overlap a training step. Batches come in order, and an exception where its batch would have come.
    Each ``iter()`` begins anew, and its thread ends with it. What a batch draws from PyTorch's default generator it
    draws beside the step: give ``sample_neighbors`` a seed where runs are to be repeated.
    """

    def __init__(self, batches: Iterable[Any], make: Callable[[Any], T] | None = None, ahead: int = 2) -> None:
        """batches: a loader of PyG or DGL, or anything else. make: what is done to each. ahead: batches that wait at
        most."""
        if not isinstance(batches, Iterable):
            raise TypeError(f"Prefetcher: batches must be iterable, got {type(batches).__name__}")
        if make is not None and not callable(make):
            raise TypeError(f"Prefetcher: make must be a function of a batch, got {make!r}")
        if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 1:
            raise ValueError(f"Prefetcher: ahead must be at least 1, got {ahead!r}")
        self.batches, self.make, self.ahead = batches, make, ahead

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[T]:
        made: queue.Queue[tuple[str, Any]] = queue.Queue(self.ahead)
        stopped = threading.Event()

        def put(kind: str, value: Any = None) -> bool:
            """Whether somebody still waits for it."""
            while not stopped.is_set():
                try:
                    made.put((kind, value), timeout=0.1)
                    return True
                except queue.Full:
                    continue
            return False

        def work() -> None:
            try:
                for batch in self.batches:
                    if not put("batch", batch if self.make is None else self.make(batch)):
                        return
                put("end")
            except BaseException as error:
                put("error", error)

        thread = threading.Thread(target=work, name="gsb.Prefetcher", daemon=True)
        thread.start()
        try:
            while True:
                kind, value = made.get()
                if kind == "error":
                    raise value
                if kind == "end":
                    return
                yield value
        finally:
            stopped.set()
            thread.join()

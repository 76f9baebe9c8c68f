"""Draws against NumPy's mt19937 and against PyTorch, and the state that is left behind."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnn_sparse_backend.compiler.loops.mt19937 import bernoulli_function
from gnn_sparse_backend.ops.random import draws
from gnn_sparse_backend.ops.random.draws import draw_bernoulli, torch_draws_so

PROBABILITIES = (0.0, 1.0, 0.1, 0.5, 0.9999, 2.0**-53, 5e-324, 1 - 2.0**-53)
SIZES = (1, 2, 311, 312, 313, 623, 624, 625, 2496, 100_003)
LEFT = torch.ops.aten.bernoulli_.float  # PyTorch's, whatever stands in its place


def generator_at(words: int, seed: int = 7) -> torch.Generator:
    """A generator of which so many words were taken."""
    generator = torch.Generator().manual_seed(seed)
    if words:
        torch.rand(words, generator=generator)
    return generator


def copy_of(generator: torch.Generator) -> torch.Generator:
    return (
        generator.clone_state()
        if hasattr(generator, "clone_state")
        else torch.Generator().set_state(generator.get_state())
    )


def numpy_draws(generator: torch.Generator, count: int, p: float) -> np.ndarray:
    """u < p for 53 bits of two words each, the first of them above the second; by NumPy's generator."""
    state = generator.get_state().numpy()
    left, words = int(state[8:12].view(np.int32)[0]), state[24 : 24 + 8 * 624].view(np.uint64)
    mt19937 = np.random.MT19937()
    mt19937.state = {"bit_generator": "MT19937", "state": {"key": words.astype(np.uint32), "pos": 625 - left}}
    drawn = mt19937.random_raw(2 * count).astype(np.uint64)
    number = (drawn[0::2] << np.uint64(32) | drawn[1::2]) & np.uint64(2**53 - 1)
    return (number * 2.0**-53 < p).astype(np.uint8)


def check(count: int, words: int, p: float) -> None:
    ours = generator_at(words)
    numpy, theirs = copy_of(ours), copy_of(ours)
    drawn = draw_bernoulli(torch.full((count,), 9, dtype=torch.uint8), p, ours)
    np.testing.assert_array_equal(drawn.numpy(), numpy_draws(numpy, count, p))
    if torch_draws_so():
        assert torch.equal(drawn, LEFT(torch.empty(count, dtype=torch.uint8), p, generator=theirs))
        assert torch.equal(ours.get_state(), theirs.get_state())


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("words", [0, 1, 2, 3, 311, 622, 623, 624, 625, 1001])
def test_bits_and_state_are_those_of_mt19937(count, words):
    for p in PROBABILITIES:
        check(count, words, p)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6000), st.integers(0, 1300), st.floats(0, 1))
def test_of_any_count_from_any_word(count, words, p):
    check(count, words, p)


def test_a_threshold_that_is_met_exactly_is_not_below():
    """The lower words decide where the upper bits are equal, which is one draw in two million."""
    start = generator_at(5)
    state = start.get_state().numpy()
    words, left = state[24 : 24 + 8 * 624].view(np.uint64), int(state[8:12].view(np.int32)[0])
    mt19937 = np.random.MT19937()
    mt19937.state = {"bit_generator": "MT19937", "state": {"key": words.astype(np.uint32), "pos": 625 - left}}
    first, second = (int(x) for x in mt19937.random_raw(2))
    number = (first << 32 | second) & (2**53 - 1)
    for p, expected in ((number * 2.0**-53, 0), ((number + 1) * 2.0**-53, 1), ((number - 1) * 2.0**-53, 0)):
        assert draw_bernoulli(torch.empty(1, dtype=torch.uint8), p, copy_of(start)).item() == expected


def test_what_else_a_generator_keeps_is_untouched():
    """The seed, and the second of two normal numbers, which the next call gives."""
    ours, theirs = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    for generator in (ours, theirs):
        torch.randn(1, generator=generator, dtype=torch.float64)
    draw_bernoulli(torch.empty(5000, dtype=torch.uint8), 0.3, ours)
    LEFT(torch.empty(5000), 0.3, generator=theirs)
    assert torch.equal(ours.get_state(), theirs.get_state()) and ours.initial_seed() == 3
    for draw in (torch.randn, torch.rand):
        assert torch.equal(draw(3, generator=ours), draw(3, generator=theirs))


def test_without_a_generator_it_is_the_default_one():
    with torch.random.fork_rng():
        torch.manual_seed(11)
        drawn = draw_bernoulli(torch.empty(5000, dtype=torch.uint8), 0.3)
        after = torch.get_rng_state()
        torch.manual_seed(11)
        assert torch.equal(drawn, LEFT(torch.empty(5000, dtype=torch.uint8), 0.3))
        assert torch.equal(after, torch.get_rng_state())


def test_looking_how_torch_draws_disturbs_nobody():
    torch_draws_so.cache_clear()
    before = torch.get_rng_state()
    assert torch_draws_so() in (True, False)
    assert torch.equal(before, torch.get_rng_state())


def test_threads_share_one_sequence():
    """All that is drawn by several threads is, in some order, what one would draw."""
    ours, alone = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    found = [torch.empty(5000, dtype=torch.uint8) for _ in range(16)]
    threads = [threading.Thread(target=draw_bernoulli, args=(x, 0.5, ours)) for x in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [draw_bernoulli(torch.empty(5000, dtype=torch.uint8), 0.5, alone) for _ in found]
    assert sorted(x.numpy().tobytes() for x in found) == sorted(x.numpy().tobytes() for x in expected)
    assert torch.equal(ours.get_state(), alone.get_state())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_waits_for_no_thread_of_its_parent():
    draw_bernoulli(drawn := torch.empty(5000, dtype=torch.uint8), 0.5)
    with draws._turns.lock:
        child = os.fork()
        if not child:
            signal.alarm(20)
            draw_bernoulli(drawn, 0.5)
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_the_kernel_is_a_function_of_vectors():
    text = bernoulli_function().script()
    assert text.count("T.vectorized(8)") == 6 and "T.parallel" not in text

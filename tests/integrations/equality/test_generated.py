"""Random messages, reductions and looks: a program sees with the backend on what it sees with it off."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.integrations.equality.every_look import LAYERS, program, why_not
from tests.integrations.equality.looks import LOOKS
from tests.integrations.equality.random_layers import EXPRESSIONS, MAKE, REDUCTIONS

PLAIN = sorted(name for name, look in LOOKS.items() if not look.compiled)
COMPILED = sorted(name for name, look in LOOKS.items() if look.compiled)
QUIET = dict(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
# a failure is small as it is; to look for a smaller one takes minutes of new kernels
QUIET["phases"] = (Phase.explicit, Phase.generate)
MESSAGES = st.tuples(EXPRESSIONS, st.sampled_from(REDUCTIONS))


def _messages(framework, looks, check):
    @given(message=MESSAGES, look=st.sampled_from(looks))
    def property_of(message, look):
        if LOOKS[look].compiled:
            torch._dynamo.reset()
        function = LOOKS[look].function
        check(lambda: function(MAKE[framework](*message)), framework, rough=LOOKS[look].rough)

    return property_of


def _layers(framework, check):
    @given(layer=st.sampled_from(sorted(LAYERS[framework])), look=st.sampled_from(PLAIN))
    def property_of(layer, look):
        if why_not(framework, layer, look) is None:
            check(program(framework, layer, look), framework, rough=LOOKS[look].rough)

    return property_of


@pytest.mark.parametrize("framework", MAKE)
def test_random_messages(framework, check):
    settings(max_examples=12, **QUIET)(_messages(framework, PLAIN, check))()


@pytest.mark.parametrize("framework", MAKE)
def test_random_layers(framework, check):
    settings(max_examples=12, **QUIET)(_layers(framework, check))()


@pytest.mark.exhaustive
@pytest.mark.parametrize("framework", MAKE)
def test_many_random_messages(framework, check):
    settings(max_examples=1000, **QUIET)(_messages(framework, PLAIN, check))()


@pytest.mark.exhaustive
@pytest.mark.parametrize("framework", MAKE)
def test_many_random_layers(framework, check):
    settings(max_examples=2000, **QUIET)(_layers(framework, check))()


@pytest.mark.exhaustive
@pytest.mark.parametrize("framework", MAKE)
def test_random_messages_of_which_some_is_compiled(framework, check):
    settings(max_examples=10, **QUIET)(_messages(framework, COMPILED, check))()

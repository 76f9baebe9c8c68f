"""Whether a call of a framework is ours: asked once, where it comes in, and counted and logged there.

A function of a framework is replaced by ``boundary.admit(original, operator, run)``. ``run`` takes the arguments of
``original`` and returns one of

    (result, name)     it ran here, and is counted as ``name``; not at all where that is None, because the result stands
                       for something that is not computed yet
    Refusal(reason)    it is the framework's, for a reason that is counted
    PASS               it is the framework's, and nothing of ours: another operator that comes the same way

What ``run`` asks for on its way answers in the same words: a ``Refusal``, or what was asked for.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from inspect import Parameter, Signature
from types import CodeType, FunctionType
from typing import final

from torch.compiler import is_dynamo_compiling

from ...compiler.cache.background import in_background
from ...compiler.cache.bounded import kept
from ...compiler.packs.errors import NoKernelError, NoKernelWarning
from ...dynamo import not_traced
from ...frozen import renamed
from .counters import NO_KERNEL, fallback, ours
from .registry import IMMEDIATE
from .remedies import remedy_of
from .waiting import attempted, leaving


@final
class Refusal:
    """Why a call is not ours.

    reason: one of ``remedies.REMEDIES``, in which no sizes or values stand: each distinct one is counted. Which
    operator was refused is said where it is counted (``Boundary.admit``), since many ask the same. found: what was
    found in this call, with sizes and values, where the reason does not say all.
    """

    __slots__ = ("found", "reason")

    def __init__(self, reason: str, found: str = "") -> None:
        self.reason = reason
        self.found = found

    @property
    def remedy(self) -> str | None:
        """What the user can do about it; None for a reason that is in no table."""
        return remedy_of(self.reason)


PASS = Refusal("")
PENDING = Refusal("its kernel is being compiled")
FAILED = Refusal("its kernel cannot be compiled")


def attempt(run: Callable) -> Callable:
    """``run``, which refuses where a kernel that it wants has yet to be compiled in the background, or cannot be made
    here.
    """
    waiting = attempted(run, PENDING, FAILED)

    @functools.wraps(run)
    def attempting(*args, **kwargs):
        try:
            return waiting(*args, **kwargs)
        except NoKernelError as error:
            return _without_kernels(error)

    return attempting


@contextlib.contextmanager
def left(framework: str, operator: str | None, refusal: Refusal) -> Iterator[None]:
    """Inside the block a framework computes a call for which there is no kernel: all of it, by its own functions.

    operator: as of ``Boundary.admit``.
    """
    if operator is not None:
        fallback(framework, operator, refusal.reason)
    with leaving(PASS if operator is not None else refusal):
        yield


def refusal_of(reason: str | None) -> Refusal | None:
    """The refusal for a reason, where there is one."""
    return None if reason is None else Refusal(reason)


def _without_kernels(error: NoKernelError) -> Refusal:
    """The refusal of a call whose kernel cannot be made or loaded here, of which a warning tells why."""
    warnings.warn(f"{error}. Until then frameworks run by themselves", NoKernelWarning, stacklevel=3)
    return Refusal(NO_KERNEL)


class Boundary:
    """Where calls of one framework come in.

    Attributes:
        name: by which it is enabled and counted.
        traced: whether ``torch.compile`` traces into these functions; otherwise a program ends where one is called.
        deferred: types of arguments that may be, or hold, what we have not computed yet.
    """

    name: str
    traced = True
    deferred: frozenset[type] = frozenset()

    @property
    def deferring(self) -> bool:
        """Whether what is asked for may wait until it is known what for."""
        return self.name not in IMMEDIATE

    def computed(self, x, reason: str):
        """An ``x`` of a type in ``deferred`` as the framework takes it. reason: what it is wanted for."""
        raise NotImplementedError

    def entering(self, x):
        """An ``x`` of a type in ``deferred`` as ``run`` takes it."""
        return x

    def admit(
        self,
        original: Callable,
        operator: str | None,
        run: Callable,
        *,
        entering: bool = True,
        passes: Callable[..., bool] | None = None,
    ) -> Callable:
        """``original``, but ``run`` where that does not refuse.

        operator: what refusals are counted as, maybe with a parameter of ``run`` in it, ``"scatter.{reduce}"``; None
        where ``original`` comes by here again, further down, and is refused there. entering: whether ``run`` is given
        arguments as ``self.entering`` has them. passes: of the arguments, whether a call is none of ours for certain:
        asked first, where most calls are of the kind.
        """
        parameters = list(inspect.signature(run).parameters.values())
        names = {f"_{n}": each.name for n, each in enumerate(parameters)}
        numbered = [Parameter(number, each.kind) for number, each in zip(names, parameters)]
        given = ", ".join(_GIVEN.get(each.kind, "{0}").format(each.name) for each in numbered)
        compute = "; ".join(_COMPUTED_OF.get(each.kind, _COMPUTED).format(each.name) for each in numbered)
        counted = "_operator"
        if operator is not None and "{" in operator:
            counted = f"f{operator.format(**{name: f'{{{number}}}' for number, name in names.items()})!r}"
        source = _SOURCE.format(
            parameters=Signature(numbered),
            given=given,
            part="" if self.traced else _PART.format(given),
            eager="" if self.traced else _EAGER_REGION,
            passes="" if passes is None else _PASSES.format(given),
            pending=_PENDING.format(operator=counted, compute=compute, given=given) if in_background() else "",
            count="pass" if operator is None else f"_fallback(_framework, {counted}, _found.reason, _found.found)",
            enter="; ".join(_ENTERING.format(each.name) for each in numbered if each.kind in _ALONE)
            if entering and self.deferred
            else "pass",
            compute=compute,
        )
        bind = FunctionType(renamed(_code(source), names), dict(_KNOWN))
        # a tuple, since PyTorch 2.8 cannot trace what asks a frozenset; they are few
        deferred = tuple(self.deferred)
        waiting = attempted(run, PENDING, FAILED)
        bound = waiting, original, ours, fallback, deferred, self.computed, self.entering, passes
        asking = bind(*bound, NoKernelError, _without_kernels, self.name, operator)
        asking.__defaults__, asking.__kwdefaults__ = run.__defaults__, run.__kwdefaults__
        return functools.wraps(original)(asking)


@kept
def _code(source: str) -> CodeType:
    """The code of ``bind`` in `_SOURCE`, for parameters ``_0``, ``_1`` and so on: the same for most functions."""
    made = compile(source, "<string>", "exec").co_consts
    return next(each for each in made if isinstance(each, CodeType))


_KNOWN = {
    "FAILED": FAILED,
    "PASS": PASS,
    "PENDING": PENDING,
    "Refusal": Refusal,
    "is_dynamo_compiling": is_dynamo_compiling,
    "left": left,
    "not_traced": not_traced,
    "__name__": __name__,
    "__builtins__": vars(builtins),
}
"""What the functions know: names of this module, where those who trace programs look for them."""


# Written out for the parameters of each function, as the methods of a data class are: to pass on ``*args`` and
# ``**kwargs`` costs more than all else that is done here.
_SOURCE = """
def bind(
    _run, _original, _ours, _fallback, _deferred, _computed, _entering, _passes, _NoKernel, _without_kernels,
    _framework, _operator
):
    def asking{parameters}:{passes}{part}
        {enter}
        try:
            _found = _run({given})
        except _NoKernel as _error:
            _found = _without_kernels(_error){pending}
        if type(_found) is not Refusal:
            _result, _name = _found
            if _name is not None:
                _ours(_framework, _name)
            return _result
        if _found is not PASS:
            {count}
            {compute}
        return _original({given})
    {eager}
    return asking
"""
_PASSES = """
        if not is_dynamo_compiling() and _passes({0}):
            return _original({0})"""
_PENDING = """
        if _found is PENDING or _found is FAILED:
            with left(_framework, {operator}, _found):
                {compute}
                return _original({given})"""
_PART = """
        if is_dynamo_compiling():
            return _eager_region({})"""
_EAGER_REGION = "_eager_region = not_traced(asking)"
_GIVEN = {Parameter.KEYWORD_ONLY: "{0}={0}", Parameter.VAR_POSITIONAL: "*{0}", Parameter.VAR_KEYWORD: "**{0}"}
_ALONE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_ENTERING = "{0} = _entering({0}) if type({0}) in _deferred else {0}"
_COMPUTED = "{0} = _computed({0}, _found.reason) if type({0}) in _deferred else {0}"
_COMPUTED_OF = {
    Parameter.VAR_POSITIONAL: "{0} = [_computed(x, _found.reason) if type(x) in _deferred else x for x in {0}]",
    Parameter.VAR_KEYWORD: "pass",
}

"""Frozen dataclasses are what Python's own would be, in eager code and in compiled programs."""

from __future__ import annotations

import abc
import copy
import dataclasses
import inspect
import pickle
import re
from dataclasses import KW_ONLY, InitVar, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pytest
import torch

import gnn_sparse_backend
from gnn_sparse_backend import frozen

T = TypeVar("T")


def one() -> list:
    return [1]


def classes(dataclass) -> dict[str, Any]:
    """Frozen classes of every sort, made by a decorator."""

    @dataclass(frozen=True)
    class Empty:
        """Nothing."""

    @dataclass(frozen=True)
    class One:
        """One field, of the name that methods give their object."""

        self: int

    @dataclass(frozen=True)
    class Base:
        """A base."""

        a: int
        b: str = "b"

        def shown(self) -> str:
            return repr(self)

    @dataclass(frozen=True)
    class Below(Base, Generic[T]):
        """Fields behind those of a base, one of which has another default."""

        size: ClassVar[int] = 3
        c: tuple = field(default=(1,), repr=False)
        b: str = "other"
        d: list = field(default_factory=list, compare=False)

        def shown(self) -> str:
            return super().shown() + "!"

    @dataclass(frozen=True)
    class Named:
        """Fields by keyword, with and without defaults, and fields that are no argument."""

        a: int
        e: int = field(default=4, init=False)
        f: dict = field(default_factory=dict, init=False, hash=False)
        later: int = field(init=False, compare=False)
        _: KW_ONLY
        g: int
        h: list = field(default_factory=one, hash=False)
        i: int = 7

        def __post_init__(self) -> None:
            object.__setattr__(self, "later", self.a + self.g)

    @dataclass(frozen=True, eq=False)
    class ByIdentity:
        """Equal to itself alone."""

        a: list

    @dataclass(frozen=True, repr=False)
    class Own:
        """Methods of its own stay."""

        a: int
        b: int = 2

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and self.a == other.a

    @dataclass(frozen=True)
    class OwnHash(abc.ABC):
        """A hash of its own stays, and so does one that is none."""

        a: int

        def __hash__(self) -> int:
            return 5

        @abc.abstractmethod
        def run(self) -> int: ...

    @dataclass(frozen=True)
    class Concrete(OwnHash):
        """Has its hash of its fields again."""

        def run(self) -> int:
            return self.a

    @dataclass(frozen=True)
    class Unhashed:
        """Compared, and no key."""

        a: int
        __hash__ = None  # type: ignore[assignment]

    return {name: value for name, value in locals().items() if isinstance(value, type)}


OURS, THEIRS = classes(frozen.dataclass), classes(dataclasses.dataclass)
CALLS = [
    ("Empty", (), {}),
    ("Empty", (1,), {}),
    ("One", (3,), {}),
    ("One", (), {}),
    ("One", ([3],), {}),
    ("Base", (1,), {}),
    ("Base", (1, "x"), {}),
    ("Base", (), {"b": "x", "a": 2}),
    ("Base", (), {"b": "x"}),
    ("Base", (1,), {"z": 2}),
    ("Below", (1,), {}),
    ("Below", (1, "b", (2,), [3]), {}),
    ("Below", (1,), {"d": [4]}),
    ("Named", (1,), {"g": 2}),
    ("Named", (1, 2), {}),
    ("Named", (1,), {"g": 2, "h": [3], "i": 4}),
    ("Named", (1,), {"g": 2, "e": 4}),
    ("ByIdentity", ([1],), {}),
    ("Own", (1,), {}),
    ("Own", (1, 3), {}),
    ("OwnHash", (1,), {}),
    ("Concrete", (1,), {}),
    ("Unhashed", (1,), {}),
]


def told(call) -> Any:
    """What a call returns, or the kind of the error and its words."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def behaviour(made: dict[str, Any], name: str, args: tuple, named: dict) -> dict[str, Any]:
    """All that can be seen of an object."""
    cls = made[name]
    one, other = (told(lambda: cls(*args, **named)) for _ in range(2))
    if not isinstance(one, cls):
        return {"error": one}
    alike = [told(lambda each=each: each(*args, **named)) for each in made.values()]
    found = {
        "repr": repr(one) if cls.__repr__ is not object.__repr__ else "",
        "dict": vars(one),
        "hash": told(lambda: hash(one)) if cls.__hash__ is not object.__hash__ else "by identity",
        "equal": (one == other, one != other, one == one, one == args),
        "to others": [one == each for each in alike],
        "fields": [str(each) for each in dataclasses.fields(one)],
        "asdict": dataclasses.asdict(one),
        "copy": (copy.copy(one) == one, copy.deepcopy(one) == one, vars(copy.copy(one))),
        "replaced": [
            told(lambda each=each: vars(dataclasses.replace(one, **{each.name: 9}))) for each in dataclasses.fields(one)
        ],
        "set": [told(lambda each=each: setattr(one, each, 1)) for each in ("a", "self", "z", "later")],
        "deleted": [told(lambda each=each: delattr(one, each)) for each in ("a", "self", "z", "later")],
    }
    if "a" in vars(one):
        below = type("Undecorated", (cls,), {})
        loose = below(*args, **named)
        loose.free = 1  # type: ignore[attr-defined]
        found["of a subclass"] = (
            told(lambda: setattr(loose, "a", 1)),
            vars(loose),
            loose == one,
            told(lambda: loose.shown()),
        )
        del loose.free  # type: ignore[attr-defined]
        if not isinstance(told(lambda: delattr(loose, "free")), tuple):
            found["of a subclass"] += ("deleted twice",)
    return found


@pytest.mark.parametrize(("name", "args", "named"), CALLS)
def test_objects_are_what_python_makes(name, args, named):
    assert behaviour(OURS, name, args, named) == behaviour(THEIRS, name, args, named)


@pytest.mark.parametrize("name", OURS)
def test_classes_say_of_themselves_what_python_says(name):
    def said(cls) -> dict[str, Any]:
        return {
            "signature": str(inspect.signature(cls)),
            "annotations": cls.__init__.__annotations__,
            "qualified": [
                getattr(vars(cls).get(method), "__qualname__", None)
                for method in ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__")
            ],
            "options": repr(cls.__dataclass_params__),
            "fields": {key: str(value) for key, value in cls.__dataclass_fields__.items()},
            "match": cls.__match_args__,
            "attributes": sorted(vars(cls)),
            "defaults": {key: vars(cls)[key] for key in "abcefghi" if key in vars(cls)},
            "abstract": getattr(cls, "__abstractmethods__", None),
        }

    assert said(OURS[name]) == said(THEIRS[name])


def test_objects_are_equal_as_tuples_are():
    """Python 3.13 and later compare field by field, where what is not equal to itself differs."""
    nan = float("nan")
    assert OURS["Base"](nan) == OURS["Base"](nan) != OURS["Base"](float("nan"))


def test_an_object_that_holds_itself_is_shown():
    one = OURS["ByIdentity"]([])
    one.a.append(one)
    assert repr(one).endswith("ByIdentity(a=[...])")


def wrong(dataclass, which: str) -> None:
    """Make a class that is none."""
    if which == "order of defaults":

        @dataclass(frozen=True)
        class Defaults:
            a: int = 1
            b: int

    elif which == "mutable default":

        @dataclass(frozen=True)
        class Mutable:
            a: list = []  # noqa: RUF012

    elif which == "without a type":

        @dataclass(frozen=True)
        class Untyped:
            a = field(default=1)

    elif which == "base that is not frozen":

        @dataclasses.dataclass
        class Loose:
            a: int

        @dataclass(frozen=True)
        class Frozen(Loose):
            b: int

    else:

        @dataclass(frozen=True)
        class Setting:
            a: int

            def __setattr__(self, name: str, value: Any) -> None: ...


@pytest.mark.parametrize(
    "which", ["order of defaults", "mutable default", "without a type", "base that is not frozen", "its own setter"]
)
def test_what_python_refuses_is_refused(which):
    for dataclass in (dataclasses.dataclass, frozen.dataclass):
        with pytest.raises((TypeError, ValueError)):
            wrong(dataclass, which)


def test_what_is_left_to_python_is_refused():
    with pytest.raises(TypeError, match="not frozen"):
        frozen.dataclass(frozen=False)
    with pytest.raises(TypeError, match="slots"):
        frozen.dataclass(frozen=True, slots=True)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="InitVar"):

        @frozen.dataclass(frozen=True)
        class WithInitVar:
            a: InitVar[int]


def test_frozen_classes_of_the_package_are_made_here():
    """Those that change are Python's."""
    package = Path(gnn_sparse_backend.__file__).parent
    pythons = re.compile(r"^from dataclasses import .*\bdataclass\b", re.MULTILINE)
    theirs = re.compile(r"@dataclasses\.dataclass\(frozen=True|make_dataclass")
    found = [
        str(path.relative_to(package))
        for path in sorted(package.rglob("*.py"))
        if theirs.search(text := path.read_text())
        or (pythons.search(text) and re.search(r"@dataclass\(frozen=True", text))
    ]
    assert found == []


@frozen.dataclass(frozen=True)
class Scaled:
    """An object of a compiled program."""

    by: float
    name: str = "plain"
    extra: list = field(default_factory=list, compare=False)

    def __call__(self, x):
        return x * self.by + len(self.extra)


def test_objects_are_pickled_and_matched():
    one = Scaled(2.0, extra=[1])
    match pickle.loads(pickle.dumps(one)):
        case Scaled(by, "plain", extra=[last]):
            assert (by, last) == (2.0, 1)
        case _:
            pytest.fail("no match")


@frozen.dataclass(frozen=True)
class Key:
    """What a compiled program looks up."""

    at: int
    name: str = "a"


KEPT = {Key(2): 10.0}


def test_compiled_programs_make_and_read_objects():
    def program(x, given):
        made = dataclasses.replace(Scaled(3.0, name="made"), extra=[1])
        known = KEPT[Key(2)]
        return made(x) + given(x) + known + (given == Scaled(2.0)) + hasattr(made, "by")

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="eager", fullgraph=True)
    x = torch.arange(3.0)
    for given in (Scaled(2.0), Scaled(5.0), Scaled(2.0, "plain", [1, 2])):
        assert torch.equal(compiled(x, given), program(x, given))

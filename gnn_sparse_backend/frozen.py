"""``dataclasses.dataclass`` for frozen classes, without a compilation for each class.

Python writes the methods of a dataclass as text and compiles that when the class is made: a millisecond, at each
import, which was half of what the imports of this package took. Here methods are written for fields ``_0``, ``_1`` and
so on, each text is compiled once for all classes, and a class gets the code under the names of its own fields.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field
from reprlib import recursive_repr
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["dataclass", "renamed"]

C = TypeVar("C", bound=type)

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool, eq: bool = True, repr: bool = True) -> Callable[[C], C]:
        """Decorator: `dataclasses.dataclass` with ``frozen=True``; the options that it lacks are for that.

        Objects are equal where their fields are as tuples, also in Python 3.13 and later, which asks field by field.
        Raises TypeError where the class is not frozen, or has an ``InitVar``.
        """
        if not frozen:
            raise TypeError("a class that is not frozen is made by dataclasses.dataclass")
        return lambda cls: _with_methods(cls, eq, repr)


_NOT_GIVEN = dataclasses._HAS_DEFAULT_FACTORY  # type: ignore[attr-defined]  # of which Dynamo knows what it is
_NO_FIELD = re.compile("ClassVar|InitVar|KW_ONLY").search
_codes: dict[str, CodeType] = {}


def _with_methods(cls: C, eq: bool, repr: bool) -> C:
    fields = _described(cls, eq, repr)
    names = {f"_{n}": each.name for n, each in enumerate(fields)}
    methods: dict[str, Any] = {"__init__": _initialiser(cls, fields, names), **_refusals(cls, names.values())}
    if repr:
        methods["__repr__"] = _representation([each.name for each in fields if each.repr])
    if eq:
        mine, others = (_tuple(owner, [each.compare for each in fields]) for owner in ("self", "other"))
        same = f"return {mine} == {others} if other.__class__ is self.__class__ else NotImplemented"
        methods["__eq__"] = _function(cls, "__eq__(self, other)", [same], names)
        values = _tuple("self", [each.compare if each.hash is None else each.hash for each in fields])
        methods["__hash__"] = _function(cls, "__hash__(self)", [f"return hash({values})"], names)
        if "__eq__" in vars(cls) and vars(cls)["__hash__"] is None:  # Python's, for a class that says what is equal
            del cls.__hash__
    for name, method in methods.items():
        if name not in vars(cls):
            method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
            setattr(cls, name, method)
        elif name.endswith("attr__"):
            raise TypeError(f"{cls.__name__} is frozen, and has a method {name} of its own")
    return cls


def _described(cls: Any, eq: bool, repr: bool) -> tuple[Field[Any], ...]:
    """Have the class say of itself all that dataclasses say, but for their methods; return its fields."""
    fields: dict[str, Field[Any]] = {}
    for base in cls.__mro__[:0:-1]:
        if (inherited := getattr(base, "__dataclass_fields__", None)) is not None:
            if not base.__dataclass_params__.frozen:
                raise TypeError(f"{cls.__name__} is frozen, and its base {base.__name__} is not")
            fields |= inherited
    annotations = inspect.get_annotations(cls)
    said = {name: value for name, value in vars(cls).items() if name in annotations or isinstance(value, Field)}
    # Python finds which annotations are of fields, and checks the defaults, on a class that has nothing else; it
    # searches the text of each, which is spared those that can be of nothing but a field.
    typed = {name: kind if not isinstance(kind, str) or _NO_FIELD(kind) else Any for name, kind in annotations.items()}
    about = {"__module__": cls.__module__, "__doc__": cls.__name__, "__annotations__": typed}
    own: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(type(cls.__name__, (), said | about))
    for name, field in own.__dataclass_fields__.items():
        field.type = annotations[name]
    for name, value in said.items():
        if isinstance(value, Field):
            if name in vars(own):
                setattr(cls, name, vars(own)[name])
            else:
                delattr(cls, name)
    cls.__dataclass_fields__ = fields | own.__dataclass_fields__
    options = cls.__dataclass_params__ = own.__dataclass_params__
    options.init, options.repr, options.eq, options.frozen = True, repr, eq, True
    found = dataclasses.fields(cls)
    if any("InitVar" in str(each.type) for each in cls.__dataclass_fields__.values() if each not in found):
        raise TypeError(f"{cls.__name__} has an InitVar, which dataclasses.dataclass alone knows")
    if "__match_args__" not in vars(cls):
        args = tuple(each.name for each in found if each.init and not each.kw_only)
        cls.__match_args__ = args  # type: ignore[misc]
    if "__replace__" in vars(own):  # Python 3.13
        cls.__replace__ = own.__replace__
    return found


def _function(cls: type, header: str, body: Iterable[str], names: Mapping[str, str], **variables: Any) -> FunctionType:
    """The function of a text with these names in the place of ``_0``, ``_1``, ...; variables: what else it reads."""
    text = f"def make({', '.join(variables)}):\n def {header}:\n  " + "\n  ".join(body)
    code = _codes.get(text)
    if code is None:
        made: dict[str, Any] = {}
        exec(text, made)
        code = _codes[text] = next(each for each in made["make"].__code__.co_consts if isinstance(each, CodeType))
    code = renamed(code, names)
    module = sys.modules.get(cls.__module__)
    closure = tuple(CellType(variables[name]) for name in code.co_freevars)
    return FunctionType(code, {} if module is None else vars(module), closure=closure)


def renamed(code: CodeType, names: Mapping[str, str]) -> CodeType:
    """A function's code with other names for its variables and attributes, and for constants that are such a name."""

    def of(each: Any) -> Any:
        kind = type(each)
        if kind is str:
            return names.get(each, each)
        if kind is tuple:  # of names of arguments, say
            return tuple([of(one) for one in each])
        return renamed(each, names) if kind is CodeType else each

    def all_of(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([names.get(text, text) for text in texts])

    return code.replace(
        co_varnames=all_of(code.co_varnames), co_names=all_of(code.co_names), co_consts=of(code.co_consts)
    )


def _initialiser(cls: type, fields: Sequence[Field[Any]], names: Mapping[str, str]) -> FunctionType:
    places: list[int] = []
    keywords: list[int] = []
    body: list[str] = []
    for n, each in enumerate(fields):
        value = f"_{n}"
        if each.init:
            (keywords if each.kw_only else places).append(n)
        if each.default_factory is not MISSING:
            value = f"_make_{n}() if _{n} is _not_given else _{n}" if each.init else f"_make_{n}()"
        if each.init or each.default_factory is not MISSING:
            body.append(f"_object.__setattr__(_self, '_{n}', {value})")
    if hasattr(cls, "__post_init__"):
        body.append("_self.__post_init__()")
    listed = ["_self", *(f"_{n}" for n in places), *["*"][: len(keywords)], *(f"_{n}" for n in keywords)]
    method = _function(
        cls,
        f"__init__({', '.join(listed)})",
        body or ["pass"],
        {**names, "_self": "__dataclass_self__" if "self" in names.values() else "self"},
        **{"_object": object, "_not_given": _NOT_GIVEN},
        **{f"_make_{n}": each.default_factory for n, each in enumerate(fields) if each.default_factory is not MISSING},
    )
    given = {n: _NOT_GIVEN if each.default is MISSING else each.default for n, each in enumerate(fields)}
    optional = [n for n, each in enumerate(fields) if each.default is not each.default_factory]  # not both MISSING
    for before, n in itertools.pairwise(places):
        if before in optional and n not in optional:
            raise TypeError(f"{cls.__name__}: the field {fields[n].name} has no default, and the one before it has")
    method.__defaults__ = tuple(given[n] for n in places if n in optional)
    method.__kwdefaults__ = {fields[n].name: given[n] for n in keywords if n in optional}
    method.__annotations__ = {each.name: each.type for each in fields if each.init} | {"return": None}
    return method


def _tuple(owner: str, chosen: Iterable[Any]) -> str:
    return f"({''.join(f'{owner}._{n}, ' for n, each in enumerate(chosen) if each)})"


def _representation(names: Sequence[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def representation(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return representation


def _refusals(cls: Any, names: Iterable[str]) -> dict[str, Callable[..., None]]:
    """``__setattr__`` and ``__delattr__``, which set and delete what a subclass has beside the fields."""

    def refuse_to_set(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def refuse_to_delete(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": refuse_to_set, "__delattr__": refuse_to_delete}

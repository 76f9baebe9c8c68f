"""What the modules of a package import, and whether that follows the rules of its rooms.

A room is a folder. What a module imports counts wherever it stands, at the top or within a function, but not under
``if TYPE_CHECKING``. Modules are named as from within the package: ``ops.message.calls``; the package itself is "".
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

MOST_FILES, MOST_LINES = 16, 400


@dataclass(frozen=True, order=True)
class Import:
    """late: within a function. name: what is imported from the module, "" for the module itself."""

    importer: str
    imported: str
    line: int
    late: bool
    name: str = ""

    def __str__(self) -> str:
        return f"{self.importer or '__init__'}, line {self.line}: imports {self.imported or 'the package'}"


@dataclass(frozen=True)
class Package:
    """The modules below ``folder``, whose name is the package's."""

    folder: Path
    sources: dict[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        paths = sorted(self.folder.rglob("*.py"))
        object.__setattr__(self, "sources", {self.name_of(path): path.read_text(encoding="utf-8") for path in paths})

    def name_of(self, path: Path) -> str:
        parts = path.relative_to(self.folder).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def path_of(self, name: str) -> str:
        """The file of a module, as a path within the package."""
        path = name.replace(".", "/")
        return f"{path}/__init__.py" if self.is_room(name) else f"{path}.py"

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        return {name: ast.parse(text) for name, text in self.sources.items()}

    @cached_property
    def imports(self) -> list[Import]:
        """Imports of this package's modules by each other."""
        return [each for each in self._all if each.imported in self.sources]

    @cached_property
    def for_types(self) -> list[Import]:
        """Imports of this package's modules by each other that are under ``if TYPE_CHECKING``."""
        found = [
            each for name, tree in self.trees.items() for part in _for_types(tree) for each in self._of(name, part)
        ]
        return [each for each in found if each.imported in self.sources]

    @cached_property
    def foreign(self) -> list[Import]:
        """Imports of other packages, by their first name, and what is imported of them."""
        return [each for each in self._all if each.imported not in self.sources]

    @cached_property
    def _all(self) -> list[Import]:
        return [each for name, tree in self.trees.items() for each in self._of(name, tree)]

    def _of(self, importer: str, tree: ast.Module) -> Iterator[Import]:
        for node, late in _statements(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield self._resolved(importer, alias.name, "", node.lineno, late)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    module = self._absolute(importer, node)
                    yield self._resolved(importer, module, alias.name, node.lineno, late)
            elif _is_import_of_text(node):
                yield self._resolved(importer, node.args[0].value, "", node.lineno, late)

    def _absolute(self, importer: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = [self.folder.name, *filter(None, importer.split("."))]
        if not self.is_room(importer):
            parts = parts[:-1]
        return ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])

    def _resolved(self, importer: str, module: str, name: str, line: int, late: bool) -> Import:
        if module.split(".")[0] != self.folder.name:
            return Import(importer, module, line, late, name)
        within = module.partition(".")[2]
        longer = ".".join(filter(None, [within, name]))
        if name and longer in self.sources:
            within, name = longer, ""
        return Import(importer, within, line, late, name)

    def is_room(self, name: str) -> bool:
        return (self.folder.joinpath(*filter(None, name.split("."))) / "__init__.py").exists()


def room_of(module: str, within: str = "") -> str:
    """The first folder of a module, or of what stands below ``within``."""
    below = module.removeprefix(within).lstrip(".") if within else module
    return below.split(".")[0]


def misplaced(
    package: Package,
    allowed: Mapping[str, Iterable[str]],
    within: str = "",
    but: Iterable[tuple[str, str]] = (),
) -> list[str]:
    """Imports of rooms that a room has no business with, but for those of (importer, imported).

    allowed: by room, those that it may import; a room that is not in it is one that nobody has placed. within: the room
    whose rooms these are.
    """
    found = []
    for each in package.imports:
        if (each.importer, each.imported) in but:
            continue
        if within and not (each.importer.startswith(f"{within}.") and each.imported.startswith(f"{within}.")):
            continue
        importer, imported = room_of(each.importer, within), room_of(each.imported, within)
        if importer != imported and imported not in allowed.get(importer, ()):
            found.append(str(each))
    rooms = {room_of(name, within) for name in package.sources if not within or name.startswith(f"{within}.")}
    return found + [f"{room or 'the package'} has no place among the rooms" for room in sorted(rooms - set(allowed))]


def circles(package: Package, late: bool = False, but: Iterable[tuple[str, str]] = ()) -> list[str]:
    """Modules that import each other around a circle, while they are imported; with ``late`` imports within functions
    too, but for those of (importer, imported).
    """
    graph: dict[str, set[str]] = defaultdict(set)
    for each in package.imports:
        if (late or not each.late) and (each.importer, each.imported) not in but:
            graph[each.importer] |= {each.imported, *_opened(each)} - {each.importer}
    return [" and ".join(sorted(circle)) for circle in _strongly_connected(graph)]


def knots(package: Package, but: Iterable[tuple[str, str]] = ()) -> list[str]:
    """Files that name each other around a circle, be it within functions or for types alone, but for imports of
    (importer, imported).
    """
    graph: dict[str, set[str]] = defaultdict(set)
    for each in [*package.imports, *package.for_types]:
        if (each.importer, each.imported) not in but and not any(map(package.is_room, (each.importer, each.imported))):
            graph[each.importer].add(each.imported)
    return [" and ".join(sorted(knot)) for knot in _strongly_connected(graph)]


def _opened(each: Import) -> Iterator[str]:
    """The rooms whose ``__init__`` is run before the module, unless the importer is in them."""
    parts = each.imported.split(".")
    for count in range(1, len(parts)):
        room = ".".join(parts[:count])
        if not f"{each.importer}.".startswith(f"{room}."):
            yield room


def _strongly_connected(graph: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Tarjan's components of more than one node, without recursion."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    for root in list(graph):
        if root in number:
            continue
        number[root] = lowest[root] = len(number)
        stack.append(root)
        path = [(root, iter(sorted(graph[root])))]
        while path:
            node, following = path[-1]
            for other in following:
                if other not in number:
                    number[other] = lowest[other] = len(number)
                    stack.append(other)
                    path.append((other, iter(sorted(graph.get(other, ())))))
                    break
                if other in stack:
                    lowest[node] = min(lowest[node], number[other])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
                if lowest[node] == number[node]:
                    component = stack[stack.index(node) :]
                    del stack[stack.index(node) :]
                    if len(component) > 1:
                        yield component


def crowded(package: Package, most: int = MOST_FILES) -> list[str]:
    """Rooms of too many files, ``__init__.py`` among them."""
    counts: dict[Path, int] = defaultdict(int)
    for path in package.folder.rglob("*.py"):
        counts[path.parent.relative_to(package.folder)] += 1
    return [f"{room}: {count} files, {most} at most" for room, count in sorted(counts.items()) if count > most]


def long(package: Package, most: int = MOST_LINES) -> list[str]:
    """Files of too many lines."""
    counts = {name: text.count("\n") for name, text in package.sources.items()}
    return [f"{name}: {count} lines, {most} at most" for name, count in counts.items() if count > most]


def strangers(package: Package, known: Mapping[str, Iterable[str]], standard: Iterable[str]) -> list[str]:
    """Imports of packages that a room has no business with. known: by room. standard: what all may import."""
    found = []
    for each in package.foreign:
        first = each.imported.split(".")[0]
        if first not in standard and first not in known.get(room_of(each.importer), ()):
            found.append(str(each))
    return found


def named(package: Package, names: Iterable[str]) -> dict[str, list[str]]:
    """By module, which of these dotted names of other packages it imports or spells out."""
    found: dict[str, set[str]] = defaultdict(set)
    for each in package.foreign:
        full = ".".join(filter(None, [each.imported, each.name]))
        found[each.importer] |= {name for name in names if f"{full}.".startswith(f"{name}.")}
    for module, tree in package.trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                found[module] |= {name for name in names if f"{ast.unparse(node)}.".startswith(f"{name}.")}
    return {module: sorted(those) for module, those in sorted(found.items()) if those}


def _statements(node: ast.AST, late: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Every node that is run, and whether that is within a function."""
    for child in ast.iter_child_nodes(node):
        if _is_for_types(child):
            for other in child.orelse:
                yield other, late
                yield from _statements(other, late)
            continue
        yield child, late
        yield from _statements(child, late or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING"


def _last_name(node: ast.AST) -> str | None:
    """The name that an expression is, or that of its attribute; None for any other expression."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


def _for_types(tree: ast.Module) -> Iterator[ast.Module]:
    """What is there for type checkers alone."""
    for node in ast.walk(tree):
        if _is_for_types(node):
            yield ast.Module(node.body, [])


def _is_import_of_text(node: ast.AST) -> bool:
    """``importlib.import_module`` of a name that stands there."""
    return (
        isinstance(node, ast.Call)
        and _last_name(node.func) == "import_module"
        and bool(node.args)
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    )

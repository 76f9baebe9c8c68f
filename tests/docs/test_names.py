"""What docstrings and comments of the package call by name is there: files, folders and modules."""

from __future__ import annotations

import functools
import io
import re
import tokenize
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

PACKAGE = ROOT / "gnn_sparse_backend"
FILES = sorted(PACKAGE.rglob("*.py"))
# What names begin with that are not the package's: of other libraries, and what stands for any object.
OTHERS = frozenset("torch dgl torch_geometric tvm numpy pathlib functools os object autograd gsb nn".split())
ANY = frozenset("kind matrix owner model host".split())


@functools.cache
def split(path: Path) -> tuple[str, str]:
    """(code, prose) of a file; prose: its docstrings and comments."""
    code, prose = [], []
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        is_prose = token.type == tokenize.COMMENT or (token.type == tokenize.STRING and '"""' in token.string)
        (prose if is_prose else code).append(token.string)
    return "".join(code), "\n".join(prose)


@functools.cache
def all_code() -> str:
    return "\n".join(split(path)[0] for path in FILES)


def names_a_module(name: str) -> bool:
    """Whether some file of the package has such a path, the last one or two words being names in it."""
    words = name.removeprefix("gnn_sparse_backend.").split(".")
    for inside in range(min(3, len(words))):
        tail = "/".join(words[: len(words) - inside])
        for home in (f"{tail}.py", f"{tail}/__init__.py"):
            for path in FILES:
                if f"/{path.relative_to(ROOT)}".endswith(f"/{home}"):
                    text = path.read_text()
                    if all(re.search(rf"\b{word}\b", text) for word in words[len(words) - inside :]):
                        return True
    return False


def wrong_names(path: Path) -> list[str]:
    prose = split(path)[1]
    wrong = []
    for name in re.findall(r"`([a-z_]\w*(?:\.[A-Za-z_]\w*)+)`", prose):
        if name.endswith(".py"):
            if not any(other.name == name for other in FILES):
                wrong.append(name)
        elif name.partition(".")[0] not in OTHERS | ANY and name not in all_code() and not names_a_module(name):
            wrong.append(name)
    for name in re.findall(r"(?<![\w/])((?:[a-z_]\w*/)+[a-z_]\w*(?:\.(?:py|md|h)|/))(?![\w/<])", prose):
        if not any((home / name).exists() for home in (ROOT, PACKAGE, PACKAGE / "compiler", path.parent)):
            wrong.append(name)
    return wrong


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in FILES}), ids=lambda path: str(path.relative_to(ROOT))
)
def test_what_is_named_exists(folder):
    assert {path.name: wrong for path in folder.glob("*.py") if (wrong := wrong_names(path))} == {}


def test_a_name_that_is_wrong_is_found(tmp_path):
    page = tmp_path / "page.py"
    page.write_text(
        '"""See `planner.plan.Plan`, ``ops.core.library``, `spec.features`, ops/message/api/spmm.py, compiler/cache/, '
        "and `spmm.py`;\n"
        '`planner.attic`, `ops.core.attic.Plan`, `attic.py`, compiler/attic/ and ops/attic.py are gone."""\n'
    )
    assert wrong_names(page) == ["planner.attic", "ops.core.attic.Plan", "attic.py", "compiler/attic/", "ops/attic.py"]

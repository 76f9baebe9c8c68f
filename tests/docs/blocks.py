"""What the fenced blocks of README and docs must do.

- ``python`` runs. The blocks of a page share their names, as in one session.
- ``text`` is what the block before it printed, where ``...`` stands for anything.
- ``sh`` holds commands. Those of ``gsb`` run. Of the others the targets, modules, options, extras and paths must exist.
- A block without a language is a picture or a sketch, and is not run.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import os
import re
import runpy
import shlex
import sys
from functools import cache
from pathlib import Path
from unittest import mock

import pytest
from sybil import Document
from sybil.parsers.markdown import CodeBlockParser

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = {"python", "text", "sh", ""}


def run_page(path: Path) -> None:
    """Evaluate the blocks of a page in their order; raises where one of them is not as said above."""
    evaluators = {"python": python_block, "text": text_block, "sh": shell_block}
    parsers = [CodeBlockParser(language, evaluator) for language, evaluator in evaluators.items()]
    for example in Document.parse(str(path), *parsers).examples():
        example.evaluate()


def python_block(example) -> None:
    if re.search(r"\bdgl\b", example.parsed):
        pytest.importorskip("dgl")
    if re.search(r"\b(pyg|torch_geometric)\b", example.parsed):
        pytest.importorskip("torch_geometric")
    if re.search(r"\bimport spconv\b", example.parsed):
        pytest.importorskip("spconv")
    if re.search(r"\bimport transformers\b", example.parsed):
        pytest.importorskip("transformers")
    code = compile("\n" * (example.line + example.parsed.line_offset) + example.parsed, example.path, "exec")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, example.namespace)
    example.namespace["_printed"] = printed.getvalue()


def text_block(example) -> None:
    printed = example.namespace.get("_printed")
    assert printed is not None, "a block of output follows no block that was run"
    trimmed = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
    want = doctest.Example("", example.parsed)
    checker = doctest.OutputChecker()
    if not checker.check_output(want.want, trimmed, doctest.ELLIPSIS):
        raise AssertionError(checker.output_difference(want, trimmed, doctest.ELLIPSIS | doctest.REPORT_UDIFF))


def shell_block(example) -> None:
    text = example.parsed.replace("\\\n", " ")
    for line in text.splitlines():
        if words := shlex.split(line, comments=True):
            example.namespace["_printed"] = command(words)


def command(words: list[str]) -> str | None:
    """Run or check one command of a shell; what it printed, if it ran."""
    while "=" in words[0]:  # VARIABLE=value before a command
        words = words[1:]
    program, *arguments = words
    if program == "gsb":
        return _doctor(*arguments) if arguments[0] == "doctor" else _gsb(arguments)
    if program == "make":
        return _make(arguments)
    if program == "export":
        return None
    if Path(program).name in ("pip", "pip3"):
        return _pip(arguments)
    if Path(program).name in ("python", "python3"):
        assert arguments[0] == "-m", f"not a module: {words}"
        program, *arguments = arguments[1:]
        if program == "pip":
            return _pip(arguments)
    if program in ("pytest", "tests.simt", "tests.sanitizer"):
        return _paths(arguments)
    assert program.split(".")[0] in ("models", "benchmarks", "tests", "examples"), f"no rule for the command {words}"
    assert importlib.util.find_spec(program) is not None, f"there is no module {program}"
    if program.split(".")[0] in ("models", "benchmarks"):
        _options(program, arguments)
    return None


def _gsb(arguments: list[str]) -> str:
    from gnn_sparse_backend.cli import build_parser, main

    if arguments[0] == "pack":  # of programs that a page does not have
        assert build_parser().parse_args(arguments)
        return ""
    # nobody's own kernels are read, listed or cleared
    folder = {"GSB_CACHE_DIR": str(Path.cwd() / "cache")} if arguments[0] in ("cache", "doctor") else {}
    with mock.patch.dict(os.environ, folder), contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(arguments) == 0, f"gsb {shlex.join(arguments)} failed: {printed.getvalue()}"
    return printed.getvalue()


@cache
def _doctor(*arguments: str) -> str:
    """The same on every page, and not the quickest."""
    return _gsb([*arguments])


def _make(arguments: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = [word for word in arguments if "=" not in word]
    assert targets, "make of nothing"
    for target in targets:
        assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), f"there is no make {target}"
    for variable in (word.split("=")[0] for word in arguments if "=" in word):
        assert f"$({variable})" in makefile, f"the Makefile does not read {variable}"


def _pip(arguments: list[str]) -> None:
    """Extras that are asked of this package are extras that it has."""
    project = (ROOT / "pyproject.toml").read_text()
    for extras in re.findall(r"^(?:\.|gnn-sparse-backend)\[(.*)\]", "\n".join(arguments), re.MULTILINE):
        for extra in extras.split(","):
            assert re.search(rf"^{extra} = \[", project, re.MULTILINE), f"there is no extra {extra!r}"


def _paths(arguments: list[str]) -> None:
    for word in arguments:
        if "/" in word:
            assert (ROOT / word.split("::")[0]).exists(), f"there is no {word}"


def _options(module: str, arguments: list[str]) -> None:
    known = _help(module)
    for option in (word.split("=")[0] for word in arguments if word.startswith("-")):
        assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", known), f"{module} has no option {option}"


@cache
def _help(module: str) -> str:
    before = sys.argv
    sys.argv = [module, "--help"]
    try:
        with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit):
            runpy.run_module(module, run_name="__main__")
    finally:
        sys.argv = before
    return printed.getvalue()

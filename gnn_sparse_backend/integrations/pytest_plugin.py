"""A pytest plug-in that runs anybody's tests with a framework enabled.

    pytest -p gnn_sparse_backend.integrations.pytest_plugin --gsb dgl --gsb-report calls.json tests/

enables the framework (``--gsb`` may be given for several) before any conftest is read, since these and test files
make graphs and layers while they are imported, and ends with `status()`: with pytest-xdist the counts of its
own process, which ran no test. It is loaded by name alone: pytest finds no plug-in of this package by itself.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from . import disable, enable, status


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gnn_sparse_backend")
    group.addoption(
        "--gsb",
        action="append",
        default=[],
        metavar="FRAMEWORK",
        dest="gsb_frameworks",
        help='run the tests with this framework enabled: "dgl", "pyg" or "spconv"',
    )
    group.addoption(
        "--gsb-report",
        type=Path,
        metavar="FILE",
        dest="gsb_report",
        help="write the counts of gsb.status() to FILE as JSON",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    for name in early_config.known_args_namespace.gsb_frameworks:
        try:
            enable(name)
        except (ImportError, ValueError) as error:
            raise pytest.UsageError(f"--gsb {name}: {error}") from error
        early_config.add_cleanup(functools.partial(disable, name))


def pytest_report_header(config: pytest.Config) -> str:
    return f"gnn_sparse_backend: {', '.join(config.getoption('gsb_frameworks')) or 'nothing enabled'}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    counts = status()
    if (path := config.getoption("gsb_report")) is not None:
        path.write_text(json.dumps(counts.to_dict(), indent=2) + "\n")
    if config.getoption("gsb_frameworks"):
        terminalreporter.section("gnn_sparse_backend")
        terminalreporter.write_line(str(counts))

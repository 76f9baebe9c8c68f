"""The originals' own tests, with our modules in the place of the libraries.

``GSB_CHECKOUTS`` is a folder with checkouts of ``pytorch_scatter``, ``pytorch_cluster``, ``pytorch_sparse``,
``pytorch_spline_conv`` and ``pyg-lib``:

    git clone https://github.com/rusty1s/pytorch_scatter checkouts/pytorch_scatter
    GSB_CHECKOUTS=checkouts python -m pytest tests/integrations

Each test folder runs in a process of its own, since its tests import the library when they are collected. Nothing in
a checkout is changed, and nothing of the library is imported from there.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.checkouts import checkout

ROOT = Path(__file__).parents[2]


class Outcome(NamedTuple):
    """How many tests passed and were skipped, and the failures by name."""

    passed: int
    skipped: int
    failed: list[str]
    text: str


def run_tests(repository: str, folder: Path, *libraries: str, folders: tuple[str, ...] = ("",)) -> Outcome:
    """Run the tests of a checkout with libraries given by us. folder: where its tests are copied to, away from its
    package. folders: of its tests.
    """
    tests = folder / "test"
    for each in folders:
        shutil.copytree(checkout(repository) / "test" / each, tests / each)
    (folder / "conftest.py").write_text(f"import gnn_sparse_backend as gsb\n\ngsb.enable(*{libraries!r})\n")
    flags = "-q", "-p", "no:cacheprovider", "-rf", "-W", "ignore", "--rootdir", str(folder)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *flags, str(tests)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=900,
    )
    text = done.stdout + done.stderr
    count = lambda what: int((re.search(rf"(\d+) {what}", text) or (0, 0))[1])
    failed = re.findall(r"^(?:FAILED|ERROR) \S*/(test_\S+)", text, re.MULTILINE)
    return Outcome(count("passed"), count("skipped"), failed, text)

"""The documentation site builds without a warning, and is read without a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.docs.blocks import ROOT

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("material", reason="the extra `docs` is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert not re.search(r"\b(WARNING|ERROR)\b", done.stderr), done.stderr
    return folder


def test_pages_of_every_origin_are_there(site):
    """Written, made from results, printed by the package, and described from docstrings."""
    for page in ("index", "layers/dgl-convolutions", "results/index", "howto/environment", "reference/operators"):
        assert (site / f"{page}.html").is_file(), page
    assert "GSB_CACHE_DIR" in (site / "howto" / "environment.html").read_text()
    assert "into every destination" in (site / "reference" / "operators.html").read_text()


def test_no_page_fetches_anything(site):
    fetching = re.compile(r'<(?:script|img)[^>]* src="https?:|<link[^>]* rel="stylesheet"[^>]* href="https?:')
    for page in site.rglob("*.html"):
        assert not fetching.search(page.read_text()), page

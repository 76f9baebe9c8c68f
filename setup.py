"""What the package index shows of the README: there, links into the repository have to be whole addresses.

All else of the package is declared in pyproject.toml.
"""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent


def description() -> str:
    """README.md with the addresses that its links have at the tag of this version."""
    found = lambda file, pattern: re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)[1]
    source = found("pyproject.toml", r'^Source = "(.*)"$')
    tag = "v" + found("gnn_sparse_backend/__init__.py", r'^__version__ = "(.*)"$')
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{source}/raw/{tag}/", text)
    return re.sub(r"((?<!!)\[[^\]]*\]\()(?!https?:|#)", rf"\1{source}/blob/{tag}/", text)


if __name__ == "__main__":
    setup(long_description=description(), long_description_content_type="text/markdown")

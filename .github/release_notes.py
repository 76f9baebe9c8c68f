"""Print what CHANGELOG.md says of a release: ``python .github/release_notes.py v0.1.0``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def notes(tag: str) -> str:
    """The section of the version that ``tag`` names; SystemExit, in words, where there is nothing to release."""
    source = (ROOT / "gnn_sparse_backend" / "__init__.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(.*)"$', source, re.MULTILINE)[1]
    if tag != f"v{version}":
        raise SystemExit(f"the tag is {tag!r}, and the version of the package {version!r}: the tag must be v{version}")
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.M)
    if section is None:
        raise SystemExit(f"CHANGELOG.md has no section '## [{version}] - YEAR-MONTH-DAY'")
    return section[1].strip()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print(notes(sys.argv[1]))

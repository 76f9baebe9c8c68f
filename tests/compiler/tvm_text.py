"""TVM functions as the texts that are kept beside tests.

The texts are in a folder named as the test file, and compared by pytest-regressions. Where a text has changed on
purpose, ``pytest --regen-all FILE`` writes it anew: read the diff.
"""

from __future__ import annotations


def tvm_text(function) -> str:
    """A TVM function as text, without the imports above it."""
    return function.script().split("\n\n", 1)[1] + "\n"

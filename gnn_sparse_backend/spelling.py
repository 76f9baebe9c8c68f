"""What somebody may have meant by a name that there is not."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is spelt most like ``name``; None where none is near."""
    import difflib

    names = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), names, 1)
    return names[close[0]] if close else None


def meant(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that refuses ``name``: ``"; did you mean 'doctor'?"``, or nothing where none is near."""
    close = nearest(name, known)
    return "" if close is None else f"; did you mean {close!r}?"

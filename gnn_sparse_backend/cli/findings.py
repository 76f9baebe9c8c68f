"""What a look at this machine finds."""

from __future__ import annotations

from ..frozen import dataclass

OK, ABSENT, BROKEN = "ok", "absent", "broken"


@dataclass(frozen=True)
class Finding:
    """One line of the report. ``state``: "ok"; "absent", something optional; "broken", what kernels rely on."""

    group: str
    name: str
    state: str
    text: str

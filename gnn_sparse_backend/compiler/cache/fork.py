"""Locks that survive ``os.fork``.

A lock held by another thread at the moment of a fork stays locked in the child for ever, because the thread that
would release it does not exist there. Objects that own locks make new ones in the child.
"""

from __future__ import annotations

import weakref
from typing import Protocol

from ...system import after_fork


class _LockOwner(Protocol):
    def make_locks(self) -> None: ...


_owners: weakref.WeakSet[_LockOwner] = weakref.WeakSet()


def own_locks(owner: _LockOwner) -> None:
    """Call ``owner.make_locks()`` now, and again in every child process forked while ``owner`` lives."""
    owner.make_locks()
    _owners.add(owner)


def _after_fork_in_child() -> None:
    for owner in list(_owners):
        owner.make_locks()


after_fork(_after_fork_in_child)

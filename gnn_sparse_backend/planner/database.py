"""Measured plans and the constants of the cost model, kept in one JSON file for the processes of a user.

    cache_dir()/plans.json        {"format": 6, "machines": {name: {...}}, "records": [...]}
    cache_dir()/plans.json.lock   held by the process that writes

A process reads the file once, when it first asks. Writing is reading again, merging and renaming a new file into place,
under the lock: processes lose nothing of each other, and a reader sees all of a file or the one before.

A database may fail to help; it never stops a program. What cannot be read is reported (``PlanDatabaseWarning``) and
left out, and gone with the next write. Records of another machine or version are kept and not used.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..compiler.cache import UnsafeCacheError, cache_dir
from ..compiler.cache.bounded import KernelCache, shared
from ..compiler.cache.folders import create_root
from ..compiler.cache.fork import own_locks
from ..compiler.packs.toolchain import toolchain
from ..deferred import filelock
from .cost import default_units
from .machine import machine_name
from .plan import Plan
from .problem import Problem
from .records import Record, key_of, units_from_json

FILE_NAME = "plans.json"
FORMAT = 6
# Records at most; beyond them the oldest are dropped.
MOST_RECORDS = 20_000


class PlanDatabaseWarning(UserWarning):
    """Something of the database of plans could not be read or written; plans come from the cost model meanwhile."""


class PlanDatabase:
    """The measured plans in one file.

    path: ``cache_dir()/plans.json`` by default. lock_timeout: seconds to wait for another process that writes.
    machine, versions: what records must have to be used; of this process by default.
    defaults: the constants of the machine's cost model where they were not measured; ``cost.default_units`` if None.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        lock_timeout: float = 10.0,
        machine: str | None = None,
        versions: Mapping[str, str] | None = None,
        defaults: Mapping[str, float] | None = None,
    ) -> None:
        self.path = cache_dir() / FILE_NAME if path is None else path
        self.lock_timeout = lock_timeout
        self.machine = machine_name() if machine is None else machine
        self.versions = dict(toolchain() if versions is None else versions)
        self.defaults = default_units() if defaults is None else defaults
        self._others: dict[str, PlanDatabase] = {}  # of other machines, by name
        self._records: dict[tuple[Any, ...], Record] | None = None  # those of this machine and these versions
        self._sizes: set[tuple[int, int, int]] = set()
        self._units: dict[str, float] | None = None
        self.chosen = _none_chosen()
        own_locks(self)

    def make_locks(self) -> None:
        self._lock = threading.RLock()

    def on(self, machine: str, defaults: Mapping[str, float]) -> PlanDatabase:
        """What the same file holds of another machine, such as a GPU of this one."""
        found = self._others.get(machine)
        if found is None:
            with self._lock:
                found = self._others.setdefault(
                    machine,
                    PlanDatabase(
                        self.path,
                        lock_timeout=self.lock_timeout,
                        machine=machine,
                        versions=self.versions,
                        defaults=defaults,
                    ),
                )
        return found

    def find(self, problem: Problem, fingerprint: Callable[[], str]) -> Record | None:
        """What was measured for this problem on the structure of this fingerprint.

        ``fingerprint()``, which reads the whole structure, is called only where a structure of this size was measured.
        """
        records = self._records
        if records is None:
            records = self._read_once()
        if (problem.rows, problem.cols, problem.nnz) not in self._sizes:
            return None
        return records.get(key_of(problem, fingerprint()))

    def add(self, problem: Problem, fingerprint: str, seconds: Mapping[Plan, float]) -> Record:
        """Keep measured seconds by plan, in the file if it can be written, unless a record of more plans is there.

        Returns the record that is kept.
        """
        record = Record.of(problem, fingerprint, seconds, self.machine, self.versions, _now())
        with self._lock:
            records = self._read_once()
            known = records.get(record.key)
            if known is not None and not known.yields_to(record):
                return known
            self._remember(record, records)
            self._write([record], None)
        return record

    def records_of(self, fingerprints: Collection[str]) -> list[Record]:
        """What was measured on structures of these fingerprints, with this machine and these versions."""
        return [record for record in self._read_once().values() if record.fingerprint in fingerprints]

    @property
    def units(self) -> Mapping[str, float]:
        """The constants of the cost model on this machine: measured, else the defaults."""
        if self._records is None:
            self._read_once()
        return self.defaults if self._units is None else self._units

    @property
    def calibrated(self) -> bool:
        """Whether ``units`` were measured on this machine."""
        return self.units is not self.defaults

    def set_units(self, units: Mapping[str, float]) -> None:
        """Keep the measured constants of this machine."""
        with self._lock:
            self._read_once()
            self._units, self.chosen = units_from_json(dict(units)), _none_chosen()
            self._write([], self._units)

    def records(self) -> list[Record]:
        """All readable records in the file, those of other machines and versions too, oldest first."""
        return sorted(self._load(_ignore)[1], key=lambda record: record.created)

    def usable(self, record: Record) -> bool:
        """Whether a record is of this machine and these versions."""
        return record.machine == self.machine and dict(record.versions) == self.versions

    def verify(self) -> list[str]:
        """One line for each thing in the file that cannot be read. Changes nothing."""
        problems: list[str] = []
        self._load(problems.append)
        return problems

    def clear(self) -> int:
        """Delete the file; the number of records that it held."""
        with self._lock:
            removed = len(self.records())
            with self._held():
                self.path.unlink(missing_ok=True)
            self._records, self._sizes, self._units, self.chosen = {}, set(), None, _none_chosen()
            self._others.clear()
            return removed

    def _read_once(self) -> dict[tuple[Any, ...], Record]:
        with self._lock:
            if self._records is None:
                machines, found = self._load(_warn)
                self._units = machines.get(self.machine)
                self._records = {}
                for record in found:
                    if self.usable(record):
                        self._remember(record, self._records)
            return self._records

    def _remember(self, record: Record, records: dict[tuple[Any, ...], Record]) -> None:
        records[record.key] = record
        self._sizes.add((record.problem.rows, record.problem.cols, record.problem.nnz))

    def _load(self, report: Callable[[str], None]) -> tuple[dict[str, dict[str, float]], list[Record]]:
        """(units by machine, records) of the file; what is wrong goes to ``report``."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}, []
        except (OSError, ValueError) as error:
            report(f"{self.path} cannot be read: {error}")
            return {}, []
        found = content.get("format") if isinstance(content, dict) else content
        if found != FORMAT:
            report(f"{self.path} has format {found!r:.80}; this version reads format {FORMAT}")
            return {}, []
        machines: dict[str, dict[str, float]] = {}
        records: list[Record] = []
        wrong: dict[str, list[int]] = {}
        listed = content.get("machines"), content.get("records")
        for name, units in listed[0].items() if isinstance(listed[0], dict) else ():
            try:
                machines[name] = units_from_json(units)
            except ValueError as error:
                report(f"{self.path}: machine {name!r}: {error}")
        for number, record in enumerate(listed[1] if isinstance(listed[1], list) else ()):
            try:
                records.append(Record.from_json(record))
            except ValueError as error:
                wrong.setdefault(str(error), []).append(number)
        for reason, numbers in wrong.items():
            others = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
            report(f"{self.path}: record {numbers[0]}{others}: {reason}")
        return machines, records

    def _write(self, new: list[Record], units: dict[str, float] | None) -> None:
        try:
            create_root(self.path.parent)
            with self._held():
                machines, records = self._load(_ignore)
                if units is not None:
                    machines[self.machine] = units
                kept: dict[tuple[Any, ...], Record] = {}
                for record in [*records, *new]:
                    identity = _identity(record)
                    if identity not in kept or kept[identity].yields_to(record):
                        kept[identity] = record
                newest = sorted(kept.values(), key=lambda record: record.created)[-MOST_RECORDS:]
                _replace(
                    self.path,
                    {"format": FORMAT, "machines": machines, "records": [record.to_json() for record in newest]},
                )
        except (OSError, UnsafeCacheError) as error:
            _warn(f"{self.path} cannot be written ({error}): what is measured is forgotten at the end of this process")

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """The lock among processes, or none where it cannot be had: the rename keeps the file whole all the same."""
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(filelock.FileLock(f"{self.path}.lock", timeout=self.lock_timeout, mode=0o600))
            except filelock.Timeout:
                _warn(f"another process has held {self.path}.lock for {self.lock_timeout:g} s; writing without it")
            except (OSError, NotImplementedError):
                pass  # whether that matters, the write will tell
            yield


class _Default:
    """The database of the process, made when it is first needed, so that ``GSB_CACHE_DIR`` may be set until then."""

    def __init__(self) -> None:
        self._database: PlanDatabase | None = None

    def __call__(self) -> PlanDatabase:
        if self._database is None:
            self._database = PlanDatabase()
        return self._database

    @contextlib.contextmanager
    def using(self, other: PlanDatabase) -> Iterator[PlanDatabase]:
        """Inside the block the process's plans come from ``other``."""
        before, self._database = self._database, other
        try:
            yield other
        finally:
            self._database = before

    def forget(self) -> None:
        """Read the file again when next asked, wherever it is then."""
        self._database = None


database = _Default()


def _identity(record: Record) -> tuple[Any, ...]:
    return record.machine, tuple(sorted(record.versions.items())), record.key


def _replace(path: Path, content: dict[str, Any]) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, allow_nan=False)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _none_chosen() -> KernelCache[tuple[Any, ...], Plan]:
    """A cache of plans that follow from the constants of a database, by the rounded fields of a problem."""
    return shared("plans of the cost model")


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


def _ignore(problem: str) -> None:
    pass


def _warn(problem: str) -> None:
    warnings.warn(problem, PlanDatabaseWarning, stacklevel=4)

"""The part of a store that is about copies: their progress, who makes them, what a person wants.

Reads come from a cache and writes go to the store first, as contract.py says of the rest.
"""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from penstock.config.table_patterns import Rule
from penstock.model.errors import Fenced, StoreError
from penstock.source.copy_plan import CopyPlan

Wish = Literal["paused", "cancelled", "resync"]
"""What a person wants of a table: its copy to rest, to be given up, or to be made anew."""

WISHES: tuple[Wish, ...] = ("paused", "cancelled", "resync")

TableKey = tuple[str, str]
"""Schema and name."""

ChunkKey = tuple[int, int]
"""The table's oid and the chunk's number."""


@dataclass(frozen=True)
class ChunkDone:
    """What a finished chunk held."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class CopyProgress:
    """One table's copy, from its first snapshot until it is forgotten.

    ``copy_id`` is another one when the table starts again. ``first_lsn`` is the point of the first
    snapshot, ``last_lsn`` that of the newest, ``snapshots`` how many there were. ``done`` holds the
    finished chunks by number.
    """

    table: int
    copy_id: str
    first_lsn: int
    last_lsn: int
    snapshots: int
    plan: CopyPlan
    started_at: datetime
    done: Mapping[int, ChunkDone] = field(default_factory=dict)

    @property
    def rows_done(self) -> int:
        return sum(chunk.rows for chunk in self.done.values())

    @property
    def bytes_done(self) -> int:
        return sum(chunk.bytes for chunk in self.done.values())

    @property
    def planned_bytes_done(self) -> int:
        """On the source's disk, so that it can be compared with what the plan has in all."""
        return sum(chunk.bytes for chunk in self.plan.chunks if chunk.number in self.done)

    @property
    def is_complete(self) -> bool:
        return len(self.done) == len(self.plan.chunks)


class CopyStore(ABC):
    """One pipeline's copies, claims, wishes and rules."""

    def __init__(self, pipeline: str, rules_of: str | None = None) -> None:
        """``rules_of``: whose rules count, where several destinations share publications."""
        self.pipeline = pipeline
        self.rules_of = rules_of or pipeline
        # Held from a write to its entry in the cache: a reload in between would undo the entry.
        # Readers do not take it, since a write may take long; so what they read is replaced as a
        # whole and never changed.
        self._lock = threading.RLock()
        self._copies: dict[int, CopyProgress] = {}
        self._wishes: dict[int, Wish] = {}
        self._rules: dict[TableKey, Rule] = {}

    # -- copies ----------------------------------------------------------------------------------

    def load_copies(self) -> int:
        """Read all copies anew; how many there are."""
        with self._lock:
            self._copies = self._read_copies()
            return len(self._copies)

    def get_copies(self) -> dict[int, CopyProgress]:
        """The copies that were started and not forgotten, by table."""
        return dict(self._copies)

    def get_copy(self, table: int) -> CopyProgress | None:
        return self._copies.get(table)

    def start_copy(self, table: int, plan: CopyPlan, lsn: int) -> None:
        """Begin the table's copy under a snapshot whose point is ``lsn``.

        What an earlier copy of the table has done is forgotten.
        """
        self.start_copies({table: plan}, lsn)

    def start_copies(self, plans: Mapping[int, CopyPlan], lsn: int) -> None:
        """The same for many tables under one snapshot, at once: all of them or none."""
        with self._lock:
            ids = {table: str(uuid.uuid4()) for table in plans}
            started_at = self._write_new_copies(plans, ids, lsn)
            self._copies = {
                **self._copies,
                **{
                    table: CopyProgress(table, ids[table], lsn, lsn, 1, plan, started_at)
                    for table, plan in plans.items()
                },
            }

    def copy_snapshot(self, table: int, lsn: int) -> None:
        """The copy goes on under a later snapshot, whose point is ``lsn``."""
        self.copy_snapshots([table], lsn)

    def copy_snapshots(self, tables: Iterable[int], lsn: int) -> None:
        """The same for many tables, at once. Raises StoreError where one has no copy (any more)."""
        with self._lock:
            ids = self._copy_ids(tables)
            self._write_snapshot(ids, lsn)
            self._copies = {
                **self._copies,
                **{
                    table: replace(copy, last_lsn=lsn, snapshots=copy.snapshots + 1)
                    for table, copy in self._copies.items()
                    if table in ids
                },
            }

    def note_files(self, table: int, files: Mapping[int, int]) -> None:
        """Relations of the table got other files, of which the stream told: the plan knows them.

        A copy that was forgotten meanwhile needs no note.
        """
        with self._lock:
            if (copy := self._copies.get(table)) is None:
                return
            copy = replace(copy, plan=replace(copy.plan, files={**copy.plan.files, **files}))
            self._write_plan(copy)
            self._copies = {**self._copies, table: copy}

    def chunks_done(self, chunks: Mapping[ChunkKey, tuple[int, int]]) -> None:
        """Record finished chunks, each with its rows and bytes, at once: all of them or none.

        A chunk that is done already may come again. Raises StoreError where a copy is another one
        in the store than here: somebody else has started or forgotten it.
        """
        with self._lock:
            ids = self._copy_ids(table for table, _number in chunks)
            done = {key: ChunkDone(*values) for key, values in chunks.items()}
            self._write_chunks(ids, done)
            added: dict[int, dict[int, ChunkDone]] = {}
            for (table, number), chunk in done.items():
                added.setdefault(table, {})[number] = chunk
            self._copies = {
                **self._copies,
                **{
                    table: replace(copy, done={**copy.done, **added[table]})
                    for table, copy in self._copies.items()
                    if table in added
                },
            }

    def forget_copy(self, tables: Iterable[int]) -> None:
        """Forget the copies of these tables; one without a copy is as good as forgotten."""
        gone = set(tables)
        with self._lock:
            self._remove_copies(gone)
            self._copies = {t: copy for t, copy in self._copies.items() if t not in gone}

    def _copy_ids(self, tables: Iterable[int]) -> dict[int, str]:
        """The copies that the caller means, which are those of the cache."""
        ids = {}
        for table in tables:
            copy = self._copies.get(table)
            if copy is None:
                raise self._copy_is_gone(table)
            ids[table] = copy.copy_id
        return ids

    def _copy_is_gone(self, table: int) -> StoreError:
        return StoreError(
            f"The copy of the table with oid {table} of pipeline {self.pipeline} is no longer the "
            "one in the store: it was given up, or somebody else has started it again.",
            remedy="See that the pipeline runs only once, then start it again; what was copied is "
            "kept where it can be.",
        )

    # -- claims ----------------------------------------------------------------------------------

    def begin_claims(self, worker: str) -> None:
        """From now on ``worker`` alone takes copies; what others had taken is free again.

        For whoever got the pipeline's lock: the one before has lost it, whether it knows or not.
        """
        with self._lock:
            self._write_worker(worker)

    def claim_copies(self, worker: str, tables: Collection[int]) -> set[int]:
        """Take the copies of these tables; those that are now this worker's.

        Asking again for what it has gives it again: who lost the connection does not know whether
        it was heard. Raises Fenced where another worker has begun since.
        """
        with self._lock:
            return self._take_claims(worker, tables)

    def load_claims(self) -> dict[int, str]:
        """Which worker has which table; asked of the store, since it is about others."""
        with self._lock:
            return self._read_claims()

    def release_claims(self, worker: str, tables: Collection[int] | None = None) -> None:
        """Give back what the worker has of these tables, or all that it has."""
        with self._lock:
            self._remove_claims(worker, tables)

    def _fenced(self, worker: str, current: str | None) -> Fenced:
        by = f"worker {current} has taken over" if current else "it has not begun to take any"
        return Fenced(
            f"Worker {worker} takes no more copies of pipeline {self.pipeline}: {by}.",
            remedy="See that the pipeline runs only once.",
        )

    # -- wishes ----------------------------------------------------------------------------------

    def load_wishes(self) -> dict[int, Wish]:
        """Read all wishes anew. One small query: cheap enough to poll."""
        with self._lock:
            self._wishes = self._read_wishes()
            return dict(self._wishes)

    def get_wish(self, table: int) -> Wish | None:
        return self._wishes.get(table)

    def set_wish(self, table: int, wish: Wish | None) -> None:
        """Keep what a person wants of the table, in place of what was wanted before."""
        self.set_wishes({table: wish})

    def set_wishes(self, wishes: Mapping[int, Wish | None]) -> None:
        """The same for many tables, at once."""
        with self._lock:
            self._write_wishes(wishes)
            kept = {**self._wishes, **wishes}
            self._wishes = {table: wish for table, wish in kept.items() if wish is not None}

    def fulfil_wishes(self, wishes: Mapping[int, Wish]) -> None:
        """Forget wishes that were met; one that is another by now stays."""
        with self._lock:
            self._remove_wishes(wishes)
            self._wishes = {t: w for t, w in self._wishes.items() if wishes.get(t) != w}

    # -- rules -----------------------------------------------------------------------------------

    def load_rules(self) -> dict[TableKey, Rule]:
        """Read all rules anew. One small query: cheap enough to poll."""
        with self._lock:
            self._rules = self._read_rules()
            return dict(self._rules)

    def get_rules(self) -> dict[TableKey, Rule]:
        return dict(self._rules)

    def set_rule(self, schema: str, name: str, rule: Rule | None) -> None:
        """Keep an exception from the patterns for one table; None takes it back."""
        self.set_rules({(schema, name): rule})

    def set_rules(self, rules: Mapping[TableKey, Rule | None]) -> None:
        """The same for many tables, at once."""
        with self._lock:
            self._write_rules(rules)
            kept = {**self._rules, **rules}
            self._rules = {name: rule for name, rule in kept.items() if rule is not None}

    # -- what a store does -----------------------------------------------------------------------

    @abstractmethod
    def _read_copies(self) -> dict[int, CopyProgress]: ...

    @abstractmethod
    def _write_new_copies(
        self, plans: Mapping[int, CopyPlan], ids: Mapping[int, str], lsn: int
    ) -> datetime:
        """In place of those of these tables; when they were started, by the store's clock."""

    @abstractmethod
    def _write_snapshot(self, ids: Mapping[int, str], lsn: int) -> None:
        """``ids`` are the copies that are meant; raises ``_copy_is_gone`` where one is another."""

    @abstractmethod
    def _write_plan(self, copy: CopyProgress) -> None:
        """Nothing where the store has another copy of the table, or none."""

    @abstractmethod
    def _write_chunks(self, ids: Mapping[int, str], done: Mapping[ChunkKey, ChunkDone]) -> None:
        """``ids`` are the copies that are meant; raises ``_copy_is_gone`` where one is another."""

    @abstractmethod
    def _remove_copies(self, tables: Collection[int]) -> None: ...

    @abstractmethod
    def _write_worker(self, worker: str) -> None: ...

    @abstractmethod
    def _take_claims(self, worker: str, tables: Collection[int]) -> set[int]: ...

    @abstractmethod
    def _read_claims(self) -> dict[int, str]: ...

    @abstractmethod
    def _remove_claims(self, worker: str, tables: Collection[int] | None) -> None: ...

    @abstractmethod
    def _read_wishes(self) -> dict[int, Wish]: ...

    @abstractmethod
    def _write_wishes(self, wishes: Mapping[int, Wish | None]) -> None: ...

    @abstractmethod
    def _remove_wishes(self, wishes: Mapping[int, Wish]) -> None: ...

    @abstractmethod
    def _read_rules(self) -> dict[TableKey, Rule]: ...

    @abstractmethod
    def _write_rules(self, rules: Mapping[TableKey, Rule | None]) -> None: ...

"""The pipeline's tables and where each stands: one registry, behind one lock.

The main thread, the thread that copies and the one that commits all look here; whoever changes what
a table is to the stream does it by one of these methods.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from penstock.cadence import paced
from penstock.model.errors import StoreError, StoreUnavailable, TableRefused
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.model.table_state import (
    Errored,
    Init,
    ManualRetry,
    Ready,
    RetryPolicy,
    SyncDone,
    TableState,
    TimedRetry,
    retry_policy,
)
from penstock.store import Store

_POLL_SECONDS = paced(0.5)
# A table that took rows for this long got past what it was refused for. More than the pause before
# it is tried again.
_HEALTHY_SECONDS = 3600.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamPart:
    """Which tables a query brings on.

    ``known`` are all that the pipeline follows. Of those that are ``set_aside`` nothing is
    delivered; for those of them that are ``waiting`` the log keeps their changes, from where they
    stood when that began, as far as it is known here.
    """

    known: frozenset[int] = frozenset()
    set_aside: frozenset[int] = frozenset()
    waiting: Mapping[int, Frontier | None] = field(default_factory=dict)

    @property
    def delivered(self) -> frozenset[int]:
        """The tables whose changes the query brings."""
        return self.known - self.set_aside

    def differs(self, other: StreamPart) -> bool:
        """Whether a query of the one would be another query for the other: what is not delivered
        need not be known to it.
        """
        return self.delivered != other.delivered


class TableRegistry:
    """Which tables take part in the stream, which wait, and when a failed one is tried again.

    ``merges`` says that the destination holds the current rows: there a table takes no part in the
    stream until it is copied. ``copies`` says that tables are copied at all.
    """

    def __init__(self, store: Store, *, merges: bool, copies: bool) -> None:
        self._store = store
        self._merges = merges
        self._copies = copies
        # How often in a row, and when the last time.
        self._refusals: dict[int, tuple[int, float]] = {}
        self._next_poll = 0.0
        self._seen: dict[int, TableState] = {}
        self._leaving: frozenset[int] = frozenset()
        self._unprepared: frozenset[int] = frozenset()
        self._lock = threading.RLock()
        self._part = StreamPart()

    @property
    def part(self) -> StreamPart:
        """What the query of now is for."""
        return self._part

    @property
    def unprepared(self) -> frozenset[int]:
        """Tables that the destination has not heard of as they are now."""
        return self._unprepared

    def to_prepare(self, tables: Collection[int]) -> None:
        """The destination has yet to hear of these."""
        with self._lock:
            self._unprepared |= frozenset(tables)

    def prepared(self, tables: Collection[int]) -> None:
        """The destination has heard of these."""
        with self._lock:
            self._unprepared -= frozenset(tables)

    def enrol(self, definitions: Sequence[TableDefinition], lsn: int) -> None:
        """Remember tables; new ones are to be copied, or without copies begin at once."""
        self._store.store_table_schemas(definitions, lsn)
        known = self._store.get_table_states()
        new = [table.oid for table in definitions if table.oid not in known]
        if new:
            self._store.update_table_states({oid: Init() for oid in new})
        if not self._copies:
            begun = [oid for oid, state in known.items() if isinstance(state, Init)]
            if new or begun:
                self._store.update_table_states({oid: Ready() for oid in (*new, *begun)})
        self._tell()

    def take_part(self) -> StreamPart:
        """What the next query is for, by the states as they are now."""
        with self._lock:
            self._part = self._part_now()
            return self._part

    def join(self, states: Mapping[int, SyncDone]) -> None:
        """Tables that the query of now brings on from now on."""
        with self._lock:
            self._store.update_table_states(states)
            self._part = replace(
                self._part,
                set_aside=self._part.set_aside - states.keys(),
                waiting={o: at for o, at in self._part.waiting.items() if o not in states},
            )
        self._tell()

    def leave(self, tables: Collection[int]) -> None:
        """These tables, and no others, are to have no part in the stream any more."""
        with self._lock:
            self._leaving = frozenset(tables)

    def is_delivered(self, oid: int) -> bool:
        """Whether the stream brings the table on, as long as it is the query of now."""
        return oid in self._part.delivered

    def refuse(self, error: TableRefused) -> None:
        """Set a table aside; the others go on without it."""
        with self._lock:
            self._refuse(error)

    def refuse_delivery(self, error: TableRefused) -> None:
        """The same for what the stream was refused. A table that is to be copied anew needs nobody
        for that: its rows may not fit because of just what the copy is for.
        """
        with self._lock:
            state = self._store.get_table_states().get(error.table)
            is_awaited = isinstance(state, Init) or self._is_awaited(error.table)
            if not (self._merges and is_awaited and self.copy_anew(error.table)):
                self._refuse(error)
                return
        _log.info(
            "%s; it is copied anew",
            error.message,
            extra={"event": "table_refused", "table": self.qualified_name(error.table)},
        )

    def _refuse(self, error: TableRefused) -> None:
        self._tell()
        now = time.monotonic()
        before, at = self._refusals.get(error.table, (0, now))
        attempt = before + 1 if now - at <= _HEALTHY_SECONDS else 1
        self._refusals[error.table] = attempt, now
        # Whether a row that was refused will be taken is for a person to change.
        policy: RetryPolicy = ManualRetry()
        if error.may_pass:
            policy = retry_policy(attempt, datetime.now(UTC))
        state = self._store.get_table_states().get(error.table)
        delivered = not self._merges or isinstance(state, Ready | SyncDone)
        if isinstance(state, Errored):
            delivered = state.delivered
        self._store.update_table_state(
            error.table, Errored(error.message, error.remedy, policy, delivered)
        )
        _log.warning(
            "%s; it is set aside, the other tables go on (%s)",
            error.message.rstrip("."),
            error.remedy,
            extra={"event": "table_refused", "table": self.qualified_name(error.table)},
        )
        self._seen[error.table] = self._store.get_table_states()[error.table]

    def retry(self, oid: int) -> None:
        """Let an errored table be tried again; `penstock tables retry` may be quicker."""
        try:
            self._store.retry_table(oid)
        except StoreError:
            self._store.load_table_states()
            if isinstance(self._store.get_table_state(oid), Errored):
                raise

    def note(self, oid: int, notes: Sequence[str]) -> None:
        """Keep what the destination could not make of a table, for log and `penstock status`;
        also what of its definition is not trusted.
        """
        table = self._store.get_table_schema(oid)
        left_out = () if table is None else table.left_out
        notes = [*notes, *(each for each in left_out if each not in notes)]
        with self._lock:
            known = self._store.get_notes(oid)
            if tuple(notes) == known:
                return
            self._store.set_notes(oid, notes)
            fields = {"event": "table_note", "table": self.qualified_name(oid)}
            for note in notes:
                if note not in known:
                    _log.warning("%s: %s", self.name(oid), note, extra=fields)

    def note_anew(
        self, oid: int, notes: Sequence[str], is_outdated: Callable[[int, str], bool]
    ) -> None:
        """Keep what the destination says by now beside what was noted before, unless that is true
        no longer.
        """
        with self._lock:
            known = self._store.get_notes(oid)
            kept = [note for note in known if not is_outdated(oid, note)]
            self.note(oid, [*kept, *(note for note in notes if note not in kept)])

    @property
    def note_count(self) -> int:
        """How many things the destination could not make."""
        return sum(len(self._store.get_notes(oid)) for oid in self._store.get_table_states())

    def copy_anew(self, oid: int) -> bool:
        """Take a table out of the stream, to be copied again; False where none are copied."""
        if self._copies:
            self.to_prepare([oid])
            self._store.update_table_states({oid: Init()})
            self._store.forget_copy([oid])
        return self._copies

    def copy_soon(self, oid: int, why: str) -> None:
        """Let a table be copied again once what is under way with it has ended, and keep why it
        has to be, for log and `penstock status`: until it is done, or where none are copied, for
        ever.
        """
        if self._copies:
            self._store.set_wishes({oid: "resync"})
        heals = "it is copied anew" if self._copies else "rows are not copied, so it lacks them"
        note, kept = f"{why}; {heals}", self._store.get_notes(oid)
        if note not in kept:
            self.note(oid, [*kept, note])

    def changed(self) -> bool:
        """Whether the query is for other tables than those that should take part now: a copy has
        come to its end, or somebody, or time, wants a table retried.
        """
        if time.monotonic() < self._next_poll:
            return False
        self._next_poll = time.monotonic() + _POLL_SECONDS
        try:
            self._store.load_table_states()
            self._retry_due()
        except StoreUnavailable:
            # It is asked again soon; meanwhile everything stays as it is.
            return False
        self._tell()
        with self._lock:
            part = self._part_now()
            if part.differs(self._part):
                return True
            # A table that came, and that is copied first, is no reason to start another query.
            self._part = part
            return False

    def joined(self, behind: Collection[int]) -> None:
        """Tables whose replay met the stream are like all others from now on."""
        done = [
            oid
            for oid, state in self._store.get_table_states().items()
            if isinstance(state, SyncDone) and oid not in behind and oid not in self._part.set_aside
        ]
        # Who copies may just be giving one up, to copy it anew.
        if done and self._store.move_on(done, SyncDone, Ready()):
            self._tell()

    @property
    def ready(self) -> frozenset[int]:
        """Tables that are ready, and that stay. Those that are tried again may be behind others."""
        states = self._store.get_table_states()
        return frozenset(o for o, s in states.items() if isinstance(s, Ready)) - self._leaving

    @property
    def are_settled(self) -> bool:
        """Whether no table is on its way to be ready by itself."""
        return all(
            self._store.get_wish(oid) in ("paused", "cancelled")
            or (isinstance(state, Ready | Errored) and not self._is_awaited(oid))
            for oid, state in self._store.get_table_states().items()
        )

    def _is_awaited(self, oid: int) -> bool:
        """Whether it is about to be copied anew."""
        return self._copies and self._store.get_wish(oid) == "resync"

    def name(self, oid: int) -> str:
        """What to call a table in a sentence."""
        schema = self._store.get_table_schema(oid)
        return f"table {schema.qualified_name}" if schema else f"the table with oid {oid}"

    def qualified_name(self, oid: int) -> str:
        """What to call it in a list."""
        schema = self._store.get_table_schema(oid)
        return schema.qualified_name if schema else f"oid {oid}"

    def _part_now(self) -> StreamPart:
        states = self._store.get_table_states()
        copies = self._store.get_copies()
        aside = {
            oid
            for oid, state in states.items()
            if isinstance(state, Errored)
            or oid in self._leaving
            or (self._merges and not isinstance(state, Ready | SyncDone))
        }
        waiting: dict[int, Frontier | None] = {}
        # Of those that leave nothing is to come any more.
        for oid in aside - self._leaving:
            state = states[oid]
            if isinstance(state, Errored) and state.delivered:
                # Where the destination says; if it does not know, where all others are.
                waiting[oid] = None
            elif oid in copies and not isinstance(state, Init):
                waiting[oid] = Frontier.before(copies[oid].first_lsn)
            elif not self._copies:
                waiting[oid] = None
        return StreamPart(frozenset(states), frozenset(aside), waiting)

    def _retry_due(self) -> None:
        now = datetime.now(UTC)
        for oid, state in self._store.get_table_states().items():
            if (
                isinstance(state, Errored)
                and isinstance(state.retry, TimedRetry)
                and state.retry.next_at <= now
            ):
                self.retry(oid)

    def _tell(self) -> None:
        """Log which tables went on to another phase, and through which."""
        with self._lock:
            for oid, state in self._store.take_passed_states():
                self._tell_of(oid, state)

    def _tell_of(self, oid: int, state: TableState) -> None:
        before = self._seen.get(oid)
        self._seen[oid] = state
        if before is None or before.phase == state.phase:
            return
        fields = {"event": "table_phase", "table": self.qualified_name(oid), "phase": state.phase}
        if isinstance(before, Errored):
            _log.info("%s is tried again", self.name(oid), extra=fields)
        else:
            _log.info("%s: %s -> %s", self.name(oid), before.phase, state.phase, extra=fields)

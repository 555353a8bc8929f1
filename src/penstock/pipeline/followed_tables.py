"""The pipeline's tables and their states, as the driver sees and sets them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from penstock.errors import StoreUnavailable, TableRefused
from penstock.pipeline.table_state import (
    Errored,
    Init,
    ManualRetry,
    Ready,
    RetryPolicy,
    TimedRetry,
    retry_policy,
)
from penstock.store import Store
from penstock.table_definition import TableDefinition

_POLL_SECONDS = 2.0


class FollowedTables:
    """Which tables are set aside because of an error, and when they are tried again."""

    def __init__(self, store: Store, say: Callable[[str], None]) -> None:
        self._store = store
        self._say = say
        self._attempts: dict[int, int] = {}
        self._next_poll = 0.0
        self.set_aside: frozenset[int] = frozenset()

    def enrol(self, definitions: Sequence[TableDefinition], lsn: int) -> None:
        """Remember the tables; those that are new begin, without a copy, at once."""
        self._store.store_table_schemas(definitions, lsn)
        known = self._store.get_table_states()
        new = [table.oid for table in definitions if table.oid not in known]
        begun = [oid for oid, state in known.items() if isinstance(state, Init)]
        if new:
            self._store.update_table_states({oid: Init() for oid in new})
        if new or begun:
            self._store.update_table_states({oid: Ready() for oid in (*new, *begun)})
        self.set_aside = self._errored()

    def refuse(self, error: TableRefused) -> None:
        """Set a table aside; the others go on without it."""
        attempt = self._attempts[error.table] = self._attempts.get(error.table, 0) + 1
        # Whether a row that was refused will be taken is for a person to change.
        policy: RetryPolicy = ManualRetry()
        if error.may_pass:
            policy = retry_policy(attempt, datetime.now(UTC))
        self._store.update_table_state(error.table, Errored(error.message, error.remedy, policy))
        self.set_aside = self._errored()
        self._say(f"{error.message}; it is set aside, the other tables go on ({error.remedy})")

    def changed(self) -> bool:
        """Whether other tables are set aside than before: somebody, or time, wants one retried."""
        if time.monotonic() < self._next_poll:
            return False
        self._next_poll = time.monotonic() + _POLL_SECONDS
        try:
            self._store.load_table_states()
            self._retry_due()
        except StoreUnavailable:
            # It is asked again soon; meanwhile everything stays as it is.
            return False
        errored = self._errored()
        for oid in self.set_aside - errored:
            self._say(f"{self._name(oid)} is tried again")
        changed = errored != self.set_aside
        self.set_aside = errored
        return changed

    def _retry_due(self) -> None:
        now = datetime.now(UTC)
        for oid, state in self._store.get_table_states().items():
            if (
                isinstance(state, Errored)
                and isinstance(state.retry, TimedRetry)
                and state.retry.next_at <= now
            ):
                self._store.retry_table(oid)

    def _errored(self) -> frozenset[int]:
        states = self._store.get_table_states().items()
        return frozenset(oid for oid, state in states if isinstance(state, Errored))

    def _name(self, oid: int) -> str:
        schema = self._store.get_table_schema(oid)
        return f"table {schema.qualified_name}" if schema else f"the table with oid {oid}"

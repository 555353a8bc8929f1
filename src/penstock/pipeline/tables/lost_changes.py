"""What the source has changed and the stream will never tell: the publications were narrowed for a
while, or a column was replaced by another that looks the same.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.model.publication_state import PublicationState
from penstock.model.table_state import Init
from penstock.pipeline.run.batch_committer import BatchCommitter
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.tables.registry import TableRegistry
from penstock.source.contract import Reconciled


class LostChanges:
    """Lets tables be copied anew that lack something; where none are copied, tells of it."""

    def __init__(
        self, context: RunContext, tables: TableRegistry, committer: BatchCommitter
    ) -> None:
        self._session = context.session
        self._store = context.store
        self._tables = tables
        self._committer = committer
        self._published: PublicationState | None = None
        self._renewed: dict[int, int] = {}

    def heed_publication(self, found: Reconciled, known: Collection[int]) -> None:
        """Compare the publications with what they were when they were last looked at, in any run:
        of ``known`` tables that left and came back, or that were published in part, changes are
        lost.
        """
        if self._published is None:
            self._published = self._store.load_publication()
        before, states = self._published, self._store.get_table_states()
        lost = found.narrowed if before is None else before.lost(found.state)
        came = set() if before is None else before.came(found.state)
        for oid, why in lost.items():
            if oid not in found.published or oid not in known:
                continue
            # One that waits for its copy lacks nothing that this will not bring.
            if not isinstance(states[oid], Init):
                self._tables.copy_soon(oid, f"changes were lost: {why}")
            elif oid in came and self._store.get_wish(oid) == "cancelled":
                # It left; another driver than this has brought it back, and nobody else knows.
                self._store.set_wishes({oid: "resync"})

    def remember(self, found: Reconciled) -> None:
        """What was lost until now has been seen to."""
        if found.state != self._published:
            self._store.set_publication(found.state)
            self._published = found.state

    def heed_columns(self, found: Reconciled) -> None:
        """A column that was dropped and added again under its name can look the same in the stream:
        only its number in the catalogue is another. Where that is still so when the stream has
        passed the point at which it was seen, nothing will tell of it.
        """
        renewed = {}
        for oid, numbers in found.columns.items():
            schema = self._store.get_table_schema(oid)
            if schema is None or not self._tables.is_delivered(oid):
                continue
            other = [c.name for c in schema.columns if numbers.get(c.name, c.attnum) != c.attnum]
            if other:
                renewed[oid] = other
        self._renewed = {oid: at for oid, at in self._renewed.items() if oid in renewed}
        if new := renewed.keys() - self._renewed.keys():
            lsn = self._session.position()
            self._committer.want(lsn)
            self._renewed.update(dict.fromkeys(new, lsn))
        reached = self._committer.read_up_to.end_lsn
        for oid, at in self._renewed.items():
            if at <= reached:
                names = ", ".join(renewed[oid])
                self._tables.copy_soon(oid, f"columns under old names are others now: {names}")

"""Partitions that were emptied by themselves.

Where a root is published, Postgres sends its TRUNCATE and not that of one of its partitions. But an
emptied partition has another file, and so it is noticed. VACUUM FULL and CLUSTER give it another
one, too, and nothing tells them apart for sure: then the table is copied anew for nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.model.errors import TableRefused
from penstock.model.table_state import Ready
from penstock.pipeline.run.batch_committer import BatchCommitter
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.tables.registry import TableRegistry
from penstock.source.contract import LeafFile
from penstock.source.copy_plan import CopyPlan

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Noticed:
    """Partitions with another file than they had, seen when the source was at ``lsn``."""

    lsn: int
    leaves: Mapping[int, LeafFile]


def changed_leaves(plan: CopyPlan, found: Mapping[int, LeafFile]) -> dict[int, LeafFile]:
    """The partitions that have another file than when the table was copied.

    One that was made after that begins with a file that has its own oid for a name.
    """
    known = plan.leaf_files
    return {oid: leaf for oid, leaf in found.items() if leaf.file != known.get(oid, oid)}


class PartitionFiles:
    """Looks at the files of all partitions; used by the main thread alone."""

    def __init__(
        self, context: RunContext, tables: TableRegistry, committer: BatchCommitter
    ) -> None:
        self._session = context.session
        self._store = context.store
        self._policy = context.config.schema_changes.policy
        self._is_wanted = context.filter is None or context.filter.passes_truncates
        self._copies = context.config.source.copy_rows is not None
        self._tables = tables
        self._committer = committer
        self._seen: dict[int, CopyPlan] = {}
        """Where nothing is copied: the files that this run found first."""
        self._noticed: dict[int, _Noticed] = {}
        self._has_looked = False

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to be judged."""
        return self._has_looked and not self._noticed

    def look(self) -> None:
        """Called now and then. Tables that are on their way are looked at when they are ready."""
        self._compare()
        self._has_looked = True

    def _compare(self) -> None:
        if self._policy.action("partitions") == "ignore" or not self._is_wanted:
            return
        ready = [
            oid
            for oid, state in self._store.get_table_states().items()
            if isinstance(state, Ready)
            and self._tables.is_delivered(oid)
            and self._store.get_wish(oid) is None
        ]
        found = self._session.leaf_files(ready) if ready else {}
        self._noticed = {oid: seen for oid, seen in self._noticed.items() if oid in found}
        for oid, leaves in found.items():
            plan = self._plan(oid, leaves)
            if (changed := changed_leaves(plan, leaves)) and oid not in self._noticed:
                # Judged once all is delivered that was committed before: then the stream has told
                # whether the whole table was emptied.
                lsn = self._session.position()
                self._committer.want(lsn)
                self._noticed[oid] = _Noticed(lsn, changed)
        for oid, seen in [*self._noticed.items()]:
            if self._committer.read_up_to.end_lsn >= seen.lsn:
                del self._noticed[oid]
                self._judge(oid, seen.leaves)

    def _plan(self, oid: int, leaves: Mapping[int, LeafFile]) -> CopyPlan:
        copy = self._store.get_copy(oid)
        if copy is not None:
            return copy.plan
        files = {leaf: found.file for leaf, found in leaves.items()}
        return self._seen.setdefault(oid, CopyPlan(oid, (), None, (), files))

    def _accept(self, oid: int, leaves: Mapping[int, LeafFile]) -> None:
        files = {leaf: found.file for leaf, found in leaves.items()}
        self._store.note_files(oid, files)
        if oid in self._seen:
            known = self._seen[oid]
            self._seen[oid] = replace(known, files={**known.files, **files})

    def _judge(self, oid: int, leaves: Mapping[int, LeafFile]) -> None:
        if all(self._committer.was_truncated(oid, leaf.xid) for leaf in leaves.values()):
            self._accept(oid, leaves)
            return
        name = self._tables.name(oid)
        message = f"{name}: a partition was emptied (TRUNCATE) or rewritten by itself"
        if self._policy.action("partitions") == "stop":
            self._tables.refuse(
                TableRefused(
                    f"{message}; schema_changes says to stop at partitions",
                    remedy="run `penstock tables resync` for it, which copies it anew",
                    table=oid,
                )
            )
            return
        fields = {"event": "partition_emptied", "table": self._tables.qualified_name(oid)}
        if self._copies:
            _log.warning("%s; it is copied anew", message, extra=fields)
            self._store.set_wishes({oid: "resync"})
        else:
            _log.warning("%s; its rows stay at the destination", message, extra=fields)
            self._accept(oid, leaves)

"""Who changes the destination for a copy does so while nobody else does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.destination.memory import MemoryDestination, MemoryOptions, forget
from penstock.model.table_definition import TableDefinition
from penstock.pipeline.copy.copies import make_copies
from penstock.pipeline.run.batch_committer import BatchCommitter
from penstock.pipeline.run.joins import CurrentJoins
from penstock.pipeline.tables.registry import TableRegistry
from tests.kept_tables import KeptTables
from tests.run_context import run_context

TABLE = TableDefinition(7, "public", "items", "d", ())


class Watched(MemoryDestination, KeptTables):
    """Tells whether another thread could have committed while it was changed."""

    committer: BatchCommitter

    def __init__(self) -> None:
        super().__init__(MemoryOptions(), "shop")
        self.was_alone: list[bool] = []

    def prepare(self, definitions: object) -> None:
        with ThreadPoolExecutor(1) as other:
            taken = other.submit(self.committer.lock.acquire, blocking=False).result()
            if taken:
                other.submit(self.committer.lock.release).result()
        self.was_alone.append(not taken)


def test_a_table_is_fitted_for_its_copy_while_nothing_else_changes_the_destination(
    tmp_path: Path,
) -> None:
    """The stream prepares the same table when it meets it: both would make it."""
    forget("shop")
    destination = Watched()
    read = SimpleNamespace(snapshots=None, for_workers=lambda: None)
    source: Any = SimpleNamespace(copies=lambda *_: read)
    engine: Any = SimpleNamespace(parallelism=1)
    context = run_context("shop", tmp_path, destination=destination, source=source, engine=engine)
    destination.committer = BatchCommitter(context)
    tables = TableRegistry(context.store, merges=False, copies=True)
    copies = make_copies(context, tables, destination.committer, CurrentJoins())
    copies._admission._target.fit(TABLE, ())
    assert destination.was_alone == [True]

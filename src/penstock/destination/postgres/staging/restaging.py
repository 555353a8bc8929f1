"""Rows that were handed over and do not go straight into their targets: the driver stages them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.decode.copy_text import split_lines
from penstock.destination.postgres.sessions.session import Connection
from penstock.destination.postgres.staging.handover import Handed
from penstock.destination.postgres.staging.loads import Load, StagingLoader
from penstock.destination.postgres.staging.receipt import Part, StagedBatch
from penstock.destination.postgres.staging.stage import Stage
from penstock.destination.postgres.staging.staged_rows import Mask, StagedRows


class HandedRows(StagedRows):
    """Rows to be added, made out of the lines that were handed over."""

    def __init__(self, stage: Stage, handed: Handed) -> None:
        super().__init__(*handed.positions())
        if stage.kind == "counted":
            self._all["n"] = "1"
        else:
            self._all["op"] = "I"
        columns = split_lines(handed.read(), len(stage.columns))
        self._all |= {f"c{index + 1}": column for index, column in enumerate(columns)}

    def part(self, table: int, part: int, rows: slice, kept: Mask, size: int) -> Part:
        refused = int((~kept).sum())
        return Part(table, part, inserts=int(kept.sum()), refused=refused, bytes=size)

    def op_name(self, row: int) -> str:
        return "insert"


def restage(
    conn: Connection, stages: Mapping[int, Stage], batch: StagedBatch, letters_of: str | None
) -> StagedBatch:
    """Stage what was handed over, as its tasks would have; the batch as it is then.

    Raises BatchAgain where the rows are gone, TableRefused where one is refused.
    """

    def staged(part: Part) -> Part:
        if part.handed is None:
            return part
        stage = stages[part.table]
        rows = HandedRows(stage, part.handed)
        load = Load(stage, part.part, rows, 0, len(rows), None)
        (found,) = StagingLoader(conn, [load], letters_of).run()
        return found

    runs = (replace(run, parts=tuple(map(staged, run.parts))) for run in batch.runs)
    return replace(batch, runs=tuple(runs))

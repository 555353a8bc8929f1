"""``postgres``: tables that are what the source's tables were at a commit, exactly once."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from penstock.answer_limit import answered_within
from penstock.destination.contract import (
    Capabilities,
    ChunkReceipt,
    ChunkWriter,
    Destination,
    Receipt,
    Rows,
    SchemaChange,
)
from penstock.destination.postgres.begun_batch import BegunBatch
from penstock.destination.postgres.commits import DriverCommits
from penstock.destination.postgres.copying.chunk_writer import PostgresChunkWriter, passes_binary
from penstock.destination.postgres.copying.table_copies import TableCopies
from penstock.destination.postgres.count_dead_letters import count_letters
from penstock.destination.postgres.merging import history
from penstock.destination.postgres.merging.batch_merge import BatchMerge, MergeRules
from penstock.destination.postgres.options import PostgresOptions
from penstock.destination.postgres.own_tables import (
    check_rights,
    ensure_own_tables,
    forget_pipeline,
    has_own_tables,
    refuse_actions,
)
from penstock.destination.postgres.progress import PIECES, Progress
from penstock.destination.postgres.sessions.driver_session import DriverSession
from penstock.destination.postgres.sessions.session import Connection, destination_errors
from penstock.destination.postgres.sessions.session_pool import SessionPool
from penstock.destination.postgres.staging.handover import Handover, HandoverPlace
from penstock.destination.postgres.staging.handover_choice import HandoverChoice
from penstock.destination.postgres.staging.receipt import StagedBatch
from penstock.destination.postgres.staging.restaging import restage
from penstock.destination.postgres.staging.sections import change_tables, refusals, stages_after
from penstock.destination.postgres.staging.stage import (
    CATCHUP_LANE,
    LANES,
    Stage,
    drop_sections,
    ensure_stages,
)
from penstock.destination.postgres.staging.staging_tables import StagingTables
from penstock.destination.postgres.staging.task_writer import PostgresWriter
from penstock.destination.postgres.targets.fit_table import fit_target
from penstock.destination.postgres.targets.table_names import TableNames
from penstock.destination.postgres.targets.target_record import read_records, recorded_target
from penstock.destination.postgres.targets.target_sequences import advance_sequences
from penstock.destination.postgres.targets.target_table import TargetTable, ensure_targets
from penstock.destination.postgres.whole_schema.whole_schema import WholeSchema
from penstock.destination.protocols import (
    CopiedByWorkers,
    FollowsSchema,
    HoldsSchema,
    HoldsTables,
    KeepsDeadLetters,
    TablesFailAlone,
    TakesPieces,
    TakesReplays,
    Ticket,
    Unrestored,
)
from penstock.failpoints import failpoint
from penstock.model.lsn import Position
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import TableRows
from penstock.model.watermarks import Watermarks
from penstock.source.postgres.silence import silence_limit
from penstock.source.postgres.whole_schema.programs import find_programs
from penstock.source.schema_dump import DumpOptions, SchemaDump, SequenceValue

_SEQUENCES_SECONDS = 60.0


class PostgresDestination(
    Destination,
    CopiedByWorkers,
    HoldsTables,
    TakesReplays,
    FollowsSchema,
    TablesFailAlone,
    TakesPieces,
    KeepsDeadLetters,
    HoldsSchema,
):
    """Executors stage, the driver merges: one transaction for all tables and the position."""

    name = "postgres"
    options_model = PostgresOptions
    chunks_stand = True
    failpoints = (
        "postgres.staged",
        "postgres.merged",
        "postgres.committed",
        "postgres.copy_truncated",
        "postgres.copy_chunk_written",
        "postgres.schema_before",
        "postgres.schema_after",
    )
    capabilities = Capabilities(
        mode="merge",
        exactly_once=True,
        remembers=True,
        atomic=True,
        batch_age=0.05,
    )

    def __init__(self, options: PostgresOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self._options = options
        self.capabilities = replace(self.capabilities, mode=options.mode)
        self._has_history = options.mode == "append"
        self._session = DriverSession(options, pipeline)
        self._commits = DriverCommits(self._session, pipeline)
        self._targets: dict[int, TargetTable] = {}
        self._staging = StagingTables(pipeline, has_history=self._has_history)
        self._replaying: frozenset[int] = frozenset()
        self._replayed: dict[int, frozenset[int]] = {}
        self._sections: dict[int, Mapping[int, Stage]] = {}
        self._handover, self._choice = Handover(), HandoverChoice()
        self._sequences_due = 0.0
        self._names = TableNames(options.target_schema, options.tables)
        self._pool = SessionPool(lambda: self._session.connect("tables"))
        self._copies = TableCopies(
            self._pool,
            pipeline,
            self._names,
            lambda: self._commits.epoch,
            has_history=self._has_history,
        )
        self._begun = BegunBatch(lambda: self._session.connect(PIECES), self._copies.check)
        if options.whole is not None:
            self._copies.whole = WholeSchema(
                lambda: self._session.connect("schema"),
                pipeline,
                options.whole,
                self._copies.hold,
                self._session.triggers_are_off,
            )

    # -- before the first batch ------------------------------------------------------------------

    def check(self) -> tuple[str, ...]:
        if self._options.whole is not None:
            find_programs(0, self._options.whole.programs)
            if self._session.awaits_database():
                return (
                    f"database {self._options.url.database} is missing; the first run makes it",
                )
        limit = silence_limit(self._options.url)
        with (
            self._session() as conn,
            destination_errors("asking whether it is there"),
            answered_within(conn, limit),
        ):
            return check_rights(conn, disable_triggers=self._options.disable_triggers)

    def open(self) -> None:
        with self._session() as conn:
            check_rights(conn, disable_triggers=self._options.disable_triggers)
            ensure_own_tables(conn)
            self._commits.take_over(conn)

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        wanted = definitions
        if self._has_history:
            wanted = [history.definition(table) for table in definitions]
        with (
            self._pool.session() as conn,
            destination_errors("preparing tables"),
            conn.transaction(),
        ):
            records = read_records(conn, self.pipeline)
            created = {oid: record.target for oid, record in records.items() if record.created}
            targets = ensure_targets(conn, wanted, self._names, created)
            if not self._session.triggers_are_off(conn):
                refuse_actions(conn, targets)
            planned = self._staging.make(conn, targets)
            is_new = self._commits.read(conn).watermarks is None
            self._copies.prepared(conn, definitions, targets, is_new=is_new)
        self._targets = {**self._targets, **{target.source_oid: target for target in targets}}
        self._staging.made(planned)

    # -- batches ---------------------------------------------------------------------------------

    def committed(self) -> Watermarks | None:
        return self._read().watermarks

    def writer(self) -> PostgresWriter:
        lane = self._staging.next_lane()
        self._handover.empty(lane)
        place = self._handover.place(lane) if self._choice.next() else None
        return self._writer(lane, self._staging.of(lane), place)

    def catchup_writer(self, tables: Collection[int]) -> PostgresWriter:
        if missing := self._staging.missing(tables):
            with self._pool.session() as conn, destination_errors("preparing to catch up"):
                ensure_stages(conn, missing)
            self._staging.catch_up(tables)
        stages = {oid: self._staging.catching_up(oid) for oid in tables}
        return self._writer(CATCHUP_LANE, stages)

    def _writer(
        self, lane: int, stages: Mapping[int, Stage], place: HandoverPlace | None = None
    ) -> PostgresWriter:
        # Kept: a batch is merged as it was staged, whatever is replayed by then.
        replaying = self._replayed[lane] = self._replaying
        return PostgresWriter(
            self._options.url,
            self.pipeline,
            lane,
            stages,
            self._options.dead_letter,
            replaying,
            place,
        )

    @property
    def gains_by_pieces(self) -> bool:
        return not self._has_history and self._choice.is_likely

    def take_piece(self, receipts: Sequence[Receipt]) -> None:
        piece = StagedBatch.from_bytes(receipts)
        self._begun.take(receipts, piece, self._staging.of(piece.lane))

    def undo_pieces(self) -> None:
        self._begun.undo()

    def commit(self, receipts: Sequence[Receipt], watermarks: Watermarks) -> None:
        batch = StagedBatch.from_bytes(receipts)
        progress = self._commits.next(watermarks)
        stages, was_handed = self._staging.of(batch.lane), batch.is_handed
        tasks = self._begun.tasks or len(receipts)
        begun = self._begun.rest(receipts, batch)

        def quick(conn: Connection) -> None:
            if begun is not None:
                self._end_begun(*begun, stages, progress)
            else:
                merge(conn, thorough=False)

        def merge(conn: Connection, *, thorough: bool) -> None:
            with self._commits.transaction(conn, progress):
                self._merge(conn, stages, batch, progress, thorough=thorough)

        def thorough(conn: Connection) -> None:
            nonlocal batch
            # What is taken of it is in the way of what is written again.
            self._begun.undo()
            if batch.is_handed:
                self._choice.refused()
                batch = restage(conn, stages, batch, self._letters_of)
            merge(conn, thorough=True)

        def tidy(conn: Connection) -> None:
            self._choice.committed(tasks, batch)
            self._staging.tidy(conn, batch)
            self._let_sequences_follow(conn)

        try:
            self._commits.run(progress, quick, thorough, tidy, "committing a batch")
        finally:
            self._begun.undo()
            # Also of one that failed: it is made again from the log. A batch of nothing has no
            # lane, and tasks of the next one may be at work.
            if was_handed:
                self._handover.empty(batch.lane)

    def _end_begun(
        self,
        conn: Connection,
        left: StagedBatch,
        stages: Mapping[int, Stage],
        progress: Progress,
    ) -> None:
        """Commit a batch of which the rest is ``left``, on the session that has the pieces.

        The position is moved last: until then a table that is brought on by itself is not held up.
        Whoever took over has ended this session.
        """
        self._merge(conn, stages, left, progress, thorough=False)
        self._commits.advance(conn, progress, PIECES)
        failpoint("postgres.merged")
        self._begun.commit()
        failpoint("postgres.committed")

    @property
    def _letters_of(self) -> str | None:
        """The pipeline, where rows that are refused become its dead letters."""
        return self.pipeline if self._options.dead_letter else None

    def _merge(
        self,
        conn: Connection,
        stages: Mapping[int, Stage],
        batch: StagedBatch,
        progress: Progress,
        *,
        thorough: bool,
    ) -> None:
        if not batch.runs:
            return
        assert progress.watermarks is not None  # noqa: S101 (a commit always has some)
        conn.execute("SET CONSTRAINTS ALL DEFERRED")
        merge = BatchMerge(
            conn,
            MergeRules(self.pipeline, self._options.on_conflict == "error", self._letters_of),
            stages,
            batch,
            position=Position(progress.watermarks.frontier.commit_lsn, 0),
            replayed=self._replayed.get(batch.lane, frozenset()),
        )
        merge.run(thorough=thorough)

    # -- schema changes --------------------------------------------------------------------------

    def section_writer(self, changes: Sequence[SchemaChange]) -> PostgresWriter:
        lane = LANES[0]
        stages: Mapping[int, Stage] = self._staging.of(lane)
        if changes:
            with self._pool.session() as conn, destination_errors("preparing a schema change"):
                changes = [self._at_target(change) for change in changes]
                stages = stages_after(
                    conn, self.pipeline, self._names, stages, changes, has_history=self._has_history
                )
                # Those of earlier sections hold rows already.
                earlier = [some for n, some in self._sections.items() if n < len(changes)]
                held = {s for some in (self._staging.of(lane), *earlier) for s in some.values()}
                ensure_stages(conn, [stage for stage in stages.values() if stage not in held])
        self._sections[len(changes)] = stages
        return self._writer(lane, stages)

    def commit_sections(
        self, sections: Sequence[SchemaChange | Rows], watermarks: Watermarks
    ) -> None:
        progress = self._commits.next(watermarks)

        def apply(conn: Connection, *, thorough: bool) -> None:
            with self._commits.transaction(conn, progress):
                self._apply_sections(conn, sections, progress, thorough=thorough)

        def tidy(conn: Connection) -> None:
            drop_sections(conn, self.pipeline)

        try:
            self._commits.run(
                progress,
                partial(apply, thorough=False),
                partial(apply, thorough=True),
                tidy,
                "committing a schema change",
            )
        finally:
            self._sections = {}

    def _at_target(self, change: SchemaChange) -> SchemaChange:
        return history.schema_change(change) if self._has_history else change

    def fit_table(self, table: TableDefinition, former: Sequence[TableDefinition]) -> None:
        with (
            self._pool.session() as conn,
            destination_errors(f"changing the target of {table.qualified_name}"),
            conn.transaction(),
        ):
            self._copies.hold(conn)
            if self._has_history:
                # What a history has had it keeps.
                table, former = history.definition(table), ()
            with refusals(table, "before its copy"):
                notes = fit_target(conn, self.pipeline, self._names, table, former)
            self._copies.note_changes([table.oid], notes)

    def _apply_sections(
        self,
        conn: Connection,
        sections: Sequence[SchemaChange | Rows],
        progress: Progress,
        *,
        thorough: bool,
    ) -> None:
        number = 0
        for section in sections:
            if isinstance(section, SchemaChange):
                change = self._at_target(section)
                notes = change_tables(conn, self.pipeline, self._names, change)
                self._copies.note_changes([table.oid for table in section.tables], notes)
                number += 1
                continue
            batch = StagedBatch.from_bytes(section.receipts)
            self._merge(conn, self._sections[number], batch, progress, thorough=thorough)

    def _let_sequences_follow(self, conn: Connection) -> None:
        """Now and then: no row of ours takes a value from them."""
        if time.monotonic() > self._sequences_due:
            self._sequences_due = time.monotonic() + _SEQUENCES_SECONDS
            advance_sequences(conn, list(self._targets.values()))

    # -- copies ----------------------------------------------------------------------------------

    def has_foreign_rows(self, table: TableDefinition) -> bool:
        """Whether the target holds rows that Penstock never wrote, which a copy would remove."""
        merges = self._options.mode == "merge"
        return merges and self._copies.has_foreign_rows(self._targets[table.oid])

    def knows_copy(self, table: int) -> bool:
        return self._copies.has_chunks(table)

    def truncate_table(self, table: TableDefinition) -> None:
        if (target := self._target(table)) is not None:
            self._copies.truncate(table, target)

    def _target(self, table: TableDefinition) -> TargetTable | None:
        """Also of one that was not prepared because it is about to leave."""
        if (known := self._targets.get(table.oid)) is not None:
            return known
        with self._pool.session() as conn, destination_errors("looking for a table"):
            return recorded_target(conn, self.pipeline, table)

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> ChunkWriter:
        return self._chunk_writer(table, *self._begin_chunks(table, again=again))

    def chunk_ticket(self, table: TableDefinition, *, again: bool = False) -> Ticket:
        stage, copy, again = self._begin_chunks(table, again=again)
        return {"stage": stage.to_json(), "copy": copy, "again": again}

    def ticket_writer(self, table: TableDefinition, ticket: Ticket) -> ChunkWriter:
        stage = Stage.from_json(ticket["stage"])
        return self._chunk_writer(table, stage, ticket["copy"], ticket["again"])

    def _begin_chunks(self, table: TableDefinition, *, again: bool) -> tuple[Stage, int, bool]:
        stage = self._staging.catching_up(table.oid)
        again = again and stage.kind == "keyed"
        copy = self._copies.begin_chunks(table, self._targets[table.oid], again=again)
        return stage, copy, again

    def _chunk_writer(
        self, table: TableDefinition, stage: Stage, copy: int, again: bool
    ) -> PostgresChunkWriter:
        return PostgresChunkWriter(
            self._options.url,
            self.pipeline,
            stage,
            copy,
            again,
            passes_binary(table, stage),
            self._options.dead_letter,
            self._options.disable_triggers,
        )

    def commit_chunks(self, receipts: Sequence[ChunkReceipt]) -> None:
        """Chunks are written in transactions of their own."""

    def finish_copy(self, table: TableDefinition) -> None:
        self._copies.finish(table, self._targets[table.oid])

    def replaying(self, tables: Collection[int]) -> None:
        merges = self._options.mode == "merge"
        self._replaying = frozenset(tables) if merges else frozenset()

    def parked_keys(self, table: int) -> Sequence[tuple[str, ...]]:
        return self._copies.parked(table)

    def settle_parked(self, rows: TableRows, keys: Sequence[tuple[str, ...]]) -> None:
        stage = self._staging.catching_up(rows.table.oid)
        self._copies.settle(stage, rows, keys, self._letters_of)

    def complete_table(self, table: TableDefinition) -> None:
        self._staging.caught_up(table.oid)
        self._copies.complete(table, self._staging.catching_up(table.oid))

    def complete_together(self, tables: Collection[int], new: Collection[int]) -> None:
        self._copies.complete_together(tables, new)

    def drop_table(self, table: TableDefinition) -> None:
        if (target := self._target(table)) is not None:
            self._copies.drop(table, target, self._staging.of_table(table.oid))
        self._targets = {o: target for o, target in self._targets.items() if o != table.oid}
        self._staging.forget(table.oid)

    def notes(self, table: int) -> Sequence[str]:
        """Which indexes and constraints of a table the destination could not make, and why."""
        return self._copies.notes(table)

    def is_outdated(self, table: int, note: str) -> bool:
        return self._copies.is_outdated(table, note)

    # -- the whole schema ------------------------------------------------------------------------

    @property
    def schema_options(self) -> DumpOptions | None:
        whole = self._options.whole
        return None if whole is None else DumpOptions(whole.programs, whole.roles, whole.compare)

    @property
    def _whole(self) -> WholeSchema:
        assert self._copies.whole is not None  # noqa: S101 (asked for where options say so)
        return self._copies.whole

    def has_schema(self) -> bool:
        return self._whole.has_schema()

    def restore_before(self, dump: SchemaDump, tables: Sequence[TableDefinition]) -> None:
        self._whole.before(dump, tables)

    def follow_schema(self, dump: SchemaDump) -> bool:
        return self._whole.follow(dump)

    def is_whole(self) -> bool:
        return self._whole.is_whole()

    def restore_after(self, *, followed: bool) -> None:
        self._whole.after(followed=followed)

    def set_sequences(self, values: Sequence[SequenceValue]) -> None:
        self._whole.set_sequences(values)

    def unrestored(self) -> Sequence[Unrestored]:
        return self._whole.unrestored()

    # -- for people ------------------------------------------------------------------------------

    def dead_letters(self) -> Mapping[str, int]:
        with self._session() as conn, destination_errors("counting dead letters"):
            if not has_own_tables(conn):
                return {}
            return count_letters(conn, self.pipeline)

    def forget(self) -> Sequence[str]:
        with self._session() as conn, destination_errors("forgetting the pipeline"):
            return forget_pipeline(conn, self.pipeline)

    def close(self) -> None:
        self._begun.close()
        self._handover.close()
        self._pool.close()
        with self._session.last() as conn:
            if conn is not None and self._targets:
                advance_sequences(conn, list(self._targets.values()))

    # -- the position ----------------------------------------------------------------------------

    def _read(self) -> Progress:
        with (
            self._session() as conn,
            destination_errors("reading the position"),
            answered_within(conn, silence_limit(self._options.url)),
        ):
            found, was_set_back = self._commits.resume(conn)
        if was_set_back:
            self._staging.were_lost(self._targets)
        return found

"""``postgres``: tables that are what the source's tables were at a commit, exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import psycopg

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
from penstock.destination.postgres.copying.chunk_writer import PostgresChunkWriter, passes_binary
from penstock.destination.postgres.copying.table_copies import TableCopies
from penstock.destination.postgres.count_dead_letters import count_letters
from penstock.destination.postgres.merging import history
from penstock.destination.postgres.merging.batch_merge import BatchMerge, MergeRules
from penstock.destination.postgres.merging.dead_letters import forget_staged
from penstock.destination.postgres.merging.table_merge import Odd, is_odd
from penstock.destination.postgres.options import PostgresOptions
from penstock.destination.postgres.own_tables import (
    check_rights,
    ensure_own_tables,
    forget_pipeline,
    has_own_tables,
    refuse_actions,
)
from penstock.destination.postgres.progress import (
    DRIVER,
    PIECES,
    Progress,
    advance,
    read_progress,
    take_back,
    take_over,
)
from penstock.destination.postgres.sessions.driver_session import DriverSession
from penstock.destination.postgres.sessions.session import (
    Connection,
    as_destination_error,
    destination_errors,
)
from penstock.destination.postgres.sessions.session_pool import SessionPool
from penstock.destination.postgres.staging.handover import Handover, HandoverPlace
from penstock.destination.postgres.staging.handover_choice import HandoverChoice
from penstock.destination.postgres.staging.known_stages import KnownStages
from penstock.destination.postgres.staging.receipt import StagedBatch, total
from penstock.destination.postgres.staging.restaging import restage
from penstock.destination.postgres.staging.sections import change_tables, refusals, stages_after
from penstock.destination.postgres.staging.stage import (
    CATCHUP_LANE,
    LANES,
    Stage,
    drop_sections,
    drop_stages,
    empty_stages,
    ensure_stages,
)
from penstock.destination.postgres.staging.staging_plan import planned_stages
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
from penstock.model.errors import DestinationUnavailable
from penstock.model.lsn import Position
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import TableRows
from penstock.model.watermarks import Watermarks
from penstock.source.postgres.silence import silence_limit
from penstock.source.postgres.whole_schema.programs import find_programs
from penstock.source.schema_dump import DumpOptions, SchemaDump, SequenceValue

# A staging table that is scanned with less than this left over in it is not worth emptying.
_SWEEP_BYTES = 8 * 2**20
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
        self._held = Progress(0, None)
        self._targets: dict[int, TargetTable] = {}
        self._lane = LANES[0]
        # Replaced, never changed: other threads read them while tables are prepared.
        self._stages = {lane: KnownStages({}) for lane in (*LANES, CATCHUP_LANE)}
        self._lost: frozenset[int] = frozenset()
        """Tables whose staging tables may be gone: the server has lost commits."""
        self._catching_up: set[int] = set()
        self._replaying: frozenset[int] = frozenset()
        self._replayed: dict[int, frozenset[int]] = {}
        self._left: dict[Stage, int] = {}
        self._sections: dict[int, Mapping[int, Stage]] = {}
        self._handover, self._choice = Handover(), HandoverChoice()
        self._begun = BegunBatch(lambda: self._session.connect(PIECES))
        self._sequences_due = 0.0
        self._names = TableNames(options.target_schema, options.tables)
        self._pool = SessionPool(lambda: self._session.connect("tables"))
        self._copies = TableCopies(
            self._pool,
            pipeline,
            self._names,
            lambda: self._held.epoch,
            has_history=self._has_history,
        )
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
            epoch = take_over(conn, self.pipeline)
            forget_staged(conn, self.pipeline)
            self._held = replace(self._progress(conn), epoch=epoch)

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        wanted = definitions
        if self._has_history:
            wanted = [history.definition(table) for table in definitions]
        lanes = (*LANES, CATCHUP_LANE)
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
            stages = planned_stages(
                conn,
                self.pipeline,
                targets,
                lanes,
                has_history=self._has_history,
            )
            # Those that are known may be in use by tasks.
            new = [
                stage
                for lane in LANES
                for stage in stages[lane]
                if stage.oid in self._lost or self._stages[lane].get(stage.oid) != stage
            ]
            ensure_stages(conn, new)
            known = self._stages[CATCHUP_LANE]
            drop_stages(conn, [s for s in stages[CATCHUP_LANE] if s.oid not in known])
            is_new = self._progress(conn).watermarks is None
            self._copies.prepared(conn, definitions, targets, is_new=is_new)
        self._targets = {**self._targets, **{target.source_oid: target for target in targets}}
        self._lost -= {stage.oid for stage in new}
        for lane in lanes:
            made = {stage.oid: stage for stage in stages[lane]}
            self._stages[lane] = KnownStages({**self._stages[lane], **made})

    # -- batches ---------------------------------------------------------------------------------

    def committed(self) -> Watermarks | None:
        return self._read().watermarks

    def writer(self) -> PostgresWriter:
        self._lane = LANES[(LANES.index(self._lane) + 1) % len(LANES)]
        self._handover.empty(self._lane)
        place = self._handover.place(self._lane) if self._choice.next() else None
        return self._writer(self._lane, self._stages[self._lane], place)

    def catchup_writer(self, tables: Collection[int]) -> PostgresWriter:
        stages = {oid: self._stages[CATCHUP_LANE][oid] for oid in tables}
        missing = [stage for oid, stage in stages.items() if oid not in self._catching_up]
        if missing:
            with self._pool.session() as conn, destination_errors("preparing to catch up"):
                ensure_stages(conn, missing)
            self._catching_up |= stages.keys()
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
        self._begun.take(receipts, piece, self._stages[piece.lane])

    def undo_pieces(self) -> None:
        self._begun.undo()

    def commit(self, receipts: Sequence[Receipt], watermarks: Watermarks) -> None:
        batch = StagedBatch.from_bytes(receipts)
        progress = Progress(self._held.epoch, watermarks)
        stages, was_handed = self._stages[batch.lane], batch.is_handed
        tasks = self._begun.tasks or len(receipts)
        begun = self._begun.rest(receipts, batch)

        def merge(conn: Connection, thorough: bool) -> None:
            self._merge(conn, stages, batch, progress, thorough=thorough)

        def quick(conn: Connection) -> None:
            if begun is None:
                self._transact(conn, progress, merge, thorough=False)
            else:
                self._end_begun(*begun, stages, progress)

        def thorough(conn: Connection) -> None:
            nonlocal batch
            # What is taken of it is in the way of what is written again.
            self._begun.undo()
            if batch.is_handed:
                self._choice.refused()
                batch = restage(conn, stages, batch, self._letters_of)
            self._transact(conn, progress, merge, thorough=True)

        def tidy(conn: Connection) -> None:
            self._choice.committed(tasks, batch)
            self._tidy(batch, conn)

        try:
            self._commit(progress, (quick, thorough), tidy, "committing a batch")
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
        self._advance(conn, progress, PIECES)
        failpoint("postgres.merged")
        self._begun.commit()
        failpoint("postgres.committed")

    def _commit(
        self,
        progress: Progress,
        ways: tuple[Callable[[Connection], None], Callable[[Connection], None]],
        tidy: Callable[[Connection], None],
        doing: str,
    ) -> None:
        """In one transaction, by the quick way, and if need be again by the thorough one."""
        quick, thorough = ways
        try:
            with self._session() as conn:
                try:
                    quick(conn)
                except (Odd, psycopg.Error) as error:
                    if not is_odd(error):
                        raise
                    thorough(conn)
                self._held = progress
                # What is committed stays committed: a server that is lost here is lost to the next
                # batch.
                with suppress(DestinationUnavailable), destination_errors("tidying up"):
                    tidy(conn)
        except psycopg.Error as error:
            raise as_destination_error(error, doing) from error

    def _transact(
        self,
        conn: Connection,
        progress: Progress,
        apply: Callable[[Connection, bool], None],
        *,
        thorough: bool,
    ) -> None:
        with conn.transaction():
            self._advance(conn, progress)
            apply(conn, thorough)
            failpoint("postgres.merged")
        failpoint("postgres.committed")

    @property
    def _letters_of(self) -> str | None:
        """The pipeline, where rows that are refused become its dead letters."""
        return self.pipeline if self._options.dead_letter else None

    def _advance(self, conn: Connection, progress: Progress, session: str = DRIVER) -> None:
        """First of all: it fences, and it holds a second driver up until we are done."""
        assert progress.watermarks is not None  # noqa: S101 (a commit always has some)
        advance(conn, self.pipeline, self._held, progress.watermarks, session)

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
        stages: Mapping[int, Stage] = self._stages[lane]
        if changes:
            with self._pool.session() as conn, destination_errors("preparing a schema change"):
                changes = [self._at_target(change) for change in changes]
                stages = stages_after(
                    conn, self.pipeline, self._names, stages, changes, has_history=self._has_history
                )
                # Those of earlier sections hold rows already.
                earlier = [some for n, some in self._sections.items() if n < len(changes)]
                held = {s for some in (self._stages[lane], *earlier) for s in some.values()}
                ensure_stages(conn, [stage for stage in stages.values() if stage not in held])
        self._sections[len(changes)] = stages
        return self._writer(lane, stages)

    def commit_sections(
        self, sections: Sequence[SchemaChange | Rows], watermarks: Watermarks
    ) -> None:
        progress = Progress(self._held.epoch, watermarks)

        def apply(conn: Connection, thorough: bool) -> None:
            self._apply_sections(conn, sections, progress, thorough=thorough)

        def quick(conn: Connection) -> None:
            self._transact(conn, progress, apply, thorough=False)

        def thorough(conn: Connection) -> None:
            self._transact(conn, progress, apply, thorough=True)

        def tidy(conn: Connection) -> None:
            drop_sections(conn, self.pipeline)

        try:
            self._commit(progress, (quick, thorough), tidy, "committing a schema change")
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

    def _tidy(self, batch: StagedBatch, conn: Connection) -> None:
        """Empty staging tables that have grown, and let sequences follow now and then.

        A task that outlived its batch may still write to one: then it is left for later.
        """
        for oid, parts in batch.parts(with_truncated=True).items():
            stage = self._stages[batch.lane][oid]
            self._left[stage] = self._left.get(stage, 0) + total(parts, "bytes")
        # The other lane's are in use by the tasks of the next batch; one without rows has no lane.
        stages = self._stages[batch.lane].values() if batch.runs else ()
        full = [stage for stage in stages if self._left.get(stage, 0) > _SWEEP_BYTES]
        if full:
            with suppress(psycopg.errors.LockNotAvailable), conn.transaction():
                conn.execute("SET LOCAL lock_timeout = '200ms'")
                conn.execute("SET LOCAL synchronous_commit = off")
                empty_stages(conn, full)
                for stage in full:
                    del self._left[stage]
        if time.monotonic() > self._sequences_due:
            self._sequences_due = time.monotonic() + _SEQUENCES_SECONDS
            advance_sequences(conn, list(self._targets.values()))

    # -- copies ----------------------------------------------------------------------------------

    def has_foreign_rows(self, table: TableDefinition) -> bool:
        """Whether the target holds rows that Penstock never wrote, which a copy would remove."""
        merges = self._options.mode == "merge"
        return merges and self._copies.has_foreign_rows(self._targets[table.oid])

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
        stage = self._stages[CATCHUP_LANE][table.oid]
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
        stage = self._stages[CATCHUP_LANE][rows.table.oid]
        self._copies.settle(stage, rows, keys, self._letters_of)

    def complete_table(self, table: TableDefinition) -> None:
        self._catching_up.discard(table.oid)
        self._copies.complete(table, self._stages[CATCHUP_LANE][table.oid])

    def drop_table(self, table: TableDefinition) -> None:
        self._catching_up.discard(table.oid)
        stages = [lane[table.oid] for lane in self._stages.values() if table.oid in lane]
        if (target := self._target(table)) is not None:
            self._copies.drop(table, target, stages)
        self._targets = {o: target for o, target in self._targets.items() if o != table.oid}
        for lane, kept in self._stages.items():
            left = {o: stage for o, stage in kept.items() if o != table.oid}
            self._stages[lane] = KnownStages(left)

    def notes(self, table: int) -> Sequence[str]:
        """Which indexes and constraints of a table the destination could not make, and why."""
        return self._copies.notes(table)

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
            found = self._progress(conn)
            if found.epoch < self._held.epoch:
                # Epochs only rise: this server has lost what came after, as far as our own.
                ensure_own_tables(conn)
                take_back(conn, self.pipeline, self._held.epoch)
                found = self._progress(conn)
        if found.epoch == self._held.epoch:
            if found.is_before(self._held):
                self._lost, self._catching_up = frozenset(self._targets), set()
            # A commit whose answer was lost has happened, or has not: this tells.
            self._held = found
        return found

    def _progress(self, conn: Connection) -> Progress:
        found = read_progress(conn, self.pipeline) if has_own_tables(conn) else None
        return found or Progress(0, None)

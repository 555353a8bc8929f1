"""Changes replayed over rows that were copied under several snapshots, by the rule of parked keys.

A copy that was resumed holds rows of different times. Whatever happened meanwhile, after the
replay and the keys that it parks the target is what the source is.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import psycopg
import pyarrow as pa
import pytest

from penstock.changelog import chain
from penstock.changelog.segment_run import read_runs
from penstock.decode.changes import ChangeSet, decode_changes
from penstock.destination.postgres.destination import PostgresDestination
from penstock.model.lsn import Frontier
from penstock.model.table_definition import ConstraintDefinition, TableDefinition
from penstock.model.table_name import TableName
from penstock.model.table_rows import TableRows
from penstock.model.watermarks import Watermarks
from penstock.source.postgres.catalogue.definitions import read_definitions
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, Table, table
from penstock.testing.contract.chunk_rows import ChunkRows, copy_chunks, table_schema
from penstock.testing.contract.deliveries import definition
from penstock.transform.floors import Floors
from tests.application_session import connect
from tests.fix_pipeline import PipelineUnderTest
from tests.fix_target import Target, as_texts

Row = tuple[str, ...]

DOCS = table(
    "docs",
    Column("id", "int8", key=True),
    Column("kind", "text", key=True),
    Column("n", "text"),
    Column("big", "text"),
)


def replay(
    destination: PostgresDestination,
    of: Table,
    frontier: Frontier,
    *tasks: Sequence[ChangeSet],
) -> None:
    """A batch of the table alone, committed between those of the others."""
    writer = pickle.dumps(destination.catchup_writer([of.oid]))
    receipts = [pickle.loads(writer).write(iter(task)) for task in tasks]  # noqa: S301
    destination.commit(receipts, Watermarks(frontier))


def settle(
    destination: PostgresDestination, of: Table, rows: Sequence[Row], at: Frontier
) -> list[Row]:
    """Read the parked keys again, among ``rows``; returns which there were."""
    keys = destination.parked_keys(of.oid)
    places = [index for index, column in enumerate(of.columns) if column.key]
    found = [row for row in rows if tuple(row[place] for place in places) in keys]
    columns = tuple(
        pa.array([row[index] for row in found], pa.string()) for index in range(len(of.columns))
    )
    destination.settle_parked(TableRows(table_schema(of), columns, len(found), at), keys)
    assert not destination.parked_keys(of.oid)
    return sorted(keys)


@pytest.fixture
def builder() -> ChangeBuilder:
    return ChangeBuilder()


# -- random histories --------------------------------------------------------------------------


@dataclass
class Source:
    """A table whose rows lie in chunks; every change may move a row to another one."""

    random: random.Random
    builder: ChangeBuilder = field(default_factory=ChangeBuilder)
    rows: dict[tuple[str, str], tuple[str, str, int]] = field(default_factory=dict)
    runs: list[ChangeSet] = field(default_factory=list)
    chunks: int = 4
    _values: int = 0

    def change(self) -> None:
        with self.builder.transaction():
            for _ in range(self.random.randint(1, 3)):
                self._step()
        if self.random.random() < 0.4:
            self.runs.append(self.builder.cut())

    def read(self, chunk: int, at: Frontier) -> ChunkRows:
        rows = [
            (*key, n, big) for key, (n, big, place) in sorted(self.rows.items()) if place == chunk
        ]
        return ChunkRows(DOCS, str(chunk), rows, at)

    def texts(self) -> list[Row]:
        return [(*key, n, big) for key, (n, big, _) in sorted(self.rows.items())]

    def _step(self) -> None:
        place = self.random.randrange(self.chunks)
        # Few keys, so that rows follow each other under one.
        fresh = (str(self.random.randrange(6)), self.random.choice("ab"))
        if not self.rows or self.random.random() < 0.3:
            if fresh not in self.rows:
                n, big = self._value(), self._value()
                self.builder.insert(DOCS, *fresh, n, big)
                self.rows[fresh] = (n, big, place)
            return
        key = self.random.choice(sorted(self.rows))
        _, big, _ = self.rows[key]
        old = [*key, None, None]
        kind = self.random.random()
        if kind < 0.25:
            self.builder.delete(DOCS, key=old)
            del self.rows[key]
            return
        n = self._value()
        sent: object = UNSET
        if self.random.random() < 0.3:
            big = sent = self._value()
        if kind < 0.6 and fresh not in self.rows:
            self.builder.update(DOCS, *fresh, n, sent, key=old)  # type: ignore[arg-type]
            del self.rows[key]
            self.rows[fresh] = (n, big, place)
        else:
            self.builder.update(DOCS, *key, n, sent)  # type: ignore[arg-type]
            self.rows[key] = (n, big, place)

    def _value(self) -> str:
        self._values += 1
        return f"v{self._values}"


@pytest.mark.parametrize("seed", range(25))
def test_any_history_under_any_snapshots(target: Target, seed: int) -> None:
    chance = random.Random(seed)
    source = Source(chance)
    for _ in range(10):
        source.change()
    source.builder.cut()
    source.runs.clear()
    destination = target.opened(definition(DOCS), on_conflict="error")
    destination.truncate_table(definition(DOCS))
    waiting = list(range(source.chunks))
    chance.shuffle(waiting)
    again = False
    while waiting:
        at = source.builder.frontier
        for _ in range(chance.randint(1, 2)):
            if waiting:
                copy_chunks(destination, source.read(waiting.pop(), at), again=again)
        again = True
        for _ in range(chance.randint(2, 12)):
            source.change()
    source.runs.append(source.builder.cut())
    end = source.builder.frontier
    destination.finish_copy(definition(DOCS))
    destination.replaying([DOCS.oid])
    runs = source.runs
    while runs:
        tasks = [[runs.pop(0) for _ in range(min(len(runs), chance.randint(1, 2)))]]
        if runs and chance.random() < 0.5:
            tasks.append([runs.pop(0)])
        replay(destination, DOCS, end, *tasks)
    settle(destination, DOCS, source.texts(), end)
    destination.replaying([])
    destination.complete_table(definition(DOCS))
    assert target.rows("docs") == Counter(source.texts())
    # From now on it is like all others, and as strict.
    for _ in range(3):
        source.change()
    source.runs.append(source.builder.cut())
    writer = destination.writer()
    receipts = [writer.write(source.runs)]
    destination.commit(receipts, Watermarks(source.builder.frontier))
    assert target.rows("docs") == Counter(source.texts())
    assert target.all("SELECT count(*) FROM pg_class WHERE relname ~ '^stage_shop_[0-9]+_2$'") == [
        (0,)
    ]


# -- a real source -------------------------------------------------------------------------------


@dataclass
class Copied:
    """A real table, and the log of its changes."""

    pipeline: PipelineUnderTest
    definition: TableDefinition
    of: Table

    def rows(self, first: int = 0, last: int = 2**31) -> list[Row]:
        """What lies in these blocks now. Nobody writes meanwhile."""
        with psycopg.connect(self.pipeline.url) as conn:
            found = conn.execute(
                "SELECT id::text, n::text, big FROM docs WHERE ctid >= %s::tid AND ctid < %s::tid"
                " ORDER BY id",
                [f"({first},0)", f"({last},0)"],
            ).fetchall()
        return [tuple(row) for row in found]

    def chunk(self, name: str, first: int, last: int) -> ChunkRows:
        lsn = self.pipeline.wal_end()
        return ChunkRows(self.of, name, self.rows(first, last), Frontier(lsn, lsn), piece=50)

    def block(self, key: int) -> int:
        with psycopg.connect(self.pipeline.url) as conn:
            row = conn.execute(
                "SELECT (ctid::text::point)[0]::int FROM docs WHERE id = %s", [key]
            ).fetchone()
        assert row is not None
        return int(row[0])

    def runs(self) -> tuple[list[ChangeSet], Frontier]:
        listing = self.pipeline.log.list()
        assert listing.frontier is not None
        pointers = chain.between(
            listing.segments,
            listing.sizes,
            listing.segments[0].after,
            listing.frontier.commit_lsn,
        )
        runs = [
            decode_changes(run.rows, run.tables, run.origins)
            for run in read_runs(self.pipeline.log, pointers)
        ]
        return runs, listing.frontier


def set_up(pipeline: PipelineUnderTest) -> Copied:
    # Only the last block has room: what is updated in the others moves there.
    pipeline.execute(
        "CREATE TABLE docs (id int PRIMARY KEY, n int, big text)",
        "ALTER TABLE docs ALTER big SET STORAGE EXTERNAL",
        "INSERT INTO docs SELECT i, 0, md5(i::text) || repeat('x', 3000)"
        " FROM generate_series(1, 300) i",
    )
    pipeline.subscribe()
    with connect(pipeline.url) as source:
        (found,) = read_definitions(source, [TableName("public", "docs")], ())
    columns = (Column("id", "int4", key=True), Column("n", "int4"), Column("big", "text"))
    return Copied(pipeline, found, Table(found.oid, "public", "docs", "d", columns))


def test_a_copy_that_crashed_and_goes_on(pipeline: PipelineUnderTest, target: Target) -> None:
    source = set_up(pipeline)

    last = source.block(300)
    assert source.block(100) < last
    destination = target.opened(source.definition)
    destination.truncate_table(source.definition)
    first_lsn = pipeline.wal_end()
    first = source.chunk("0", last, 2**31)
    destination.chunk_writer(source.definition).write(first)
    pipeline.execute(
        # It moves from a block that was not read into one that was, and its TOAST is not sent.
        "UPDATE docs SET n = 1 WHERE id = 10",
        # The same, and its key changes three times.
        "UPDATE docs SET id = 1011 WHERE id = 11",
        "UPDATE docs SET id = 2011 WHERE id = 1011",
        "DELETE FROM docs WHERE id = 12",
        "INSERT INTO docs VALUES (12, 5, md5('other'))",
        # Another row takes the key that a row left: each has a TOAST of its own.
        "UPDATE docs SET id = 4000 WHERE id = 299",
        "UPDATE docs SET id = 299 WHERE id = 13",
    )
    assert source.block(10) == last
    # The driver is killed here; the next one takes a new snapshot for what is missing.
    destination = target.opened(source.definition)
    again = destination.chunk_writer(source.definition, again=True)
    assert again.write(first).rows == len(first.rows)
    again.write(source.chunk("1", 0, last))
    pipeline.execute(
        # Read under the second snapshot, gone after it.
        "DELETE FROM docs WHERE id = 20",
        "UPDATE docs SET id = 3011 WHERE id = 2011",
        "UPDATE docs SET n = 2 WHERE id = 21",
    )
    pipeline.capture_all()
    destination.finish_copy(source.definition)
    destination.replaying([source.of.oid])
    runs, frontier = source.runs()
    replay(destination, source.of, frontier, [Floors(first_lsn).apply(run) for run in runs])
    assert sorted(destination.parked_keys(source.of.oid)) == [
        ("10",),
        ("299",),
        ("3011",),
        ("4000",),
    ]
    settle(destination, source.of, source.rows(), frontier)
    destination.complete_table(source.definition)
    assert target.rows("docs") == Counter(source.rows())


def test_a_unique_value_that_passed_from_row_to_row(target: Target, builder: ChangeBuilder) -> None:
    """At a target that somebody else made, so that its unique index is there all the time."""
    people = table("people", Column("id", "int8", key=True), Column("email", "text"))
    of = replace(
        definition(people),
        constraints=(ConstraintDefinition("one", "unique", "UNIQUE (email)", ("email",)),),
    )
    target.execute("CREATE TABLE people (id bigint PRIMARY KEY, email text UNIQUE)")
    destination = target.opened(of, on_conflict="error")
    destination.truncate_table(of)
    copy_chunks(destination, ChunkRows(people, "0", [("1", "x"), ("2", "y")]))
    # x went to 3 and y to 1, and 2 was deleted; then the other chunk is read.
    copy_chunks(destination, ChunkRows(people, "1", [("3", "x"), ("4", "z")]), again=True)
    assert target.rows("people") == {("2", "y"): 1, ("3", "x"): 1, ("4", "z"): 1}
    destination.finish_copy(of)
    destination.replaying([people.oid])
    with builder.transaction():
        builder.insert(people, "3", None)
        builder.delete(people, key=["2", None])
        builder.update(people, "1", "y")
    replay(destination, people, Frontier(1, 1), [builder.cut()])
    with builder.transaction():
        # 5 had z for a while: 4, of a later time, is in its way.
        builder.insert(people, "5", "z")
        builder.update(people, "3", "x")
    replay(destination, people, Frontier(1, 1), [builder.cut()])
    with builder.transaction():
        builder.update(people, "5", None)
        builder.insert(people, "4", "z")
    replay(destination, people, Frontier(1, 1), [builder.cut()])
    assert destination.parked_keys(people.oid) == ()
    assert target.rows("people") == {
        ("1", "y"): 1,
        ("3", "x"): 1,
        ("4", "z"): 1,
        ("5", None): 1,
    }


def test_keys_of_any_type_are_parked_and_found_again(
    database: str, target: Target, builder: ChangeBuilder
) -> None:
    with connect(database) as conn:
        conn.execute(
            "CREATE TYPE \"My %\" AS ENUM ('it''s, ok', 'b'); CREATE TYPE pair AS (x int, y text);"
            'CREATE TABLE odd (m "My %", at timestamptz, p pair, c char(4), big text,'
            " PRIMARY KEY (m, at, p, c))"
        )
        of = as_texts(*read_definitions(conn, [TableName("public", "odd")], ()))
    names = [column.name for column in of.columns]
    stream = table("odd", *[Column(n, "text", key=n != "big") for n in names], oid=of.oid)
    kept = ("it's, ok", "2024-02-01 10:00:00+00", '(1,"a,b")', "c   ")
    gone = ("b", "2024-02-01 10:00:00.5+00", "(2,)", "abcd")
    destination = target.opened(of)
    destination.truncate_table(of)
    destination.finish_copy(of)
    destination.replaying([of.oid])
    with builder.transaction():
        builder.update(stream, *kept, UNSET)
        builder.update(stream, *gone, UNSET)
    replay(destination, stream, Frontier(1, 1), [builder.cut()])
    target.execute("INSERT INTO odd VALUES ('b', '2024-02-01 10:00:00.5+00', '(2,)', 'abcd', 'x')")
    keys = destination.parked_keys(of.oid)
    assert sorted(keys) == [gone, (*kept[:3], "c")]
    columns = tuple(pa.array([text], pa.string()) for text in (*kept, "whole"))
    rows = TableRows(table_schema(stream), columns, 1, Frontier(1, 1))
    destination.settle_parked(rows, keys)
    assert target.rows("odd") == {(*kept[:3], "c", "whole"): 1}
    assert destination.parked_keys(of.oid) == ()

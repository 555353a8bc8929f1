"""Comparing two databases: every kind of difference is found and named, and nothing else."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import psycopg
import pytest

from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.table_name import TableName
from penstock.verify import checksums, compare
from penstock.verify.compare import compare_databases
from penstock.verify.constraints import check_constraints
from penstock.verify.report import ConstraintResult, RowDifference, TableComparison
from penstock.verify.snapshot import ComparedSnapshot
from penstock.verify.table_pair import TablePair
from tests.fix_postgres import drop_database

# Whatever a role or database has set must not matter.
SOURCE_SETTINGS = (
    "SET datestyle = 'German'; SET timezone = 'Asia/Kolkata'; SET intervalstyle = 'sql_standard';"
    "SET extra_float_digits = 0; SET bytea_output = 'escape'; SET search_path = public"
)

SCHEMA = """
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TYPE pair AS (a int, b float8);
CREATE TABLE keyed (
    id int, name text, region text, amount numeric(10, 2), PRIMARY KEY (region, id)
);
CREATE TABLE "No Key%" ("A b" int, "{}" text);
CREATE TABLE empty (id int PRIMARY KEY);
CREATE TABLE no_columns ();
CREATE TABLE parted (id int, part int, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES IN (2);
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child () INHERITS (parent);
CREATE TABLE odd_values (
    id int PRIMARY KEY, f float8, r float4, n numeric, b bytea, i interval, j jsonb, x json,
    t timestamptz, d date, a text[], m mood, p pair, money money, c char(5),
    g int GENERATED ALWAYS AS (id * 2) STORED
);
"""

ROWS = (
    "INSERT INTO keyed VALUES (1, 'a', 'Ä', 1.5)",
    "INSERT INTO keyed VALUES (2, NULL, 'b', NULL)",
    "INSERT INTO keyed VALUES (2, '', 'a', 0)",
    "INSERT INTO keyed VALUES (3, 'NULL', 'B', -1)",
    "INSERT INTO \"No Key%\" VALUES (1, 'x'), (1, 'x')",
    'INSERT INTO "No Key%" VALUES (NULL, NULL)',
    "INSERT INTO \"No Key%\" VALUES (NULL, '')",
    "INSERT INTO \"No Key%\" VALUES (2, 'NULL')",
    "INSERT INTO no_columns DEFAULT VALUES",
    "INSERT INTO no_columns DEFAULT VALUES",
    "INSERT INTO parted VALUES (1, 1), (1, 2)",
    "INSERT INTO parted VALUES (2, 2)",
    "INSERT INTO parent VALUES (1)",
    """INSERT INTO odd_values VALUES (
        1, 'NaN', '-infinity', 'NaN', '\\x00ff', '1 mon -2 days', '{"b": 1, "a": null}',
        '{"b":1,  "a": null}', 'infinity', '-infinity', '{a,NULL,""}', 'sad', '(1,)', 3.5, 'ab')""",
    """INSERT INTO odd_values VALUES (
        2, 0.1, 0.1, 1e-20, '', '0', '[]', '[]', '2020-02-29 12:00+02', '0044-03-15 BC', '{}',
        'happy', '(,0.3)', NULL, NULL)""",
    "INSERT INTO odd_values (id) VALUES (3)",
)

_ODD_COLUMNS = ("id", "f", "r", "n", "b", "i", "j", "x", "t", "d", "a", "m", "p", "money", "c", "g")


def pair(name: str, columns: tuple[str, ...], key: tuple[str, ...] = ()) -> TablePair:
    return TablePair(TableName("public", name), TableName("public", name), columns, key)


PAIRS = (
    pair("keyed", ("id", "name", "region", "amount"), ("region", "id")),
    pair("No Key%", ("A b", "{}")),
    pair("empty", ("id",), ("id",)),
    pair("no_columns", ()),
    pair("parted", ("id", "part"), ("id", "part")),
    pair("parent", ("id",), ("id",)),
    pair("odd_values", _ODD_COLUMNS, ("id",)),
)


@dataclass(frozen=True)
class TwoDatabases:
    source: str
    target: str

    def at_target(self, *statements: str) -> None:
        with psycopg.connect(self.target, autocommit=True) as conn:
            for statement in statements:
                conn.execute(statement.encode())

    def compare(
        self, *pairs: TablePair, shown: int = 10, parallel: int = 2
    ) -> dict[str, TableComparison]:
        results = compare_databases(
            lambda: _connected(self.source, SOURCE_SETTINGS),
            lambda: _connected(self.target, "SET timezone = 'UTC'"),
            pairs or PAIRS,
            shown=shown,
            parallel=parallel,
        )
        return {result.source.removeprefix("public."): result for result in results}

    def violations(self, *pairs: TablePair) -> list[ConstraintResult]:
        with ComparedSnapshot(
            lambda: psycopg.connect(self.target), lambda _action: nullcontext()
        ) as snapshot:
            return check_constraints(snapshot, pairs, parallel=2)


def _connected(url: str, settings: str) -> psycopg.Connection[tuple[object, ...]]:
    conn = psycopg.connect(url)
    conn.execute(settings.encode())
    conn.commit()
    return conn


@pytest.fixture
def empty_databases(pg_server: EmbeddedPostgres) -> Iterator[TwoDatabases]:
    names = [f"verify_{uuid.uuid4().hex}" for _ in range(2)]
    yield TwoDatabases(*(pg_server.create_database(name) for name in names))
    for name in names:
        drop_database(pg_server, name)


@pytest.fixture
def two(empty_databases: TwoDatabases) -> TwoDatabases:
    """The same rows on both sides, stored in another order; the target has other blocks, too."""
    for url, rows in ((empty_databases.source, ROWS), (empty_databases.target, ROWS[::-1])):
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(SCHEMA)
            for statement in rows:
                conn.execute(statement.encode())
    return empty_databases


def test_equal_databases_are_equal(two: TwoDatabases) -> None:
    results = two.compare()
    assert all(result.equal for result in results.values()), results
    counts = {name: result.source_rows for name, result in results.items()}
    assert counts == {
        "keyed": 4, "No Key%": 5, "empty": 0, "no_columns": 2, "parted": 3, "parent": 1,
        "odd_values": 3,
    }  # fmt: skip
    assert counts == {name: result.target_rows for name, result in results.items()}


def test_differing_keys_are_named(two: TwoDatabases) -> None:
    two.at_target(
        "DELETE FROM keyed WHERE region = 'Ä'",
        "INSERT INTO keyed VALUES (9, 'new', 'it''s', 1)",
        "UPDATE keyed SET name = 'null', amount = 2 WHERE region = 'B'",
        "UPDATE keyed SET name = '' WHERE region = 'b'",
    )
    results = two.compare()
    found = results["keyed"]
    assert (found.source_rows, found.target_rows, found.differing) == (4, 4, 4)
    assert found.counted_all
    assert set(found.differences) == {
        RowDifference("missing", "region=Ä, id=1"),
        RowDifference("extra", "region=it's, id=9"),
        RowDifference("different", "region=B, id=3", ("name", "amount")),
        RowDifference("different", "region=b, id=2", ("name",)),
    }
    assert [name for name, result in results.items() if not result.equal] == ["keyed"]


def test_rows_without_a_key_are_counted(two: TwoDatabases) -> None:
    two.at_target(
        'DELETE FROM "No Key%" WHERE "A b" = 1',
        'INSERT INTO "No Key%" VALUES (NULL, NULL)',
        'UPDATE "No Key%" SET "{}" = NULL WHERE "A b" = 2',
        "INSERT INTO no_columns DEFAULT VALUES",
    )
    results = two.compare()
    assert results["No Key%"].differing == 5
    assert set(results["No Key%"].differences) == {
        RowDifference("missing", "{1,x}", count=2),
        RowDifference("missing", '{2,"NULL"}'),
        RowDifference("extra", "{2,NULL}"),
        RowDifference("extra", "{NULL,NULL}"),
    }
    assert results["no_columns"].differences == (RowDifference("extra", "{}"),)


def test_every_type_is_told_apart(two: TwoDatabases) -> None:
    others = {
        "f": ("'infinity'", "0.1::float8 + 0.2::float8", "NULL"),
        "r": ("'infinity'",),
        "n": ("0",),
        "b": ("'\\x00fe'",),
        "i": ("'1 mon -1 days'",),
        "j": ('\'{"b": 1, "a": 0}\'',),
        "x": ('\'{"b":1, "a": null}\'',),
        "t": ("'-infinity'",),
        "d": ("'0044-03-15'",),
        "a": ('\'{a,"NULL",""}\'', "'{a,NULL}'"),
        "m": ("'happy'",),
        "p": ("'(1,0)'",),
        "money": ("3.51",),
        "c": ("'a b'",),
    }
    assert {"id", *others, "g"} == set(_ODD_COLUMNS)
    for column, values in others.items():
        for value in values:
            two.at_target(
                "DELETE FROM odd_values WHERE id = 1",
                next(row for row in ROWS if "'NaN'" in row),
                f"UPDATE odd_values SET {column} = {value} WHERE id = 1",  # noqa: S608
            )
            found = two.compare(PAIRS[-1])["odd_values"]
            assert found.differences == (RowDifference("different", "id=1", (column,)),), value


def test_partitions_and_children(two: TwoDatabases) -> None:
    """A partitioned table stands for all its partitions, a parent for its own rows alone."""
    two.at_target("DELETE FROM parted_1", "INSERT INTO child VALUES (7)", "DELETE FROM ONLY parent")
    results = two.compare()
    assert results["parted"].differences == (RowDifference("missing", "id=1, part=1"),)
    assert results["parent"].differences == (RowDifference("missing", "id=1"),)
    assert results["parent"].target_rows == 0


def test_a_key_twice_at_the_destination(two: TwoDatabases) -> None:
    two.at_target("ALTER TABLE parent DROP CONSTRAINT parent_pkey", "INSERT INTO parent VALUES (1)")
    found = two.compare()["parent"]
    assert found.differences == (RowDifference("extra", "id=1"),)


def test_what_cannot_be_compared_does_not_pass_for_equal(two: TwoDatabases) -> None:
    two.at_target("ALTER TABLE keyed DROP COLUMN name", "DROP TABLE empty")
    results = two.compare(*PAIRS, pair("nowhere", ("id",)))
    assert "has no table public.empty" in results["empty"].not_compared
    assert "the source has no table public.nowhere" in results["nowhere"].not_compared
    assert "name" in results["keyed"].not_compared
    assert not any(results[name].equal for name in ("empty", "nowhere", "keyed"))
    # The sessions go on: the others were compared.
    assert results["odd_values"].equal
    assert results["odd_values"].source_rows == 3


def test_rows_that_a_policy_hides_are_not_overlooked(two: TwoDatabases) -> None:
    reader = f"reader_{uuid.uuid4().hex[:8]}"
    two.at_target(
        f"CREATE ROLE {reader} LOGIN",
        f"GRANT SELECT ON empty, parent TO {reader}",
        "ALTER TABLE parent ENABLE ROW LEVEL SECURITY",
    )
    try:
        results = compare_databases(
            lambda: psycopg.connect(two.source),
            lambda: psycopg.connect(two.target, user=reader),
            [PAIRS[2], PAIRS[5]],
        )
        assert results[0].equal
        assert "row-level security" in results[1].not_compared
    finally:
        two.at_target(f"DROP OWNED BY {reader}", f"DROP ROLE {reader}")


def _many(two: TwoDatabases, count: int) -> TablePair:
    statements = (
        "CREATE TABLE many (id int PRIMARY KEY, v text)",
        f"INSERT INTO many SELECT i, 'v' || i FROM generate_series(1, {count}) AS i",  # noqa: S608
    )
    with psycopg.connect(two.source, autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement.encode())
    two.at_target(*statements)
    return pair("many", ("id", "v"), ("id",))


def test_many_pieces_and_chunks(two: TwoDatabases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "_PIECE_BLOCKS", 2)
    monkeypatch.setattr(checksums, "_CHUNK_BYTES", 8192)
    many = _many(two, 5000)
    # Blocks that the target has and the source has not, and the other way round.
    two.at_target("UPDATE many SET v = v WHERE id % 3 = 0")
    assert two.compare(many)["many"].equal
    two.at_target(
        "UPDATE many SET v = 'other' WHERE id IN (1, 2500, 5000)",
        "DELETE FROM many WHERE id = 17",
        "INSERT INTO many VALUES (0, 'zero')",
    )
    found = two.compare(many, parallel=3)["many"]
    assert found.differing == 5
    assert {difference.row for difference in found.differences} == {
        "id=0", "id=1", "id=17", "id=2500", "id=5000",
    }  # fmt: skip


def test_a_few_of_many_differences_are_named(two: TwoDatabases) -> None:
    many = _many(two, 200)
    two.at_target("TRUNCATE many")
    found = two.compare(many, shown=3)["many"]
    assert (found.source_rows, found.target_rows, found.differing) == (200, 0, 200)
    assert found.counted_all
    assert [difference.kind for difference in found.differences] == ["missing"] * 3


def test_of_very_many_differences_a_part_is_looked_at(
    two: TwoDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checksums, "_CHUNK_BYTES", 8192)
    monkeypatch.setattr(compare, "_LOOKED_AT", 1000)
    many = _many(two, 5000)
    two.at_target("UPDATE many SET v = 'other'")
    found = two.compare(many, shown=5)["many"]
    assert not found.counted_all
    assert 5 <= found.differing <= 1000
    # The other half of a row lies in a chunk that was not looked at, mostly: by key it is found.
    assert [difference.kind for difference in found.differences] == ["different"] * 5


def test_values_are_compared_as_their_types_write_them(empty_databases: TwoDatabases) -> None:
    """A cast to text may be somebody's own, and leave out in what two values differ."""
    two = empty_databases
    for url in (two.source, two.target):
        with psycopg.connect(url, autocommit=True) as conn:
            for statement in (
                "CREATE TYPE mood AS ENUM ('sad', 'glad')",
                "CREATE FUNCTION hidden(mood) RETURNS text LANGUAGE sql RETURN 'a mood'::text",
                "CREATE CAST (mood AS text) WITH FUNCTION hidden(mood)",
                "CREATE TABLE moods (id int PRIMARY KEY, m mood, code bpchar)",
                "INSERT INTO moods VALUES (1, 'sad', 'a '), (2, NULL, NULL)",
            ):
                conn.execute(statement.encode())
    moods = pair("moods", ("id", "m", "code"), ("id",))
    assert two.compare(moods)["moods"].equal
    two.at_target("UPDATE moods SET m = 'glad', code = 'a' WHERE id = 1")
    (difference,) = two.compare(moods)["moods"].differences
    assert difference == RowDifference("different", "id=1", ("m", "code"))


def test_progress_is_told(two: TwoDatabases) -> None:
    told: list[tuple[int, int]] = []

    def plain(_action: str) -> nullcontext[None]:
        return nullcontext()

    connects: list[Callable[[], psycopg.Connection[tuple[object, ...]]]] = [
        lambda: psycopg.connect(two.source),
        lambda: psycopg.connect(two.target),
    ]
    with (
        ComparedSnapshot(connects[0], plain) as source,
        ComparedSnapshot(connects[1], plain) as target,
    ):
        compare.compare_snapshots(
            source, target, PAIRS, observe=lambda done, of: told.append((done, of))
        )
    assert told == [(done + 1, 2 * len(PAIRS)) for done in range(2 * len(PAIRS))]


class TestConstraints:
    def test_what_replication_does_not_enforce(self, empty_databases: TwoDatabases) -> None:
        two = empty_databases
        two.at_target(
            'CREATE TABLE parent (id int PRIMARY KEY, "Code" text,'
            ' CONSTRAINT code_once UNIQUE ("Code") DEFERRABLE INITIALLY DEFERRED)',
            "CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent, a int, b int,"
            " UNIQUE (a, b) DEFERRABLE)",
            "CREATE TABLE both_or_none (id int PRIMARY KEY, x int, y int)",
            "CREATE TABLE pairs (x int, y int, PRIMARY KEY (x, y))",
            "ALTER TABLE both_or_none ADD CONSTRAINT full_match FOREIGN KEY (x, y)"
            " REFERENCES pairs MATCH FULL",
            "CREATE TABLE elsewhere (parent int REFERENCES parent)",
        )
        pairs = (
            pair("parent", ("id", "Code"), ("id",)),
            pair("child", ("id", "parent", "a", "b"), ("id",)),
            pair("both_or_none", ("id", "x", "y"), ("id",)),
        )
        two.at_target(
            "INSERT INTO parent VALUES (1, 'a'), (2, NULL), (3, NULL)",
            "INSERT INTO child VALUES (1, 1, 1, NULL), (2, NULL, 1, NULL), (3, 2, 1, 1)",
            "INSERT INTO both_or_none VALUES (1, NULL, NULL)",
        )
        assert [r.violations for r in two.violations(*pairs)] == [()] * 5

        two.at_target(
            "SET session_replication_role = replica;"
            "INSERT INTO parent VALUES (4, 'a'), (5, 'a');"
            "INSERT INTO child VALUES (4, 99, 1, 1), (5, 98, 2, 2);"
            "INSERT INTO both_or_none VALUES (2, 1, NULL);"
            "INSERT INTO elsewhere VALUES (77)",
        )
        found = {
            (r.table, r.kind): set(r.violations) for r in two.violations(*pairs) if r.violations
        }
        assert found == {
            ("public.parent", "unique"): {"(a)"},
            ("public.child", "unique"): {"(1, 1)"},
            ("public.child", "foreign key"): {"(99)", "(98)"},
            ("public.both_or_none", "foreign key"): {"(1, null)"},
            # Not a table of ours, but what we delete it refers to.
            ("public.elsewhere", "foreign key"): {"(77)"},
        }

    def test_what_was_never_checked_for_all_rows(self, empty_databases: TwoDatabases) -> None:
        two = empty_databases
        two.at_target(
            "CREATE TABLE goods (id int PRIMARY KEY, price int)",
            "INSERT INTO goods SELECT i, -i FROM generate_series(1, 8) AS i",
            "INSERT INTO goods VALUES (9, NULL)",
            "ALTER TABLE goods ADD CONSTRAINT positive CHECK (price % 100 > 0) NOT VALID",
        )
        goods = pair("goods", ("id", "price"), ("id",))
        (result,) = two.violations(goods)
        assert (result.name, result.kind, result.more) == ("positive", "check", True)
        assert result.violations == ("(1)", "(2)", "(3)", "(4)", "(5)")
        two.at_target("UPDATE goods SET price = 1")
        (result,) = two.violations(goods)
        assert result.violations == ()

    def test_a_unique_index_that_never_became_valid(self, empty_databases: TwoDatabases) -> None:
        two = empty_databases
        two.at_target(
            "CREATE TABLE goods (id int PRIMARY KEY, name text, gone bool)",
            "INSERT INTO goods VALUES (1, 'A', false), (2, 'a', false), (3, 'b', true),"
            " (4, 'B', true)",
        )
        with pytest.raises(psycopg.errors.UniqueViolation):
            two.at_target(
                "CREATE UNIQUE INDEX CONCURRENTLY lower_name ON goods (lower(name)) WHERE NOT gone"
            )
        (result,) = two.violations(pair("goods", ("id", "name", "gone"), ("id",)))
        assert (result.name, result.violations) == ("lower_name", ("(a)",))

    def test_exclusion_constraints_are_named_as_unchecked(
        self, empty_databases: TwoDatabases
    ) -> None:
        two = empty_databases
        two.at_target(
            "CREATE TABLE stays (id int PRIMARY KEY, during int4range,"
            " CONSTRAINT apart EXCLUDE USING gist (during WITH &&) DEFERRABLE)"
        )
        (result,) = two.violations(pair("stays", ("id", "during"), ("id",)))
        assert (result.name, result.violations) == ("apart", ())
        assert "not checked" in result.unchecked

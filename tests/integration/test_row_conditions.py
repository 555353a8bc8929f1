"""Row conditions decide as Postgres does: random conditions over random rows, asked of both."""

# ruff: noqa: S608 - the statements are made of what stands in this file.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.model.lsn import NOTHING
from penstock.model.pg_types import builtin_type
from penstock.model.table_rows import TableRows
from penstock.model.table_schema import ColumnSchema, PgType, TableSchema
from penstock.model.value_settings import VALUE_SETTINGS
from penstock.transform.row_condition import RowCondition

Text = st.SearchStrategy[str]

NUMBERS = ("0", "1", "-1", "2", "7", "100", "32767", "-32768")
LARGE = ("2147483647", "-2147483648", "9223372036854775807")
FRACTIONS = ("0.5", "0.50", "-1.25", "99999999.99", "0.1", "3.3")
TEXTS = ("", "a", "A", "ab", "Ab ", "a%b", "x_y", "line\nbreak", "100", "zz", "é", "ab\\")
DAYS = ("2024-02-29", "2024-03-01", "1999-12-31", "0001-01-01")
CLOCKS = ("00:00:00", "12:30:00.5", "23:59:59.999999")
UUIDS = ("00000000-0000-0000-0000-000000000001", "ffffffff-ffff-ffff-ffff-ffffffffffff")
MOODS = ("calm", "Odd one")

# Name, type, what it holds besides null. The values are such that comparisons often hit.
COLUMNS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("i2", "smallint", NUMBERS),
    ("i4", "integer", (*NUMBERS, *LARGE[:2])),
    ("i8", "bigint", (*NUMBERS, *LARGE)),
    ("n", "numeric(10,2)", (*NUMBERS, *FRACTIONS)),
    ("u", "numeric", (*NUMBERS, *LARGE, *FRACTIONS, "0.10", "1e-12", "123456789.123456789")),
    ("r", "real", (*NUMBERS, "0.1", "0.5", "3.3", "NaN", "Infinity")),
    ("f", "double precision", (*NUMBERS, "0.1", "0.5", "3.3", "NaN", "-Infinity", "1e300")),
    ("t", "text", TEXTS),
    ("v", "varchar(20)", TEXTS),
    ("c", "char(5)", ("", "a", "A", "ab", "ab   ", "zz")),
    ("b", "boolean", ("true", "false")),
    ("d", "date", DAYS),
    ("ts", "timestamp", tuple(f"{day} {clock}" for day in DAYS for clock in CLOCKS)),
    ("tz", "timestamptz", tuple(f"{day} {clock}+00" for day in DAYS[:3] for clock in CLOCKS)),
    ("tm", "time", CLOCKS),
    ("g", "uuid", UUIDS),
    ("m", "mood", MOODS),
    ("y", "bytea", ("\\x", "\\x00ff", "\\x6162")),
)
VALUES = {name: values for name, _type, values in COLUMNS}
ROWS = 120
MOOD = PgType(50_000, "mood", "enum")

# Evaluates one condition for one row: what one row makes Postgres refuse says nothing of others.
VERDICT = """
    CREATE FUNCTION verdict(condition text, row_id int) RETURNS text LANGUAGE plpgsql AS $$
    DECLARE found boolean;
    BEGIN
        EXECUTE format('SELECT %s FROM sample WHERE id = %s', condition, row_id) INTO found;
        RETURN found::text;
    EXCEPTION WHEN data_exception THEN
        RETURN 'refused';
    END $$
"""


def _quoted(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def literals(name: str) -> Text:
    return st.sampled_from(VALUES[name]).map(_quoted)


def joined(template: str, *parts: Text) -> Text:
    return st.tuples(*parts).map(lambda drawn: template.format(*drawn))


plain_numbers = st.sampled_from([*NUMBERS, *LARGE, *FRACTIONS, "1e3", ".5"])
order = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])
equality = st.sampled_from(["=", "<>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
nots = st.sampled_from(["", "NOT "])

integers = st.recursive(
    st.sampled_from(["i2", "i4", "i8", "length(t)", "length(c)", "1", "7", "-3"]),
    lambda inner: st.one_of(
        joined("{} {} {}", inner, st.sampled_from("+-*/"), inner),
        joined("({} {} {})", inner, st.sampled_from("+-*/"), inner),
        joined("coalesce({}, {})", inner, inner),
        joined("-({})", inner),
    ),
    max_leaves=4,
)
exact = st.recursive(
    st.sampled_from(["n", "u", "i4", "0.5", "2", "-1.25"]),
    lambda inner: joined("({} {} {})", inner, st.sampled_from("+-*"), inner),
    max_leaves=2,
)
floats = st.recursive(
    st.sampled_from(["r", "f", "n", "i4", "0.5", "coalesce(r, 0.1)"]),
    lambda inner: joined("({} {} {})", inner, st.sampled_from("+-*/"), st.sampled_from("rf")),
    max_leaves=3,
)
texts = st.recursive(
    st.sampled_from(["t", "v"]) | literals("t"),
    lambda inner: st.one_of(
        joined("lower({})", inner),
        joined("upper({})", inner),
        joined("coalesce({}, {})", inner, inner),
    ),
    max_leaves=3,
)
patterns = st.text("ab%_\\A", max_size=4).filter(lambda text: not text.endswith("\\"))
same_type = st.sampled_from(["b", "d", "ts", "tz", "tm", "g", "y"])


def _of_one_type(name: str) -> Text:
    return st.one_of(
        joined(f"{name} {{}} {{}}", order, literals(name)),
        joined(f"{name} {{}}IN ({{}}, {{}})", nots, literals(name), literals(name)),
        joined(f"{name} {{}}IN ({{}}, NULL)", nots, literals(name)),
        joined(f"{name} {{}}BETWEEN {{}} AND {{}}", nots, literals(name), literals(name)),
        joined(f"{name} {{}} {name}", equality),
        joined(f"coalesce({name}, {{}}) {{}} {{}}", literals(name), order, literals(name)),
    )


number_tests = st.one_of(
    joined("{} {} {}", integers, order, integers),
    joined("{} {} {}", exact, order, exact),
    joined("{} {} {}", floats, order, floats),
    joined("{} {} {}", st.sampled_from(["i2", "i8", "n", "u", "r", "f"]), order, plain_numbers),
    joined("{} {} {}", integers, equality, exact),
    joined("r {} {}", order, literals("r")),
    joined("u {} {}", order, literals("u")),
    joined("r {}IN ({}, {})", nots, plain_numbers, plain_numbers),
    joined("i4 {}IN ({}, {}, n)", nots, plain_numbers, st.sampled_from(["3", "0.5"])),
    joined("u {}BETWEEN {} AND {}", nots, plain_numbers, exact),
)
text_tests = st.one_of(
    joined("{} {} {}", texts, equality, texts),
    joined('{} COLLATE "C" {} {}', texts, order, texts),
    joined("c {} {}", equality, literals("c") | texts),
    joined("c {}IN ({}, {})", nots, literals("c"), literals("c")),
    joined('c COLLATE "C" {} {}', order, literals("c")),
    joined("{} {}LIKE {}", st.sampled_from(["t", "v", "c"]), nots, patterns.map(_quoted)),
    joined("{} {}ILIKE {}", texts, nots, patterns.map(_quoted)),
    joined("t {}LIKE {} ESCAPE 'b'", nots, st.sampled_from(["'ab_'", "'%b%'", "'bb%'"])),
    joined("t {}ILIKE {} ESCAPE 'A'", nots, st.sampled_from(["'aA_'", "'A%b'", "'AA%'", "'%a%'"])),
    joined("m {} {}", equality, literals("m")),
    joined("m {}IN ('calm'::mood, {})", nots, literals("m")),
)
time_tests = st.one_of(
    joined("d {} ts", order),
    joined("ts {} DATE {}", order, literals("d")),
    joined("d {} TIMESTAMP {}", order, literals("ts")),
    joined("tz {} {}::timestamptz", order, literals("tz")),
)
null_tests = joined("{} IS {}NULL", st.sampled_from([*VALUES, "i4 + i8", "t = v"]), nots)
tests = st.one_of(
    number_tests,
    text_tests,
    time_tests,
    same_type.flatmap(_of_one_type),
    null_tests,
    st.sampled_from(["b", "true", "NULL", "b IS NOT TRUE", "(i4 > 1) IS FALSE"]),
)
conditions = st.recursive(
    tests,
    lambda inner: st.one_of(
        joined("{} AND {}", inner, inner),
        joined("{} OR {}", inner, inner),
        joined("NOT {}", inner),
        joined("({})", inner),
        joined("({}) = ({})", inner, inner),
    ),
    max_leaves=4,
)


class Sample:
    """Rows in a database, and the same rows as a copy would bring them."""

    def __init__(self, url: str) -> None:
        self.session = psycopg.connect(url, autocommit=True)
        columns = ", ".join(f"{name} {kind}" for name, kind, _values in COLUMNS)
        for statement in (
            *VALUE_SETTINGS,
            "SET search_path TO public",
            "CREATE TYPE mood AS ENUM ({})".format(", ".join(map(_quoted, MOODS))),
            f"CREATE TABLE sample (id int PRIMARY KEY, {columns})",
            VERDICT,
        ):
            self.session.execute(statement)
        places = ", ".join(["%s"] * (len(COLUMNS) + 1))
        for row in range(ROWS):
            # Each column goes through its values at a pace of its own, null among them.
            drawn = [
                (*values, None)[(row * (number + 1) + row // 7) % (len(values) + 1)]
                for number, (_name, _kind, values) in enumerate(COLUMNS)
            ]
            self.session.execute(f"INSERT INTO sample VALUES ({places})", [row, *drawn])
        self.rows = self._copied()

    def verdicts(self, condition: str) -> list[str | None]:
        found = self.session.execute(
            "SELECT verdict(%s, id) FROM sample ORDER BY id", [condition]
        ).fetchall()
        return [verdict for (verdict,) in found]

    def passing(self, condition: str) -> list[bool]:
        passing: list[bool] = RowCondition.parse(condition).passing_rows(self.rows).tolist()
        return passing

    def _copied(self) -> TableRows:
        described = self.session.execute(
            "SELECT attname, atttypid, atttypmod FROM pg_attribute"
            " WHERE attrelid = 'sample'::regclass AND attnum > 0 ORDER BY attnum"
        ).fetchall()
        # COPY gives each value as its output function writes it, and so does the stream.
        with self.session.cursor().copy("COPY (TABLE sample ORDER BY id) TO STDOUT") as copy:
            columns = list(zip(*copy.rows(), strict=True))
        table = TableSchema(
            oid=1,
            schema="public",
            name="sample",
            replica_identity="d",
            columns=tuple(
                ColumnSchema(name, builtin_type(oid) or MOOD, typmod, name == "id")
                for name, oid, typmod in described
            ),
        )
        texts = tuple(pa.array(column, pa.string()) for column in columns)
        return TableRows(table, texts, ROWS, NOTHING)


@pytest.fixture
def sample(database: str) -> Iterator[Sample]:
    sample = Sample(database)
    yield sample
    sample.session.close()


def may_pass_undecided(condition: str, sample: Sample, row: int) -> bool:
    """Letters beyond ASCII have cases that depend on the locale."""
    if not any(word in condition for word in ("lower", "upper", "ILIKE")):
        return False
    values = [str(column[row].as_py()) for column in sample.rows.columns]
    return any("é" in text for text in (condition, *values))


def test_random_conditions_decide_as_postgres_does(sample: Sample) -> None:
    seen: Counter[str | None] = Counter()

    @settings(
        max_examples=400,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(conditions)
    def decide_alike(condition: str) -> None:
        passing = sample.passing(condition)
        for row, verdict in enumerate(sample.verdicts(condition)):
            seen[verdict] += 1
            if verdict == "true":
                assert passing[row], f"row {row} meets {condition}"
            elif verdict != "refused" and not may_pass_undecided(condition, sample, row):
                assert not passing[row], f"row {row} does not meet {condition}"

    decide_alike()
    assert all(seen[verdict] > 100 for verdict in ("true", "false", None, "refused")), seen


def test_a_quotient_of_numerics_is_decided_unless_it_is_nearly_equal(sample: Sample) -> None:
    for quotient in ("n / u", "i4 / n", "u / 3.0", "u / n"):
        far = sample.verdicts(f"abs({quotient} - 0.5) > 1e-12")
        for operator in ("=", "<>", "<", ">=", "IS NOT DISTINCT FROM"):
            condition = f"{quotient} {operator} 0.5"
            passing = sample.passing(condition)
            decided = 0
            for row, verdict in enumerate(sample.verdicts(condition)):
                if verdict == "true":
                    assert passing[row], f"row {row} meets {condition}"
                elif verdict != "refused" and far[row] != "false":
                    assert not passing[row], f"row {row} does not meet {condition}"
                    decided += 1
            assert decided


def test_what_postgres_refuses_to_compute_passes(sample: Sample) -> None:
    """Postgres would end the query; a change must not be lost by that."""
    for condition in ("1 / (i4 - i4) > 0", "i4 * i4 > 0", "f / 0.0 = f"):
        verdicts = sample.verdicts(condition)
        assert verdicts.count("refused") > 1
        passing = sample.passing(condition)
        assert all(passing[row] for row, verdict in enumerate(verdicts) if verdict == "refused")

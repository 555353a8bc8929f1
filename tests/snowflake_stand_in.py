"""A stand-in for Snowflake: a session of ours in place of the connector's, which translates each
statement with sqlglot and has DuckDB execute it. It is no Snowflake: what it shows is rows, the
order of statements and what a transaction holds.
"""

# ruff: noqa: S608 - names are quoted.

from __future__ import annotations

import csv
import gzip
import io
import re
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import duckdb
import sqlglot
from snowflake.connector import errors

from penstock.destination.families.staged_merge.object_stage import stage_owner
from penstock.objects.bucket import Bucket

csv.field_size_limit(2**27)
STAGE = "LAKE.PUBLIC.SHOP_STAGE"
_COPY = re.compile(
    r"COPY INTO (?P<table>\S+) \((?P<columns>.*?)\) FROM @(?P<stage>[\w.$]+)/(?P<folder>[^/]*)/"
    r" FILES = \('(?P<file>[^']+)'\) FILE_FORMAT = \(TYPE = CSV COMPRESSION = GZIP"
    r" FIELD_OPTIONALLY_ENCLOSED_BY = '\"' EMPTY_FIELD_AS_NULL = FALSE ESCAPE = NONE"
    r" ESCAPE_UNENCLOSED_FIELD = NONE BINARY_FORMAT = HEX TRIM_SPACE = FALSE ENCODING = 'UTF8'"
    r" NULL_IF = \('(?P<null>[^']+)'\)\)"
    r" ON_ERROR = ABORT_STATEMENT"
)
_REPLACE = re.compile(
    r"CREATE OR REPLACE TABLE (?P<table>\S+|\"[^\"]*\"\.\"[^\"]*\") \((?P<columns>.*)\)"
    r" COMMENT = '(?P<mark>[^']*)' AS (?P<query>SELECT .*)",
    re.DOTALL,
)
_RENAME = re.compile(r"(ALTER TABLE .* RENAME TO )\"(?:[^\"]|\"\")*\"\.(\"(?:[^\"]|\"\")*\")")
_DDL = re.compile(r"CREATE|ALTER|DROP|TRUNCATE|COMMENT")
_MEMBER = re.compile(r"CAST\(GET\((\w+), ('(?:[^'\\]|\\.|'')*')\) AS VARCHAR\)")
_HEXADECIMAL = re.compile(r"TO_NUMBER\(LEFT\((.*), 15\), 'X{15}'\)")
# A value of a document by its name, which JSONPath would take for a path.
MEMBER = (
    "CREATE MACRO stand_in_member(document, name) AS"
    " json_extract_string(document, '/' || replace(replace(name, '~', '~0'), '/', '~1'))"
)
_SPELLED = {
    r"^DECIMAL": "NUMBER",
    r"^VARCHAR$": "TEXT",
    r"^DOUBLE$": "FLOAT",
    r"^BLOB$": "BINARY",
    r"^TIMESTAMP$": "TIMESTAMP_NTZ(6)",
    r"^TIMESTAMP WITH TIME ZONE$": "TIMESTAMP_TZ(6)",
    r"^TIME$": "TIME(6)",
    r"^JSON$": "VARIANT",
}


class SnowflakeStandIn:
    """One account. ``statements`` are all that came; ``committed_by`` those that ended a
    transaction without saying so. ``faults`` are patterns and error numbers, or errors: the next
    statement that fits fails. After ``left`` more statements the connection is lost: before the
    next one is executed, or after it where ``is_done``.
    """

    errors = errors

    def __init__(self, stage: str, stage_options: dict[str, str]) -> None:
        self._database = duckdb.connect(":memory:")
        self._database.execute("SET TimeZone = 'UTC'")
        self._database.execute(MEMBER)
        self._stage = stage
        self._stage_options = stage_options
        self.lock = threading.RLock()
        self.statements: list[str] = []
        self.committed_by: list[str] = []
        self.faults: list[tuple[str, int | errors.Error]] = []
        self.left: int | None = None
        self.is_done = False

    def connect(self, **options: Any) -> StandInConnection:
        """As ``snowflake.connector.connect``."""
        assert options["autocommit"] is True
        assert options["session_parameters"]["TIMEZONE"] == "UTC"
        return StandInConnection(self, self._database.cursor())

    def object(self, folder: str, name: str) -> bytes | None:
        place = Bucket(f"{self._stage}/{folder}", self._stage_options, stage_owner("snowflake"))
        data = place.get(name)
        return None if data is None else bytes(data)

    def described(self) -> list[tuple[str, ...]]:
        return [("STAGE_LOCATION", "URL", "String", f'["{self._stage}/"]', "[]")]

    def read(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Names and rows, in DuckDB's own SQL."""
        with self.lock:
            found = self._database.cursor().execute(query)
            return [column[0] for column in found.description or []], found.fetchall()

    def close(self) -> None:
        self._database.close()


class StandInConnection:
    """What the destination uses of the connector's connections and cursors."""

    def __init__(self, account: SnowflakeStandIn, session: duckdb.DuckDBPyConnection) -> None:
        self._account = account
        self._session = session
        self._in_transaction = False
        self._found: list[tuple[Any, ...]] = []
        self.rowcount: int | None = None
        session.execute("SET TimeZone = 'UTC'")

    def cursor(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Cursors are closed, connections are not."""

    def execute(self, statement: str) -> Self:
        with self._account.lock:
            self._account.statements.append(statement)
            for fault in self._account.faults:
                if re.search(fault[0], statement):
                    self._account.faults.remove(fault)
                    if isinstance(fault[1], errors.Error):
                        raise fault[1]
                    raise errors.ProgrammingError(msg="as the test wants it", errno=fault[1])
            is_last = self._account.left == 0
            if self._account.left is not None:
                self._account.left -= 1
            if is_last and not self._account.is_done:
                raise errors.OperationalError(msg="connection lost")
            try:
                self._execute(statement)
                if is_last:
                    raise errors.OperationalError(msg="connection lost")
            except duckdb.TransactionException as error:
                raise errors.ProgrammingError(msg=str(error), errno=625) from None
            except duckdb.Error as error:
                raise errors.ProgrammingError(msg=f"{error} in {statement}", errno=1003) from None
        return self

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._found

    def close(self) -> None:
        """What is not committed is rolled back."""
        with self._account.lock:
            if self._in_transaction:
                self._session.execute("ROLLBACK")
            self._in_transaction = False
            self._session.close()

    def _execute(self, statement: str) -> None:
        if _DDL.match(statement) and self._in_transaction:
            self._account.committed_by.append(statement)
            self._session.execute("COMMIT")
            self._in_transaction = False
        if statement in ("BEGIN", "COMMIT", "ROLLBACK"):
            if statement == "BEGIN" or self._in_transaction:
                self._session.execute(statement)
            self._in_transaction = statement == "BEGIN"
        elif statement.startswith("COPY INTO"):
            self._copy(statement)
        elif statement.startswith("DESCRIBE STAGE"):
            assert statement == f"DESCRIBE STAGE {STAGE}"
            self._found = self._account.described()
        elif "INFORMATION_SCHEMA.COLUMNS" in statement:
            self._found = self._columns()
        elif (replaced := _REPLACE.fullmatch(statement)) is not None:
            self._replace(replaced)
        else:
            self._run(statement)

    def _run(self, statement: str) -> None:
        found = self._session.execute(translated(statement)).fetchall()
        is_query = statement.startswith("SELECT")
        self._found = found if is_query else []
        self.rowcount = None if is_query else (found[0][0] if found else 0)

    def _columns(self) -> list[tuple[Any, ...]]:
        found = self._session.execute(
            "SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns()"
            " WHERE NOT internal ORDER BY schema_name, table_name, column_index"
        ).fetchall()
        rows = []
        for *place, kind in found:
            for pattern, spelled in _SPELLED.items():
                kind = re.sub(pattern, spelled, kind)  # noqa: PLW2901
            rows.append((*place, kind))
        return rows

    def _replace(self, found: re.Match[str]) -> None:
        made = f"CREATE TABLE main.replaced ({found['columns']})"
        self._session.execute("BEGIN")
        self._run(made)
        self._run(f"INSERT INTO main.replaced {found['query']}")
        self._run(f"DROP TABLE IF EXISTS {found['table']}")
        self._run(f"CREATE TABLE {found['table']} ({found['columns']})")
        self._run(f"INSERT INTO {found['table']} SELECT * FROM main.replaced")
        self._run("DROP TABLE main.replaced")
        self._session.execute(f"COMMENT ON TABLE {found['table']} IS '{found['mark']}'")
        self._session.execute("COMMIT")

    def _copy(self, statement: str) -> None:
        found = _COPY.fullmatch(statement)
        assert found is not None, statement
        assert found["stage"] == STAGE
        data = self._account.object(found["folder"], found["file"])
        if data is None:
            raise errors.ProgrammingError(msg=f"no file {found['file']}", errno=91016)
        lines = gzip.decompress(data)
        if [] in csv.reader(io.StringIO(lines.decode(), newline="")):
            # SKIP_BLANK_LINES is FALSE unless a file format says otherwise.
            raise errors.ProgrammingError(msg=f"a blank line in {found['file']}", errno=100080)
        columns = found["columns"].split(", ")
        described = self._session.execute(f"DESCRIBE {found['table']}").fetchall()
        kinds = {row[0].lower(): row[1] for row in described}
        values = [
            f"unhex(column{index})" if kinds[name.lower()] == "BLOB" else f"column{index}"
            for index, name in enumerate(columns)
        ]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rows.csv"
            file.write_bytes(lines)
            names = ", ".join(f"'column{index}': 'VARCHAR'" for index in range(len(columns)))
            self._session.execute(
                f"INSERT INTO {found['table']} ({found['columns']}) SELECT {', '.join(values)}"
                f" FROM read_csv('{file}', header=false, columns={{{names}}},"
                f" nullstr='{found['null']}', allow_quoted_nulls=true, quote='\"', escape='\"',"
                " delim=',', parallel=false,"
                " auto_detect=false, max_line_size=64000000)"
            )


def translated(statement: str) -> str:
    """For DuckDB."""
    statement = statement.replace("OR REPLACE TRANSIENT TABLE", "OR REPLACE TABLE")
    statement = _HEXADECIMAL.sub(r"CAST('0x' || LEFT(\1, 15) AS BIGINT)", statement)
    statement = _MEMBER.sub(r"STAND_IN_MEMBER(\1, \2)", statement)
    (found,) = sqlglot.transpile(statement, read="snowflake", write="duckdb")
    found = _RENAME.sub(r"\1\2", found)
    found = re.sub(r"\bVARIANT\b", "JSON", found)
    # DuckDB's decimals have 38 digits before it multiplies them.
    found = found.replace("CAST(_commit_lsn AS DECIMAL(38, 0))", "CAST(_commit_lsn AS HUGEINT)")
    found = re.sub(r"\b(penstock_given\.m\d+) & ", r"CAST(\1 AS BIGINT) & ", found)
    return found.replace(
        "SELECT COMMENT FROM INFORMATION_SCHEMA", "SELECT TABLE_COMMENT FROM INFORMATION_SCHEMA"
    )


def stand_in_module(account: SnowflakeStandIn) -> SimpleNamespace:
    """In place of the package ``snowflake.connector``."""
    return SimpleNamespace(connect=account.connect, errors=errors)

"""A stand-in for BigQuery and Cloud Storage: an HTTP server of ours that Google's own client, and
obstore's, talk to. BigQuery's analyser (ZetaSQL) looks at each statement, sqlglot translates it and
DuckDB executes it. It is no BigQuery: what it shows is that statements are BigQuery's, what a
script holds, what becomes of jobs whose answers are lost, and rows.
"""

# ruff: noqa: S608 - names are quoted.

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import duckdb
import pyarrow.parquet as pq
import sqlglot

from tests.snowflake_stand_in import MEMBER
from tests.zetasql_analyser import Refused, analyse

PROJECT, LOCATION, STAGE = "shop-project", "EU", "gs://shop-stage/penstock"
_CHECK = re.compile(
    r"IF @@row_count <> (\d+) THEN RAISE USING MESSAGE = FORMAT\('([^']*)', @@row_count\); END IF;"
)
_DDL = re.compile(r"CREATE|ALTER|DROP")
_CHANGED = re.compile(r"(?:MERGE INTO|INSERT INTO|UPDATE|DELETE FROM|TRUNCATE TABLE) (\S+)")
_CLUSTER = re.compile(r" CLUSTER BY `[^`]+`(?:, `[^`]+`){0,3}")
_OPTIONS = re.compile(r" OPTIONS \(\w+ = '((?:[^'\\]|\\.)*)'\)")
_CREATE = re.compile(
    r"CREATE (?P<how>OR REPLACE )?TABLE (?:IF NOT EXISTS )?(?P<table>\S+|`[^`]*`\.`[^`]*`)"
    r" \((?P<columns>.*?)\)(?: AS (?P<query>SELECT .*))?"
)
_CATALOGUE = re.compile(r"FROM `region-eu`\.INFORMATION_SCHEMA\.(\w+)")
_NAMED = re.compile(r"table_schema = '([^']*)' AND table_name = '([^']*)'")
_RENAMED = re.compile(r"ALTER TABLE `([^`]+)`\.`([^`]+)` RENAME TO `([^`]+)`")
_RETYPED = re.compile(r"ALTER COLUMN `[^`]+` SET DATA TYPE")
_MEMBER = re.compile(r"JSON_VALUE\((\w+)\[('(?:[^'\\]|\\.)*')\]\)")
_KINDS = {
    "BIGINT": "INT64", "VARCHAR": "STRING", "DOUBLE": "FLOAT64", "BOOLEAN": "BOOL", "BLOB": "BYTES",
    "TIMESTAMP": "DATETIME", "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
}  # fmt: skip
_MOST_TABLES = 100
_looked: set[tuple[str, str]] = set()
_MOST_BYTES = 2**20


class Failure(Exception):
    """A job that fails, and why."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class BigQueryStandIn:
    """One project with one bucket. ``jobs`` are texts in the order in which they came. ``faults``
    are patterns, reasons and messages: the next statement that fits fails. The answer to a job that
    fits one of ``unanswered`` is lost, and all are while ``is_away``; one that fits ``late`` has
    read its files, and is executed when ``catch_up`` is called. After ``left`` more jobs all fail.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.jobs: list[str] = []
        self.faults: list[tuple[str, str, str]] = []
        self.unanswered: list[str] = []
        self.late: list[str] = []
        self.is_away = False
        self.left: int | None = None
        self.refused: list[str] = []
        self.objects: dict[str, bytes] = {}
        self.results: dict[str, dict[str, Any]] = {}
        self.bounds: list[dict[str, Any]] = []
        self._waiting: list[Callable[[], None]] = []
        self._parts: dict[str, dict[int, bytes]] = {}
        self._marks: dict[tuple[str, str], str] = {}
        self._database = duckdb.connect(":memory:")
        self._database.execute("SET TimeZone = 'UTC'")
        self._database.execute(MEMBER)
        handler = type("Bound", (Handler,), {"stand_in": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._database.close()

    def client(self, *_: object) -> Any:
        """Google's own client, which talks to this."""
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import bigquery

        return bigquery.Client(
            project=PROJECT,
            location=LOCATION,
            credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
            client_options={"api_endpoint": self.url},
        )

    @property
    def stage_options(self) -> dict[str, str]:
        key = {"gcs_base_url": self.url, "disable_oauth": True, "client_email": "",
               "private_key": "", "private_key_id": ""}  # fmt: skip
        return {"service_account_key": json.dumps(key)}

    def read(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Names and rows, in DuckDB's own SQL."""
        with self.lock:
            found = self._database.cursor().execute(query)
            return [column[0] for column in found.description or []], found.fetchall()

    # -- jobs ------------------------------------------------------------------------------------

    def insert(self, job: dict[str, Any]) -> tuple[int, dict[str, Any] | None]:
        """The answer to a request for a job; None where it is lost."""
        with self.lock:
            name, query = job["jobReference"]["jobId"], job["configuration"]["query"]
            if name in self.results:
                return 409, error(409, "duplicate", f"Already Exists: Job {name}")
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    return 403, error(403, "accessDenied", "The driver is dead")
            self.jobs.append(query["query"])
            self.bounds.append(query)
            job["status"], job["statistics"] = {"state": "RUNNING"}, {"query": {}}
            self.results[name] = {"job": job, "rows": None}
            if taken(self.late, query["query"]):
                files = dict(self.objects)
                self._waiting.append(lambda: self._finish(name, query, files))
                self.is_away = True
                return 200, None
            self._finish(name, query, self.objects)
            if taken(self.unanswered, query["query"]):
                return 200, None
            return 200, job

    def catch_up(self) -> None:
        """Execute what is late."""
        with self.lock:
            for each in self._waiting:
                each()
            self._waiting.clear()

    def _finish(self, name: str, query: dict[str, Any], files: dict[str, bytes]) -> None:
        found, job = self.results[name], self.results[name]["job"]
        job["status"] = {"state": "DONE"}
        session = self._database.cursor()
        session.execute("SET TimeZone = 'UTC'")
        try:
            if len(query["query"].encode()) > _MOST_BYTES:
                raise Failure("invalidQuery", "The query is too large")
            for relation, file in query.get("tableDefinitions", {}).items():
                assert file["sourceFormat"] == "PARQUET"
                (uri,) = file["sourceUris"]
                if uri.removeprefix("gs://") not in files:
                    raise Failure("notFound", f"Not found: URI {uri}")
                data = files[uri.removeprefix("gs://")]
                session.register(relation, pq.read_table(io.BytesIO(data)))
            relations = tuple(query.get("tableDefinitions", {}))
            if query["query"].startswith("BEGIN TRANSACTION;\n"):
                self._script(session, query["query"].split("\n"), relations)
                return
            rows, count = self._statement(session, query["query"], relations)
            found["rows"] = rows
            job["statistics"]["query"]["numDmlAffectedRows"] = str(count)
        except Failure as failure:
            told = {"reason": failure.reason, "message": str(failure)}
            job["status"] |= {"errorResult": told, "errors": [told]}
        finally:
            session.close()

    def _script(
        self, session: duckdb.DuckDBPyConnection, lines: list[str], relations: tuple[str, ...]
    ) -> None:
        assert lines[-1] == "COMMIT TRANSACTION;"
        session.execute("BEGIN")
        changed, count = set[str](), 0
        try:
            for number, line in enumerate(lines[1:-1], start=2):
                try:
                    if (check := _CHECK.fullmatch(line)) is not None:
                        if count != int(check[1]):
                            raise Failure("invalidQuery", check[2].replace("%d", str(count)))
                        continue
                    if _DDL.match(line):
                        raise Failure("invalidQuery", "DDL inside of a transaction")
                    found = _CHANGED.match(line)
                    assert found is not None, line
                    changed.add(found[1])
                    if len(changed) > _MOST_TABLES:
                        raise Failure("invalidQuery", "Transaction changes too many tables")
                    _, count = self._statement(session, line.removesuffix(";"), relations)
                except Failure as failure:
                    text = f"Query error: {failure} at [{number}:1]"
                    raise Failure(failure.reason, text) from None
            session.execute("COMMIT")
        except Failure:
            session.execute("ROLLBACK")
            raise

    def _statement(
        self, session: duckdb.DuckDBPyConnection, statement: str, relations: tuple[str, ...]
    ) -> tuple[list[tuple[Any, ...]] | None, int]:
        for fault in self.faults:
            if re.search(fault[0], statement):
                self.faults.remove(fault)
                raise Failure(*fault[1:])
        if (found := _CATALOGUE.search(statement)) is not None:
            return self._catalogued(found[1], statement), 0
        self._look_at(session, statement, relations)
        try:
            if (made := _CREATE.fullmatch(_OPTIONS.sub("", _CLUSTER.sub("", statement)))) and (
                not statement.startswith("CREATE SCHEMA")
            ):
                self._make(session, made, statement)
                return None, 0
            rows = session.execute(translated(statement)).fetchall()
        except duckdb.Error as error:
            raise Failure("invalidQuery", f"{error} in {statement}") from None
        if (other := _RENAMED.fullmatch(statement)) is not None:
            # A table's description goes with it.
            self._marks[other[1], other[3]] = self._marks.pop((other[1], other[2]), "")
        if statement.startswith("SELECT"):
            return rows, 0
        return None, rows[0][0] if rows and isinstance(rows[0][0], int) else 0

    def _look_at(
        self, session: duckdb.DuckDBPyConnection, statement: str, relations: tuple[str, ...]
    ) -> None:
        """BigQuery's analyser, once for each kind of statement over tables that are as they are."""
        if _RETYPED.search(statement):
            return  # this release of the analyser does not know it
        tables = {(s, n): c for s, n, c in self._tables(session)}
        for relation in relations:
            kinds = session.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
            tables["", relation] = {row[0]: _KINDS[row[1]] for row in kinds}
        text = re.sub(r"'(?:[^'\\]|\\.)*'", "''", statement)
        for number, relation in enumerate(relations):
            text = text.replace(relation, f"relation{number}")
        kind = text, json.dumps([[*place, found] for place, found in tables.items() if place[0]])
        if kind in _looked:
            return
        try:
            analyse(statement, tables)
        except Refused as refused:
            self.refused.append(str(refused))
            raise Failure("invalidQuery", str(refused)) from None
        _looked.add(kind)

    def _tables(self, session: duckdb.DuckDBPyConnection) -> list[tuple[str, str, dict[str, str]]]:
        found: dict[tuple[str, str], dict[str, str]] = {}
        for schema, name, column, kind in session.execute(
            "SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns()"
            " WHERE NOT internal AND schema_name <> 'main' AND database_name = 'memory'"
            " ORDER BY schema_name, table_name, column_index"
        ).fetchall():
            found.setdefault((schema, name), {})[column] = bigquery_type(kind).partition("(")[0]
        return [(schema, name, columns) for (schema, name), columns in found.items()]

    def _catalogued(self, view: str, statement: str) -> list[tuple[Any, ...]]:
        if view == "COLUMNS":
            _, rows = self.read(
                "SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns()"
                " WHERE NOT internal ORDER BY schema_name, table_name, column_index"
            )
            return [(*row[:3], bigquery_type(row[3])) for row in rows]
        named = _NAMED.search(statement)
        assert named is not None, statement
        if view == "TABLE_OPTIONS":
            mark = self._marks.get((named[1], named[2]))
            return [] if mark is None else [(mark,)]
        _, rows = self.read(
            "SELECT 1 FROM duckdb_tables() WHERE schema_name ="
            f" '{named[1]}' AND table_name = '{named[2]}'"
        )
        return rows

    def _make(
        self, session: duckdb.DuckDBPyConnection, made: re.Match[str], statement: str
    ) -> None:
        """CREATE TABLE, all or nothing."""
        schema, _, name = made["table"].replace("`", "").partition(".")
        table = f'"{schema}"."{name}"'
        is_there = bool(
            session.execute(
                "SELECT 1 FROM duckdb_tables() WHERE schema_name = ? AND table_name = ?",
                [schema, name],
            ).fetchall()
        )
        if is_there and made["how"] is None:
            return
        assert not is_there, f"{statement}: BigQuery replaces no table that lies otherwise"
        session.execute("BEGIN")
        session.execute(translated(f"CREATE TABLE {made['table']} ({made['columns']})"))
        if made["query"]:
            session.execute(f"INSERT INTO {table} {translated(made['query'])}")
        session.execute("COMMIT")
        if (mark := _OPTIONS.search(statement)) is not None:
            self._marks[schema, name] = mark[1]


def bigquery_type(kind: str) -> str:
    """A type of DuckDB as BigQuery calls it."""
    if not kind.startswith("DECIMAL"):
        return _KINDS.get(kind, kind)
    precision, scale = map(int, kind[8:-1].split(","))
    name = "NUMERIC" if precision - scale <= 29 and scale <= 9 else "BIGNUMERIC"
    return f"{name}({precision},{scale})" if scale else f"{name}({precision})"


def translated(statement: str) -> str:
    """For DuckDB."""
    if statement.startswith("CREATE SCHEMA"):
        statement = _OPTIONS.sub("", statement)
    statement = re.sub(r"FORMAT\('%\.\d+f', (`[^`]+`)\)", r"CAST(\1 AS STRING)", statement)
    statement = re.sub(r"\bPARSE_JSON\(((?:'(?:[^'\\]|\\.)*'|[\w.])+)\)", r"CAST(\1 AS JSON)",
                       statement)  # fmt: skip
    statement = re.sub(r"\bBIGNUMERIC\(", "NUMERIC(", statement)
    statement = statement.replace("AS BIGNUMERIC)", "AS NUMERIC(38))")
    statement = _MEMBER.sub(r"STAND_IN_MEMBER(\1, \2)", statement)
    (found,) = sqlglot.transpile(statement, read="bigquery", write="duckdb")
    # DuckDB's decimals have 38 digits before it multiplies them.
    return found.replace("CAST(_commit_lsn AS DECIMAL(38))", "CAST(_commit_lsn AS HUGEINT)")


def taken(patterns: list[str], text: str) -> bool:
    """Whether one of the patterns fits, which is used up by that."""
    for pattern in patterns:
        if re.search(pattern, text):
            patterns.remove(pattern)
            return True
    return False


def error(code: int, reason: str, message: str) -> dict[str, Any]:
    told = {"code": code, "message": message, "errors": [{"reason": reason, "message": message}]}
    return {"error": told}


class Handler(BaseHTTPRequestHandler):
    """Of BigQuery's API the requests that Google's client sends here; of that of Cloud Storage
    those of obstore, in XML.
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    stand_in: BigQueryStandIn

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        if not place.path.startswith("/bigquery/v2/projects/"):
            self._object(place.path, parse_qs(place.query, keep_blank_values=True))
            return
        if self.stand_in.is_away:
            self._hang_up()
            return
        *_, kind, name = place.path.split("/")
        if kind == "datasets":
            _, found = self.stand_in.read(
                f"SELECT 1 FROM duckdb_schemas() WHERE schema_name = '{name}'"
            )
            reference = {"projectId": PROJECT, "datasetId": name}
            told = {"datasetReference": reference, "location": LOCATION}
            answer = (200, told) if found else (404, error(404, "notFound", "Not found: Dataset"))
            self._answer(*answer)
            return
        result = self.stand_in.results.get(unquote(name))
        if result is None:
            self._answer(404, error(404, "notFound", f"Not found: Job {name}"))
        elif kind == "jobs":
            self._answer(200, result["job"])
        else:
            self._answer(200, self._query_results(result))

    def _query_results(self, result: dict[str, Any]) -> dict[str, Any]:
        job, rows = result["job"], result["rows"]
        found: dict[str, Any] = {
            "jobReference": job["jobReference"],
            "jobComplete": job["status"]["state"] == "DONE",
        }
        if rows is not None:
            width = len(rows[0]) if rows else 1
            fields = [{"name": f"f{index}_", "type": "STRING"} for index in range(width)]
            listed = [
                {"f": [{"v": None if value is None else str(value)} for value in row]}
                for row in rows
            ]
            found |= {"schema": {"fields": fields}, "rows": listed, "totalRows": str(len(rows))}
        return found

    def do_POST(self) -> None:
        place = urlsplit(self.path)
        if not place.path.startswith("/bigquery/v2/projects/"):
            self._object(place.path, parse_qs(place.query, keep_blank_values=True))
            return
        job = json.loads(self._body())
        if self.stand_in.is_away:
            self._hang_up()
            return
        code, answer = self.stand_in.insert(job)
        if answer is None:
            self._hang_up()
        else:
            self._answer(code, answer)

    def do_PUT(self) -> None:
        place = urlsplit(self.path)
        self._object(place.path, parse_qs(place.query, keep_blank_values=True))

    do_DELETE = do_PUT  # noqa: N815
    do_HEAD = do_PUT  # noqa: N815

    # -- Cloud Storage ---------------------------------------------------------------------------

    def _object(self, path: str, options: dict[str, list[str]]) -> None:
        stand_in, name, body = self.stand_in, unquote(path).removeprefix("/"), self._body()
        with stand_in.lock:
            if "list-type" in options:
                prefix = f"{name}/{options.get('prefix', [''])[0]}"
                keys = sorted(each for each in stand_in.objects if each.startswith(prefix))
                listed = "".join(
                    f"<Contents><Key>{key.partition('/')[2]}</Key><Size>"
                    f"{len(stand_in.objects[key])}</Size><ETag>x</ETag>"
                    "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                    for key in keys
                )
                self._send(200, f"<ListBucketResult>{listed}</ListBucketResult>".encode())
            elif "uploads" in options:
                stand_in._parts[name] = {}
                told = "<Bucket>b</Bucket><Key>k</Key><UploadId>1</UploadId>"
                answer = f"<InitiateMultipartUploadResult>{told}</InitiateMultipartUploadResult>"
                self._send(200, answer.encode())
            elif "partNumber" in options:
                stand_in._parts[name][int(options["partNumber"][0])] = body
                self._send(200, b"")
            elif "uploadId" in options:
                parts = stand_in._parts.pop(name)
                stand_in.objects[name] = b"".join(parts[number] for number in sorted(parts))
                told = (
                    "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
                )
                self._send(200, told.encode())
            elif self.command == "PUT":
                stand_in.objects[name] = body
                self._send(200, b"")
            elif name not in stand_in.objects:
                self._send(404, b"")
            elif self.command == "DELETE":
                del stand_in.objects[name]
                self._send(204, b"")
            else:
                self._send(200, stand_in.objects[name])

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, code: int, content: dict[str, Any]) -> None:
        self._send(code, json.dumps(content).encode(), "application/json")

    def _send(self, code: int, content: bytes, kind: str = "application/xml") -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.close()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing."""

"""A pipeline into `postgres` under load: two servers, a failing network before each, a reader."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import psycopg

from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.lsn import Frontier, parse_lsn
from penstock.verify.verification import verify
from tests.crash.injured_pipeline import SHORT_BATCHES, SMALL_SEGMENTS, InjuredPipeline
from tests.crash.invariant_reader import InvariantReader
from tests.crash.passed_failpoints import passed_failpoints
from tests.crash.row_texts import expect_same_rows
from tests.fix_pipeline import wait_until
from tests.pipelines import logged
from tests.tcp_proxy import TcpProxy
from tests.workload_tables import SECONDARY_UNIQUE, TABLES, create_tables

SERVER_SETTINGS = {"deadlock_timeout": "50ms"}
# A reader that saw fewer states than this in a whole run was not looking.
LEAST_STATES = 5


class IntoPostgres(InjuredPipeline):
    """The pipeline reaches both servers through proxies only; load, reader and judge do not."""

    failpoints = passed_failpoints("postgres")

    def __init__(
        self,
        server: EmbeddedPostgres,
        target: EmbeddedPostgres,
        folder: Path,
        seed: int,
        *,
        confirm: Literal["destination", "log"] = "destination",
        copy: dict[str, Any] | None = None,
        tables: dict[str, Any] | None = None,
    ) -> None:
        """``copy`` and ``tables`` are parts of ``source`` in the pipeline file."""
        super().__init__(server, folder, seed)
        self.target = target
        self.target_url = target.create_database("copy")
        if copy is None:
            # Penstock makes the others itself; these have unique columns beside the key.
            create_tables(self.target_url, SECONDARY_UNIQUE)
        self.source_network = TcpProxy(server.port)
        self.target_network = TcpProxy(target.port)
        self.reader = InvariantReader(self.target_url)
        self.pipeline.configure(
            destination={"type": "postgres", "url": _through(self.target_network, self.target_url)},
            # Large transactions come in pieces, also while they are written.
            batch={**SHORT_BATCHES, "max_bytes": "1 MiB"},
            confirm=confirm,
            copy=copy or False,
            tables=tables,
            **SMALL_SEGMENTS,
        )
        self.rewrite(url=_through(self.source_network, self.url))
        if copy is None:
            # What the load writes from now on is delivered; a copy has what was there before.
            self.pipeline.subscribe()
        self._conn: psycopg.Connection[Any] | None = None

    def __enter__(self) -> Self:
        self.reader.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self.reader.__exit__(kind, error, trace)
            self.source_network.close()
            self.target_network.close()
            if self._conn is not None:
                self._conn.close()

    def check_watchers(self) -> None:
        super().check_watchers()
        self.reader.check()

    def settle(self) -> None:
        """End the load, and wait until nothing is under way any more."""
        self.load.stop()
        self.wait_delivered()

    def frontier(self) -> Frontier:
        """What the destination says in its own table; nothing while it cannot be asked."""
        try:
            if self._conn is None or self._conn.closed:
                self._conn = psycopg.connect(self.target_url, autocommit=True, connect_timeout=5)
            row = self._conn.execute(
                "SELECT commit_lsn::text, end_lsn::text FROM penstock.progress WHERE pipeline = %s",
                [self.pipeline.name],
            ).fetchone()
        except psycopg.errors.UndefinedTable:
            row = None
        except (psycopg.OperationalError, psycopg.InterfaceError):
            if self._conn is not None:
                self._conn.close()
            row = None
        if row is None or row[0] is None:
            return Frontier(0, 0)
        return Frontier(parse_lsn(row[0]), parse_lsn(row[1]))

    def check_confirmed(self) -> None:
        if self.pipeline.config.change_log.confirm == "log":
            return
        wait_until(self.frontier, "the destination answers")
        super().check_confirmed()

    def verify(self) -> None:
        """`penstock verify` while the pipeline runs."""
        lines: list[str] = []
        with logged(lines.append):
            report = verify(self.pipeline.config, self.pipeline.file)
        assert not report.drove, f"verify did not see that the pipeline runs: {lines}"
        found = [*(table for table in report.tables if not table.equal), *report.violated]
        assert report.equal, "\n".join([*lines, *(repr(each)[:1000] for each in found)])

    def check_all(self) -> int:
        """Returns how many rows there are."""
        self.check_confirmed()
        self.check_runs()
        self.reader.check(LEAST_STATES)
        return expect_same_rows(self.url, self.target_url, TABLES)


def _through(network: TcpProxy, url: str) -> str:
    """The same database by way of the proxy."""
    start, _, database = url.rpartition("/")
    return f"{start.rpartition(':')[0]}:{network.port}/{database}"

"""The connection beside the stream, which two threads use."""

from __future__ import annotations

import threading

import psycopg

from penstock.model.errors import SourceUnavailable
from penstock.source.postgres.capture.catalogue import CatalogueConnection
from tests.application_session import connect
from tests.fix_pipeline import wait_until


def test_an_answer_reaches_who_asked_while_another_looks_whether_the_connection_is_open(
    database: str,
) -> None:
    """Otherwise capture stops for ever, at a table with types of its user's own."""
    # A hung query would hold up the end of a block: the thread dies with the process.
    conn = connect(database)
    conn.execute("CREATE TYPE mood AS ENUM ('well')")
    row = conn.execute("SELECT 'mood'::regtype::oid::bigint").fetchone()
    assert row is not None
    catalogue = CatalogueConnection(conn)
    answers: list[str] = []

    def ask() -> None:
        while len(answers) < 1000:
            answers.append(catalogue.resolve_types([row[0]])[row[0]].name)

    threading.Thread(target=ask, daemon=True).start()

    def all_answered() -> bool:
        for _ in range(100):
            catalogue.check_open()
        return len(answers) == 1000

    wait_until(all_answered, "every question is answered")
    assert set(answers) == {"mood"}
    conn.close()


def test_a_connection_that_the_server_closed_is_noticed(database: str) -> None:
    with connect(database) as conn, psycopg.connect(database, autocommit=True) as other:
        catalogue = CatalogueConnection(conn)
        catalogue.check_open()
        other.execute("SELECT pg_terminate_backend(%s)", [conn.info.backend_pid])

        def is_closed() -> bool:
            try:
                catalogue.check_open()
            except SourceUnavailable as error:
                return "closed the connection" in error.message
            return False

        wait_until(is_closed, "it is noticed")

"""A pooler before the destination: session mode will do, transaction mode is refused."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from penstock.destination.postgres.sessions import session as session_module
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.errors import DestinationError
from penstock.model.lsn import Frontier
from penstock.model.watermarks import Watermarks
from penstock.testing.change_builder import Column, table
from penstock.testing.contract.deliveries import definition
from tests.fix_target import Target
from tests.integration.fake_pooler import FakePooler, TransactionPooler

ITEMS = table("items", Column("id", "int8", key=True), Column("v", "text"))


@pytest.fixture
def by_session(pg_server: EmbeddedPostgres) -> Iterator[FakePooler]:
    pooler = FakePooler(pg_server.port)
    yield pooler
    pooler.close()


@pytest.fixture
def by_transaction(pg_server: EmbeddedPostgres) -> Iterator[TransactionPooler]:
    pooler = TransactionPooler(pg_server.port)
    yield pooler
    pooler.close()


def through(pooler: FakePooler, target: Target) -> str:
    return target.url.replace(f":{target.conn.info.port}/", f":{pooler.port}/")


def test_one_that_keeps_sessions_together_will_do(target: Target, by_session: FakePooler) -> None:
    # Without rows: libpq's COPY would keep the pooler's threads, which are ours, from running.
    destination = target.opened(definition(ITEMS), url=through(by_session, target))
    destination.commit([], Watermarks(Frontier(1, 2)))
    assert destination.committed() == Watermarks(Frontier(1, 2))
    destination.close()


def test_one_that_hands_them_out_by_the_transaction_is_refused_and_left_as_it_was(
    target: Target, by_transaction: TransactionPooler
) -> None:
    url = through(by_transaction, target)
    with pytest.raises(DestinationError, match="by the transaction") as refused:
        target.make(url).check()
    assert "pool_mode = session" in refused.value.remedy
    with pytest.raises(DestinationError, match="by the transaction"):
        target.make(url).open()
    # Whoever comes next finds the settings of the server, not ours.
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as stranger:
        assert stranger.execute("SHOW search_path").fetchone() == ('"$user", public',)
        assert stranger.execute("SHOW tcp_keepalives_idle").fetchone() != ("30",)
    # The remedy: the server itself.
    assert target.make().check() is not None


def test_one_that_hid_well_is_found_out_before_anything_is_committed(
    target: Target, by_transaction: TransactionPooler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pool was so busy that two of our connections never met."""
    monkeypatch.setattr(session_module, "refuse_transaction_pool", lambda *_: None)
    destination = target.make(through(by_transaction, target))
    destination.open()
    # Another session of ours comes in between.
    with target.make(through(by_transaction, target))._session.connect("tables"):
        pass
    with pytest.raises(DestinationError, match="by the transaction"):
        destination.commit([], Watermarks(Frontier(1, 2)))
    destination.close()
    assert target.all("SELECT commit_lsn FROM penstock.progress") == [(None,)]

"""Who delivers, and the folder that the driver writes to, without a database."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.changelog.storage.contract import Storage
from penstock.destination.webhooks.database import Database
from penstock.destination.webhooks.delivery.deliverer import Deliverer
from penstock.destination.webhooks.delivery.progress import News, Saved, SegmentEntry
from penstock.destination.webhooks.delivery.request import EndpointAnswer, Request
from penstock.destination.webhooks.delivery.takers import Takers
from penstock.destination.webhooks.delivery.worker import Worker
from penstock.destination.webhooks.kept_secrets import KeptSecrets
from penstock.destination.webhooks.outbox import files_by_driver, mark_of, outbox_storage
from penstock.destination.webhooks.outbox_index import OutboxWritten
from penstock.destination.webhooks.signing import new_secret
from penstock.destination.webhooks.subscription import Kept, OutboxPlace, WebhookSubscription
from penstock.destination.webhooks.views import Asked
from penstock.model.errors import (
    DestinationError,
    DestinationUnavailable,
    LogError,
    LogUnavailable,
)
from penstock.testing.change_builder import ChangeBuilder
from penstock.testing.contract.deliveries import definition
from tests.webhook_shop import ORDERS, PIPELINE, options_for


class Index:
    """Stands for the database: what the driver committed, and what the deliverer saved."""

    def __init__(self) -> None:
        self.driver = 0
        self.version = 1
        self.segments: list[SegmentEntry] = []
        self.saved: list[Saved] = []
        self.files: list[str] = []
        """Those that nobody needs any more."""

    def take_over(self) -> None: ...

    def news(self, after: int) -> News:
        new = [s for s in self.segments if s.number > after]
        return News(self.version, self.driver, new, "ours")

    def save(self, saved: list[Saved]) -> None:
        self.saved += saved

    def retire(self, max_bytes: int, max_age: float) -> tuple[list[str], list[str]]:
        return self.files, []


class Subscribed:
    def __init__(self, *kept: Kept) -> None:
        self.kept = list(kept)

    def active(self) -> list[Kept]:
        return list(self.kept)


class Requests:
    def __init__(self) -> None:
        self.sent: list[int] = []
        self._at: tuple[int, Callable[[], None]] | None = None

    def at(self, count: int, then: Callable[[], None]) -> None:
        """Call it once so many were sent."""
        self._at = count, then

    async def send(self, request: Request) -> EndpointAnswer:
        self.sent.append(json.loads(request.body)["new"]["total"])
        if self._at is not None and len(self.sent) == self._at[0]:
            self._at[1]()
        return EndpointAnswer("delivered")


class Delivery:
    """A driver, and one subscription to all that it commits."""

    def __init__(self, folder: Path) -> None:
        self.options = options_for("postgresql://nobody@localhost/nowhere", folder)
        self.index, self.requests = Index(), Requests()
        self.storage = outbox_storage(str(folder), PIPELINE)
        self.builder = ChangeBuilder()
        self.rows = 0

    def deliverer(self, storage: Storage | None = None) -> Deliverer:
        database = Database(self.options.url, PIPELINE, "test")
        requests: Any = self.requests
        made = Deliverer(self.options, database, storage or self.storage, requests)
        self.subscribed = Subscribed(self.kept("sub_1", OutboxPlace(1)))
        fakes: Any = (self.index, self.subscribed)
        made._progress, made._subscriptions = fakes
        return made

    def kept(self, name: str, place: OutboxPlace) -> Kept:
        entry, _ = KeptSecrets(self.options.secret_key).made(new_secret())
        wanted = WebhookSubscription(url="https://example.com/hook")
        return Kept(name, wanted, (dict(entry),), "active", "", place, 0)

    def open(self, driver: int) -> None:
        self.storage.write(mark_of(driver), b"ours", durable=False)
        self.index.driver = driver

    def replace(self, driver: int, later: int) -> None:
        """As ``WebhooksDestination.open`` does it."""
        self.open(later)
        self.storage.delete(mark_of(driver))

    def commit(self, count: int) -> str:
        """Rows in a file of the outbox; its name."""
        from penstock.destination.webhooks.destination import WebhooksDestination

        destination = WebhooksDestination(self.options, PIPELINE)
        destination._outbox = replace(destination._outbox, prefix=f"{self.index.driver:08}")
        for formats in destination._formats.values():
            formats.know([definition(ORDERS)])
        asked = Asked("penstock", {}, ("*.*",), ("insert",))
        destination._asked = FixedViews(asked)  # type: ignore[assignment]
        with self.builder.transaction():
            for number in range(self.rows, self.rows + count):
                self.builder.insert(ORDERS, str(number), str(number))
        self.rows += count
        receipt = json.loads(destination.writer().write([self.builder.cut()]))
        (file,) = OutboxWritten.from_json(receipt).files
        number = len(self.index.segments) + 1
        self.index.segments.append(SegmentEntry(number, file.view, file.file, file.bytes))
        return file.file


class FixedViews:
    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    def now(self) -> dict[str, Asked]:
        return {"penstock": self._asked}


@pytest.fixture
def delivery(tmp_path: Path) -> Delivery:
    return Delivery(tmp_path)


async def settled(deliverer: Deliverer) -> None:
    """Until all that was handed out is delivered."""
    await asyncio.gather(*(worker.rest() for worker in deliverer._workers.values()))


def worker_for(**wanted: Any) -> Worker:
    asked = WebhookSubscription(url="https://example.com/hook", **wanted)
    kept = Kept("sub_1", asked, (), "active", "", OutboxPlace(1), 0)
    unused: Any = None
    return Worker(kept, unused, unused, unused, unused)


@pytest.mark.parametrize(
    ("tables", "taken"),
    [
        (["*.*"], {"orders", "ORDERS", "a.b", "or*"}),
        (["public.o*"], {"orders", "or*"}),
        (["orders", "public.orders", 'public."a.b"'], {"orders", "a.b"}),
        (['"public"."or*"', "other.orders"], {"or*"}),
    ],
)
def test_who_takes_what(tables: list[str], taken: set[str]) -> None:
    worker = worker_for(tables=tables, operations=["insert", "message"])
    takers = Takers([worker])
    for table in ("orders", "ORDERS", "a.b", "or*"):
        for op in ("insert", "update"):
            wants = op == "insert" and table in taken
            assert worker.wants((op, "public", table)) == wants
            assert takers.of("penstock", (op, "public", table)) == [worker] * wants
    assert takers.of("penstock", ("message", "", "")) == [worker]
    assert not takers.of("debezium", ("message", "", ""))


@pytest.mark.parametrize("tables", [["public.t1"], ["public.t*"]])
def test_many_subscriptions_keep_nothing_of_each_table(tables: list[str]) -> None:
    async def wanted() -> None:
        workers = [worker_for(tables=tables) for _ in range(20)]
        tracemalloc.start()
        for worker in workers:
            for kind in kinds:
                worker.wants(kind)
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # What is remembered is so for all of them at once.
        assert kept < 300 * len(kinds)

    kinds = [(op, "public", f"t{n}") for n in range(500) for op in ("insert", "update", "delete")]
    asyncio.run(wanted())


def test_what_nobody_awaits_is_not_fetched(delivery: Delivery) -> None:
    async def deliver() -> None:
        place: Any = Troubled(delivery.storage)
        deliverer = delivery.deliverer(place)
        await deliverer.begin()
        await settled(deliverer)
        (worker,) = deliverer._workers.values()
        assert not worker.is_behind
        file = delivery.commit(3)
        # Of a view whose subscriptions are all paused, or read by themselves.
        delivery.index.segments[-1] = delivery.index.segments[-1]._replace(view="debezium")
        await deliverer._look()
        assert deliverer._newest == len(delivery.index.segments)
        assert file not in place.read
        assert not worker.is_behind
        file = delivery.commit(3)
        await deliverer._look()
        await settled(deliverer)
        assert file in place.read
        assert sorted(delivery.requests.sent) == [0, 1, 2, 6, 7, 8]
        await deliverer._let_go(worker.kept.id)
        deliverer.close()

    delivery.open(7)
    delivery.commit(3)
    asyncio.run(deliver())


def test_who_subscribes_gets_nothing_of_what_was_committed_before(delivery: Delivery) -> None:
    async def deliver() -> None:
        deliverer = delivery.deliverer()
        await deliverer.begin()
        await settled(deliverer)
        # Nobody has been handed these yet when it is added.
        delivery.commit(3)
        delivery.commit(3)
        delivery.subscribed.kept.append(delivery.kept("sub_2", OutboxPlace(4)))
        delivery.index.version += 1
        await deliverer._look()
        await settled(deliverer)
        assert sorted(delivery.requests.sent) == list(range(9))
        delivery.commit(1)
        await deliverer._look()
        await settled(deliverer)
        assert sorted(delivery.requests.sent) == [*range(10), 9]
        for name in list(deliverer._workers):
            await deliverer._let_go(name)
        deliverer.close()

    delivery.open(7)
    delivery.commit(3)
    asyncio.run(deliver())


def test_another_folder_than_the_drivers_is_refused(delivery: Delivery, tmp_path: Path) -> None:
    async def deliver() -> None:
        elsewhere = outbox_storage(str(tmp_path / "elsewhere"), PIPELINE)
        # Before the first driver there is nothing to miss.
        early = delivery.deliverer(elsewhere)
        await early.begin()
        delivery.open(7)
        delivery.commit(3)
        with pytest.raises(DestinationError, match="00000007-driver"):
            await early._look()
        late = delivery.deliverer(elsewhere)
        with pytest.raises(DestinationError, match="00000007-driver"):
            await late.begin()
        assert (early._newest, late._newest, delivery.requests.sent) == (0, 0, [])
        right = delivery.deliverer()
        await right.begin()
        await settled(right)
        assert sorted(delivery.requests.sent) == [0, 1, 2]
        for each in (early, late, right):
            each.close()

    asyncio.run(deliver())


def test_another_pipeline_s_folder_is_refused_though_its_driver_has_the_same_number(
    delivery: Delivery, tmp_path: Path
) -> None:
    async def deliver(said: bytes) -> None:
        elsewhere = outbox_storage(str(tmp_path / "elsewhere"), PIPELINE)
        elsewhere.write(mark_of(7), said, durable=False)
        deliverer = delivery.deliverer(elsewhere)
        with pytest.raises(DestinationError, match="00000007-driver"):
            await deliverer.begin()
        assert (deliverer._newest, delivery.requests.sent) == (0, [])
        deliverer.close()

    delivery.open(7)
    delivery.commit(3)
    asyncio.run(deliver(b"theirs"))


def test_a_missing_file_is_stepped_over_by_nobody(delivery: Delivery) -> None:
    async def deliver(*, unmounted: bool) -> None:
        deliverer = delivery.deliverer()
        await deliverer.begin()
        await settled(deliverer)
        (worker,) = deliverer._workers.values()
        assert not worker.is_behind
        newest = deliverer._newest
        gone = [delivery.commit(3), *([mark_of(7)] if unmounted else ())]
        delivery.storage.delete(*gone)
        if unmounted:
            with pytest.raises(DestinationError, match="is not in"):
                await deliverer._look()
            # It is not passed, and comes with the folder.
            assert (deliverer._newest, worker.ended) == (newest, None)
        else:
            await deliverer._look()
            assert worker.ended == ("disabled", f"{gone[0]} is gone from the outbox")
        await deliverer._let_go(worker.kept.id)
        deliverer.close()

    delivery.open(7)
    delivery.commit(3)
    asyncio.run(deliver(unmounted=True))
    delivery.open(7)
    delivery.index.segments.pop()
    asyncio.run(deliver(unmounted=False))


def test_only_the_outboxs_own_files_are_known_by_their_names(delivery: Delivery) -> None:
    delivery.open(12)
    file = delivery.commit(1)
    for strange in ("!notes", "1-driver", "00000001-x.arrow", "report.arrow"):
        delivery.storage.write(strange, b"", durable=False)
    assert files_by_driver(delivery.storage) == {file: 12, "00000012-driver": 12}


class Troubled:
    """Stands before the outbox's place: each read or removal is what the test says."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.path = storage.path
        self.trouble: list[Exception] = []
        self.read: list[str] = []
        self.meanwhile: Callable[[], None] | None = None
        """What comes between the caller and its first answer."""

    def read_bytes(self, name: str) -> bytes | None:
        self._meet()
        self.read.append(name)
        return self._storage.read_bytes(name)

    def delete(self, *names: str) -> None:
        self._meet()
        self._storage.delete(*names)

    def _meet(self) -> None:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        if self.trouble:
            raise self.trouble.pop()


def test_a_place_that_does_not_answer_is_waited_for_by_who_reads_by_himself(
    delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.destination.webhooks.delivery.deliverer._AWAY_SECONDS", 0.01)

    async def deliver() -> None:
        place: Any = Troubled(delivery.storage)
        deliverer = delivery.deliverer(place)
        await deliverer._call(deliverer._progress.take_over)
        deliverer._driver = 7
        place.trouble = [DestinationUnavailable("away"), LogUnavailable("away")]
        await deliverer._look()
        (worker,) = deliverer._workers.values()
        await asyncio.gather(*deliverer._reading.values())
        await settled(deliverer)
        assert (worker.ended, sorted(delivery.requests.sent)) == (None, [0, 1, 2])
        assert not place.trouble
        await deliverer._let_go(worker.kept.id)
        deliverer.close()

    delivery.open(7)
    delivery.commit(3)
    asyncio.run(deliver())


def test_a_place_that_refuses_ends_deliveries_and_no_subscription(delivery: Delivery) -> None:
    async def deliver() -> None:
        place: Any = Troubled(delivery.storage)
        deliverer = delivery.deliverer(place)
        deliverer._driver = 7
        place.trouble = [DestinationError("the store refuses")]
        with pytest.raises(DestinationError, match="the store refuses"), suppress(TimeoutError):
            async with asyncio.timeout(20):
                await deliverer.run(asyncio.Event())
        (worker,) = deliverer._workers.values()
        assert (worker.ended, delivery.requests.sent) == (None, [])
        await deliverer._let_go(worker.kept.id)
        deliverer.close()

    delivery.open(7)
    delivery.commit(3)
    asyncio.run(deliver())


def test_a_folder_that_does_not_answer_is_waited_for(
    delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.destination.webhooks.delivery.deliverer._AWAY_SECONDS", 0.01)
    errors, read = [errno.ESTALE, errno.EMFILE, errno.EIO], Path.read_bytes

    def troubled(path: Path) -> bytes:
        if path.suffix == ".arrow" and errors:
            raise OSError(errors[0], os.strerror(errors.pop(0)))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", troubled)

    async def deliver() -> None:
        deliverer = delivery.deliverer()
        await deliverer.begin()
        (worker,) = deliverer._workers.values()
        await asyncio.gather(*deliverer._reading.values())
        await settled(deliverer)
        assert (worker.ended, sorted(delivery.requests.sent)) == (None, [0, 1, 2])
        # Nor is it otherwise with one that is handed what is new.
        errors.append(errno.ESTALE)
        delivery.commit(1)
        with pytest.raises(LogUnavailable):
            await deliverer._look()
        await deliverer._look()
        await settled(deliverer)
        assert sorted(delivery.requests.sent) == [0, 1, 2, 3]
        await deliverer._let_go(worker.kept.id)
        deliverer.close()

    delivery.open(7)
    delivery.commit(3)
    asyncio.run(deliver())


def test_a_folder_that_refuses_ends_deliveries_and_no_subscription(delivery: Delivery) -> None:
    async def deliver() -> None:
        deliverer = delivery.deliverer()
        with pytest.raises(LogError, match="Is a directory"), suppress(TimeoutError):
            async with asyncio.timeout(20):
                await deliverer.run(asyncio.Event())
        (worker,) = deliverer._workers.values()
        assert (worker.ended, delivery.requests.sent) == (None, [])
        await deliverer._let_go(worker.kept.id)
        deliverer.close()

    delivery.open(7)
    file = delivery.commit(3)
    delivery.storage.delete(file)
    Path(delivery.storage.full(file)).mkdir()
    asyncio.run(deliver())


def test_a_place_that_does_not_answer_at_first_is_waited_for(
    delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.destination.webhooks.delivery.deliverer._AWAY_SECONDS", 0.01)

    async def deliver() -> None:
        place: Any = Troubled(delivery.storage)
        place.trouble = [DestinationUnavailable("away"), LogUnavailable("away")]
        deliverer, stopping = delivery.deliverer(place), asyncio.Event()
        await deliverer.begin()
        delivery.requests.at(3, stopping.set)
        async with asyncio.timeout(20):
            await deliverer.run(stopping)
        await deliverer.end(1.0)
        assert sorted(delivery.requests.sent) == [0, 1, 2]

    delivery.open(7)
    delivery.commit(3)
    asyncio.run(deliver())


def test_a_driver_that_is_replaced_at_once_ends_no_deliveries(delivery: Delivery) -> None:
    async def deliver() -> None:
        place: Any = Troubled(delivery.storage)
        deliverer = delivery.deliverer(place)
        # Another one comes between the look into the database and the one into the folder.
        place.meanwhile = lambda: delivery.replace(7, 8)
        await deliverer.begin()
        await settled(deliverer)
        await deliverer._look()
        assert deliverer._driver == 8
        assert sorted(delivery.requests.sent) == [0, 1, 2]
        for name in list(deliverer._workers):
            await deliverer._let_go(name)
        deliverer.close()

    delivery.open(7)
    delivery.commit(3)
    asyncio.run(deliver())


def test_what_could_not_be_removed_is_removed_the_next_time(delivery: Delivery) -> None:
    async def deliver() -> None:
        place: Any = Troubled(delivery.storage)
        deliverer = delivery.deliverer(place)
        await deliverer.begin()
        # From here on nothing else asks the place, which has one refusal to give.
        await asyncio.gather(*deliverer._reading.values())
        await settled(deliverer)
        delivery.index.files = [delivery.index.segments[0].file]
        place.trouble = [DestinationUnavailable("away")]
        with pytest.raises(DestinationUnavailable):
            await deliverer._retire()
        delivery.index.files = []
        await deliverer._retire()
        assert files_by_driver(delivery.storage) == {mark_of(7): 7}
        for name in list(deliverer._workers):
            await deliverer._let_go(name)
        deliverer.close()

    delivery.open(7)
    delivery.commit(3)
    asyncio.run(deliver())

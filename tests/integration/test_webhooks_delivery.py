"""What receivers get, whatever they answer."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from standardwebhooks import Webhook

from penstock.destination.webhooks import managing
from penstock.destination.webhooks.delivery.service import WebhookService
from penstock.destination.webhooks.destination import WebhooksDestination
from penstock.destination.webhooks.outbox import files_by_driver, mark_of, outbox_storage
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.metrics.catalogue import (
    WEBHOOK_BEHIND,
    WEBHOOK_DELIVERED,
    WEBHOOK_FAILED,
    WEBHOOK_SECONDS,
    WEBHOOK_SUBSCRIPTIONS,
)
from penstock.model.errors import DestinationError, DestinationUnavailable, Fenced
from penstock.model.source_identity import SourceIdentity
from penstock.model.watermarks import Watermarks
from penstock.testing.change_builder import ChangeBuilder
from penstock.testing.contract.deliveries import deliver
from tests.fix_postgres import drop_database
from tests.objects_proxy import Fault
from tests.objects_server import SECRET, ObjectServer
from tests.webhook_receiver import Received, Receiver, Reply, wait_until
from tests.webhook_shop import NOTES, ORDERS, PIPELINE, Shop, options_for

MakeShop = Callable[..., Shop]
WITHOUT_TOTAL = replace(ORDERS, columns=ORDERS.columns[:1])


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def make_shop(database: str, tmp_path: Path, receiver: Receiver) -> Iterator[MakeShop]:
    made: list[Shop] = []

    def make(**more: Any) -> Shop:
        made.append(Shop(database, tmp_path, receiver, **more))
        return made[-1]

    yield make
    for shop in made:
        shop.close()


def test_each_gets_what_it_asked_for_in_its_format(make_shop: MakeShop) -> None:
    shop = make_shop()
    shop.add("/orders", tables=["public.orders"], concurrency=1)
    shop.add("/dear", tables=["public.orders"], filter={"public.orders": "total >= 15"})
    shop.add("/deletes", operations=["delete"])
    shop.add("/debezium", format="debezium")
    shop.add("/cloud", format="cloudevents", tables=["public.notes"])
    destination = shop.start()
    shop.insert(0, 20)
    shop.insert(100, 2, NOTES)
    with shop.builder.transaction():
        shop.builder.delete(NOTES, key=["100", None])
    deliver(destination, shop.builder.frontier, [shop.builder.cut()])
    wait_until(lambda: len(shop.events("/debezium")) == 23 and len(shop.events("/cloud")) == 3)
    wait_until(lambda: len(shop.events("/deletes")) == 1)
    wait_until(lambda: len(shop.events("/orders")) == 20 and len(shop.events("/dear")) == 5)
    # One request at a time: in commit order.
    assert shop.ids("/orders") == list(range(20))
    assert sorted(shop.ids("/dear")) == [15, 16, 17, 18, 19]
    assert [event["op"] for event in shop.events("/deletes")] == ["delete"]
    assert {event["op"] for event in shop.events("/debezium")} == {"c", "d"}
    for event in shop.events("/cloud"):
        assert event["specversion"] == "1.0"
        assert event["source"] == "/penstock/shop"
        assert event["subject"] == "public.notes"
        assert event["type"] in ("penstock.insert", "penstock.delete")
        assert event["data"]["table"] == "notes"
    assert len({event["id"] for event in shop.events("/cloud")}) == 3
    kinds = {got.headers["content-type"] for got in shop.receiver.by_path()["/cloud"]}
    assert kinds == {"application/cloudevents+json; charset=utf-8"}


def test_dead_and_slow_receivers_hold_nobody_up_and_get_all_in_the_end(
    make_shop: MakeShop, receiver: Receiver
) -> None:
    shop = make_shop(timeout=0.5)
    for path in ("/fine", "/dead", "/slow"):
        shop.add(path)
    revived: list[bool] = []
    receiver.decide["/dead"] = lambda _: Reply(204 if revived else 503)
    receiver.decide["/slow"] = lambda _: Reply(hang=0.0 if revived else 30.0)
    shop.start()
    for batch in range(5):
        shop.insert(batch * 100, 100)
    shop.wait_for("/fine", *range(500))
    assert not shop.ids("/dead")
    assert not shop.ids("/slow")
    revived.append(True)
    shop.wait_for("/dead", *range(500))
    shop.wait_for("/slow", *range(500))


def test_order_is_kept_per_key_while_answers_fail(make_shop: MakeShop, receiver: Receiver) -> None:
    shop = make_shop()
    shop.add("/hook")
    turn = count()
    receiver.decide["/hook"] = lambda _: Reply(500 if next(turn) % 3 == 0 else 204)
    destination = shop.start()
    for version in range(20):
        with shop.builder.transaction():
            for key in range(5):
                if version == 0:
                    shop.builder.insert(ORDERS, str(key), "0")
                else:
                    shop.builder.update(ORDERS, str(key), str(version))
        deliver(destination, shop.builder.frontier, [shop.builder.cut()])
    wait_until(lambda: len({got.id for got in receiver.received}) == 100)
    for key in range(5):
        versions = [e["new"]["total"] for e in shop.events("/hook") if e["new"]["id"] == key]
        assert versions == list(range(20))


def test_a_paused_subscription_goes_on_where_it_stood(
    make_shop: MakeShop, receiver: Receiver
) -> None:
    shop = make_shop()
    one = shop.add("/hook")
    shop.start()
    shop.insert(0, 10)
    shop.wait_for("/hook", *range(10))
    shop.subscriptions.pause(one)
    shop.stop()
    shop.start()
    shop.insert(10, 50)
    shop.stop()
    assert max(shop.ids("/hook")) == 9
    assert shop.subscriptions.one(one).behind > 0
    shop.start()
    shop.subscriptions.resume(one)
    shop.wait_for("/hook", *range(60))
    assert len(shop.ids("/hook")) == 60


def test_what_is_refused_pauses_or_becomes_a_dead_letter(
    make_shop: MakeShop, receiver: Receiver
) -> None:
    shop = make_shop()
    strict, lenient = shop.add("/strict"), shop.add("/lenient", on_refused="dead_letter")

    def but_three(got: Received) -> Reply:
        return Reply(422 if json.loads(got.body)["new"]["id"] == 3 else 204, body=b"not three")

    receiver.decide["/strict"] = receiver.decide["/lenient"] = but_three
    destination = shop.start()
    shop.insert(0, 10)
    shop.wait_for("/lenient", 0, 1, 2, *range(4, 10))
    kept = shop.wait_for_state(strict, "paused")
    assert "422: not three" in kept.reason
    wait_until(lambda: shop.subscriptions.one(lenient).dead_letters == 1)
    assert destination.dead_letters() == {"public.orders": 1}
    del receiver.decide["/strict"]
    shop.subscriptions.resume(strict)
    shop.wait_for("/strict", *range(10))


def test_gone_disables_and_nothing_is_kept_for_it(make_shop: MakeShop, receiver: Receiver) -> None:
    shop = make_shop()
    one = shop.add("/hook")
    receiver.decide["/hook"] = lambda _: Reply(410)
    shop.start()
    shop.insert(0, 10)
    kept = shop.wait_for_state(one, "disabled")
    assert "410" in kept.reason
    with pytest.raises(DestinationError, match="disabled") as caught:
        shop.subscriptions.resume(one)
    assert "--skip" in caught.value.remedy
    # Nor by way of a pause, which would forget that there is a gap.
    with pytest.raises(DestinationError, match="disabled"):
        shop.subscriptions.pause(one)
    assert shop.subscriptions.one(one).state == "disabled"
    shop.insert(10, 10)
    del receiver.decide["/hook"]
    shop.subscriptions.resume(one, skip=True)
    shop.insert(20, 10)
    shop.wait_for("/hook", *range(20, 30))
    assert min(shop.ids("/hook")) == 20


def test_who_never_answers_is_paused_and_loses_nothing(
    make_shop: MakeShop, receiver: Receiver
) -> None:
    shop = make_shop(retry={"first": 0.05, "longest": 0.1, "give_up": 0.5})
    one = shop.add("/hook")
    receiver.decide["/hook"] = lambda _: Reply(503)
    shop.start()
    shop.insert(0, 10)
    kept = shop.wait_for_state(one, "paused")
    assert "503" in kept.reason
    del receiver.decide["/hook"]
    shop.subscriptions.resume(one)
    shop.wait_for("/hook", *range(10))


def test_retry_after_is_obeyed(make_shop: MakeShop, receiver: Receiver) -> None:
    shop = make_shop()
    shop.add("/hook", concurrency=1)
    asked: list[float] = []

    def once(got: Received) -> Reply:
        asked.append(got.at)
        return Reply(429, {"Retry-After": "2"}) if len(asked) == 1 else Reply()

    receiver.decide["/hook"] = once
    shop.start()
    shop.insert(0, 1)
    shop.wait_for("/hook", 0)
    # Less the jitter.
    assert asked[1] - asked[0] >= 1.5


def test_events_are_signed_with_both_secrets_while_one_goes(
    make_shop: MakeShop, receiver: Receiver
) -> None:
    shop = make_shop()
    one = shop.add("/hook")
    old = receiver.secrets["/hook"]
    shop.start()
    kept = shop.subscriptions.one(one)
    _, new = managing.rotate(shop.options, shop.subscriptions, kept, None, 3600)
    assert new is not None

    def verified_by_both(got: Received) -> Reply:
        Webhook(new).verify(got.body, got.headers)
        Webhook(old).verify(got.body, got.headers)
        return Reply(200 if len(got.headers["webhook-signature"].split()) == 2 else 500)

    receiver.decide["/hook"] = verified_by_both
    shop.insert(0, 3)
    shop.wait_for("/hook", 0, 1, 2)
    managing.rotate(shop.options, shop.subscriptions, shop.subscriptions.one(one), None, 0)
    assert len(shop.subscriptions.one(one).secrets) == 1


def test_a_filter_that_does_not_suit_disables_its_subscription_alone(
    make_shop: MakeShop,
) -> None:
    shop = make_shop()
    shop.add("/fine")
    wrong = shop.add("/wrong", filter={"public.orders": "no_such_column > 1"})
    shop.start()
    shop.insert(0, 10)
    shop.wait_for("/fine", *range(10))
    kept = shop.wait_for_state(wrong, "disabled")
    assert "no_such_column" in kept.reason


@pytest.mark.parametrize("is_paused", [False, True], ids=["dead", "paused"])
def test_a_filter_whose_column_goes_ends_its_subscription_behind_what_was_encoded(
    make_shop: MakeShop, receiver: Receiver, is_paused: bool
) -> None:
    shop = make_shop()
    shop.add("/fine")
    narrow = shop.add("/narrow", filter={"public.orders": "total >= 0"})
    receiver.decide["/narrow"] = lambda _: Reply(503)
    destination = shop.start()
    if is_paused:
        shop.subscriptions.pause(narrow)
    shop.insert(0, 100)
    # In one batch: rows of two tasks before the column is dropped, and of two behind that.
    runs = []
    with shop.builder.transaction():
        shop.builder.insert(ORDERS, "100", "100")
    runs.append(shop.builder.cut())
    for number in (101, 102):
        with shop.builder.transaction():
            shop.builder.insert(WITHOUT_TOTAL, str(number))
        runs.append(shop.builder.cut())
    with shop.builder.transaction():
        shop.builder.insert(NOTES, "103", "of a table that suits")
    runs.append(shop.builder.cut())
    deliver(destination, shop.builder.frontier, *([run] for run in runs))
    shop.wait_for("/fine", *range(104))
    kept = shop.subscriptions.one(narrow)
    assert kept.state == ("paused" if is_paused else "active")
    assert kept.behind > 0
    assert "the table has no column total" in str(kept.to_json()["reason"])
    shop.insert(200, 3, NOTES)
    shop.wait_for("/fine", 200, 201, 202)
    # Nor does another driver, or another process that delivers, forget what was encoded.
    shop.stop()
    shop.start()
    del receiver.decide["/narrow"]
    if is_paused:
        shop.subscriptions.resume(narrow)
    kept = shop.wait_for_state(narrow, "disabled")
    assert "the table has no column total" in kept.reason
    assert sorted(set(shop.ids("/narrow"))) == list(range(101))
    shop.subscriptions.resume(narrow, skip=True)
    shop.insert(300, 2, NOTES)
    shop.wait_for("/narrow", 300, 301)
    assert not {103, 200, 201, 202} & set(shop.ids("/narrow"))


def test_the_same_positions_of_another_server_have_other_ids(
    make_shop: MakeShop, receiver: Receiver
) -> None:
    shop = make_shop()
    shop.add("/hook")
    for system in ("700", "701"):
        shop.start().come_from(SourceIdentity(system, 1, "shop", "a uuid"))
        shop.builder = ChangeBuilder()
        shop.insert(int(system), 3)
        shop.wait_for("/hook", *range(int(system), int(system) + 3))
        shop.stop()
    got = [(each.id, json.loads(each.body)) for each in receiver.by_path()["/hook"]]
    assert len({event["position"]["commit_lsn"] for _, event in got}) == 1
    assert len({name for name, _ in got}) == 6


def test_a_driver_that_was_replaced_ends_no_subscription(make_shop: MakeShop) -> None:
    shop = make_shop()
    narrow = shop.add("/narrow", filter={"public.orders": "total >= 0"})
    stale = shop.start()
    writer = stale.writer()
    with shop.builder.transaction():
        shop.builder.insert(WITHOUT_TOTAL, "1")
    receipt = writer.write([shop.builder.cut()])
    later = make_shop()
    later.start()
    with pytest.raises(Fenced):
        stale.commit([receipt], Watermarks(shop.builder.frontier))
    kept = shop.subscriptions.one(narrow)
    assert (kept.state, kept.ends) == ("active", None)
    later.insert(10, 1)
    later.wait_for("/narrow", 10)


def test_the_outbox_is_emptied_and_bounded(
    make_shop: MakeShop, receiver: Receiver, tmp_path: Path
) -> None:
    shop = make_shop(backlog={"max_bytes": 20_000, "max_age": "1d"})
    shop.add("/fine")
    dead = shop.add("/dead")
    receiver.decide["/dead"] = lambda _: Reply(503)
    shop.start()
    for batch in range(10):
        shop.insert(batch * 100, 100)
        shop.wait_for("/fine", *range(batch * 100, batch * 100 + 100))
    kept = shop.wait_for_state(dead, "disabled")
    assert "too far behind" in kept.reason
    wait_until(lambda: not list((tmp_path / "shop").glob("*.arrow")))


def test_another_pipeline_of_that_name_does_not_take_the_outbox(
    make_shop: MakeShop, receiver: Receiver, tmp_path: Path, pg_server: EmbeddedPostgres
) -> None:
    shop = make_shop()
    shop.add("/hook")
    receiver.decide["/hook"] = lambda _: Reply(503)
    shop.start()
    shop.insert(0, 10)
    shop.stop()
    # A copy of its pipeline file, with a database of its own.
    name = f"test_{uuid.uuid4().hex}"
    other = Shop(pg_server.create_database(name), tmp_path, receiver)
    try:
        with pytest.raises(DestinationError, match="of another pipeline") as caught:
            other.start()
        assert "destination.path" in caught.value.remedy
        assert other.destination is not None
        assert other.destination.forget() == ["position and subscriptions"]
    finally:
        other.close()
        drop_database(pg_server, name)
    receiver.decide.clear()
    destination = shop.start()
    shop.wait_for("/hook", *range(10))
    assert destination.forget() == ["position, subscriptions and outbox"]
    assert not outbox_storage(str(tmp_path), PIPELINE).list()


def test_an_outbox_in_an_object_store(
    database: str, receiver: Receiver, object_server: ObjectServer
) -> None:
    place, options = object_server.place(), object_server.options
    shop = Shop(database, place, receiver, path_options=options)
    one, dead = shop.add("/hook"), shop.add("/dead")
    receiver.decide["/dead"] = lambda _: Reply(503)
    destination = shop.start()
    destination.check()
    shop.insert(0, 10)
    shop.wait_for("/hook", *range(10))
    # Its driver dies; what one of its tasks had written, and nobody committed, goes.
    stale = destination.writer()
    with shop.builder.transaction():
        shop.builder.insert(ORDERS, "99", "99")
    left = shop.builder.cut()
    shop.stop()
    stale.write([left])
    receiver.decide.clear()
    destination = shop.start()
    shop.insert(10, 10)
    for path in ("/hook", "/dead"):
        shop.wait_for(path, *range(20))
        assert 99 not in shop.ids(path)
    storage = outbox_storage(place, PIPELINE, options)
    wait_until(lambda: files_by_driver(storage) == {mark_of(2): 2})
    object_server.proxy.set(lambda kind, _: Fault(403) if kind == "GET" else None)
    with pytest.raises(DestinationError, match="the store refuses") as caught:
        destination.check()
    assert SECRET not in f"{caught.value} {caught.value.remedy}"
    object_server.proxy.set()
    shop.stop()
    assert {shop.subscriptions.one(each).state for each in (one, dead)} == {"active"}
    forgotten = WebhooksDestination(shop.options, PIPELINE)
    forgotten.forget()
    forgotten.close()
    assert not storage.list()
    shop.close()


def test_another_folder_than_the_drivers_is_refused_and_nothing_is_passed(
    make_shop: MakeShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = make_shop(deliver="serve")
    one = shop.add("/hook")
    destination = shop.start()
    # Somebody serves on a machine where the folder is not mounted.
    elsewhere = options_for(shop.options.url.reveal(), tmp_path / "elsewhere", deliver="serve")
    with pytest.raises(DestinationError, match=r"00000001-driver.*is missing") as caught:
        WebhookService(elsewhere, PIPELINE).start()
    assert "mount it" in caught.value.remedy
    shop.insert(0, 10)
    with pytest.raises(DestinationError, match="is missing"):
        WebhookService(elsewhere, PIPELINE).start()
    kept = shop.subscriptions.one(one)
    assert (kept.state, kept.behind > 0) == ("active", True)
    service = WebhookService(shop.options, PIPELINE)
    service.start()
    shop.wait_for("/hook", *range(10))
    # And it goes away under who has taken all: the same.
    commit = destination._index.commit

    def unmounted(written: Any, watermarks: Any) -> Any:
        (tmp_path / PIPELINE).rename(tmp_path / "unmounted")
        return commit(written, watermarks)

    monkeypatch.setattr(destination._index, "commit", unmounted)
    shop.insert(10, 10)
    wait_until(lambda: service.has_ended)
    with pytest.raises(DestinationError, match="is missing"):
        service.check()
    kept = shop.subscriptions.one(one)
    assert (kept.state, kept.behind > 0) == ("active", True)
    (tmp_path / "unmounted").rename(tmp_path / PIPELINE)
    service = WebhookService(shop.options, PIPELINE)
    service.start()
    shop.wait_for("/hook", *range(20))
    service.stop()


def test_a_file_that_is_gone_stops_who_has_taken_all_before(
    make_shop: MakeShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = make_shop()
    one = shop.add("/hook")
    destination = shop.start()
    shop.insert(0, 10)
    shop.wait_for("/hook", *range(10))
    commit = destination._index.commit

    def lost(written: Any, watermarks: Any) -> Any:
        for file in (file for each in written for file in each.files):
            (tmp_path / PIPELINE / file.file).unlink()
        return commit(written, watermarks)

    monkeypatch.setattr(destination._index, "commit", lost)
    shop.insert(10, 10)
    kept = shop.wait_for_state(one, "disabled")
    assert "is gone from the outbox" in kept.reason


def test_a_second_deliverer_fences_the_first(make_shop: MakeShop) -> None:
    first, second = make_shop(), make_shop()
    first.add("/hook")
    old = first.start()
    second.start()
    second.builder = first.builder
    second.insert(0, 10)
    second.wait_for("/hook", *range(10))
    wait_until(lambda: old._service is not None and old._service.has_ended)
    assert old._service is not None
    # Without a batch that would bring it up.
    with pytest.raises(Fenced):
        old.check_beside()


def test_answers_are_bounded_and_redirects_not_followed(
    make_shop: MakeShop, receiver: Receiver
) -> None:
    shop = make_shop()
    loud, moved = shop.add("/loud"), shop.add("/moved")
    receiver.decide["/loud"] = lambda _: Reply(200, body=b"x" * 3_000_000)
    receiver.decide["/moved"] = lambda _: Reply(302, {"Location": receiver.url("/else")})
    shop.start()
    shop.insert(0, 3)
    shop.wait_for("/loud", 0, 1, 2)
    assert "redirects" in shop.wait_for_state(moved, "paused").reason
    assert not receiver.attempts["/else"]
    assert shop.subscriptions.one(loud).state == "active"


def test_a_database_that_goes_away_is_waited_for(
    make_shop: MakeShop, receiver: Receiver, database: str
) -> None:
    shop = make_shop()
    shop.add("/hook")
    shop.start()
    shop.insert(0, 10)
    shop.wait_for("/hook", *range(10))
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'penstock shop deliver%'"
        )
    shop.insert(10, 10)
    shop.wait_for("/hook", *range(20))


def test_what_a_destroyed_pipeline_left_behind_goes_and_nothing_else(
    make_shop: MakeShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = make_shop(deliver="serve")
    shop.add("/hook")
    for _ in range(3):
        shop.stop()
        shop.start()
    shop.insert(0, 10)
    shop.stop()
    folder, strange = tmp_path / PIPELINE, tmp_path / PIPELINE / "!notes of a person"
    strange.touch()
    # An earlier Penstock died between the rows and the files, and its number starts over.
    shop.database.forget()
    for mark in folder.glob("*-driver"):
        mark.write_bytes(b"")
    shop.database.set_up()
    shop.add("/hook")
    assert list(folder.glob("00000003-*.arrow"))
    destination = shop.start()
    assert {file.name for file in folder.iterdir()} == {"00000004-driver", strange.name}
    shop.insert(10, 10)
    assert len(list(folder.glob("00000004-*.arrow"))) == 1

    def die() -> None:
        raise DestinationUnavailable("it died")

    # This one does not: the files go first.
    monkeypatch.setattr(destination._database, "forget", die)
    with pytest.raises(DestinationUnavailable):
        destination.forget()
    assert [file.name for file in folder.iterdir()] == [strange.name]
    monkeypatch.undo()
    assert destination.forget() == ["position, subscriptions and outbox"]
    assert not shop.subscriptions.all()


def test_the_outbox_of_an_earlier_penstock_is_taken_over(
    make_shop: MakeShop, receiver: Receiver, tmp_path: Path
) -> None:
    shop = make_shop()
    shop.add("/hook")
    receiver.decide["/hook"] = lambda _: Reply(503)
    shop.start()
    shop.insert(0, 10)
    shop.stop()
    with shop.database.transaction("test") as conn:
        conn.execute("ALTER TABLE penstock.webhook_pipeline DROP COLUMN outbox")
        conn.execute(
            "ALTER TABLE penstock.webhook_subscription DROP COLUMN ends, DROP COLUMN ends_why"
        )
    (tmp_path / PIPELINE / mark_of(1)).write_bytes(b"")
    receiver.decide.clear()
    for _ in range(2):
        shop.start()
        shop.wait_for("/hook", *range(10))
        shop.stop()


def test_what_becomes_of_requests_and_subscriptions_is_counted(
    make_shop: MakeShop, receiver: Receiver
) -> None:
    receiver.decide["/dead"] = lambda _: Reply(503)
    receiver.decide["/picky"] = lambda _: Reply(422)
    shop = make_shop()
    shop.add("/hook")
    shop.add("/dead")
    shop.add("/picky", on_refused="pause")
    shop.start()
    shop.insert(0, 20)
    counted = shop.registry.total
    wait_until(lambda: counted(WEBHOOK_DELIVERED) == 20)
    wait_until(lambda: counted(WEBHOOK_FAILED, reason="later") >= 2)
    wait_until(lambda: counted(WEBHOOK_SUBSCRIPTIONS, state="paused") == 1)
    wait_until(lambda: counted(WEBHOOK_SUBSCRIPTIONS, state="failing") == 1)
    wait_until(lambda: counted(WEBHOOK_SUBSCRIPTIONS, state="active") == 1)
    # Who is paused waits for a person: only the dead one lacks something by itself.
    wait_until(lambda: counted(WEBHOOK_BEHIND) == 1)
    assert counted(WEBHOOK_FAILED, reason="refused") >= 1
    requests = {
        sample.name: sample.value
        for sample in shop.registry.samples()
        if sample.name.startswith(WEBHOOK_SECONDS.name)
    }
    assert requests[f"{WEBHOOK_SECONDS.name}_count"] >= 23

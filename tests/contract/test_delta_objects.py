"""`delta` in an object store: SeaweedFS, which heeds If-None-Match as S3 does."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pydantic import ValidationError

from penstock.backoff import tried_again
from penstock.destination.contract import SchemaChange
from penstock.destination.delta.commits import PipelineCommits
from penstock.destination.delta.destination import DeltaDestination
from penstock.destination.delta.options import PATH_OPTIONS, DeltaOptions
from penstock.destination.delta.places import BucketPlace, FolderPlace, is_away
from penstock.destination.families.table_folders import folder_name
from penstock.destination.families.target import Target
from penstock.model.errors import BatchAgain, DestinationError, DestinationUnavailable, Fenced
from penstock.model.lsn import Frontier, Position
from penstock.model.schema_change import TableChange
from penstock.model.watermarks import Watermarks
from penstock.objects.bucket import Bucket
from penstock.testing import DestinationContract, FrozenRow, TableName, frozen
from penstock.testing.change_builder import ChangeBuilder
from penstock.testing.contract.deliveries import (
    ITEMS,
    LOOSE,
    NOTES,
    assert_delivered,
    definition,
    deliver,
    insert_items,
    opened,
    reference,
)
from tests.contract.test_delta import DeltaAdapter, texts_of
from tests.lake_alterations import expect_once_wherever_it_dies
from tests.lake_drivers import (
    DriverDiedError,
    expect_chunks_once_in_any_order,
    expect_tables_told_apart,
)
from tests.objects_proxy import Fault, Kind
from tests.objects_server import ObjectServer


class BucketAdapter(DeltaAdapter):
    def __init__(
        self, objects: ObjectServer, options: dict[str, str] | None = None, below: str = "lake"
    ) -> None:
        self.place = f"{objects.place()}/{below}"
        super().__init__(Path(), path=self.place, path_options=options or objects.direct_options)

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        place = f"{self.place}/{folder_name(name[0])}/{folder_name(name[1])}"
        table = DeltaTable(place, storage_options=self.root.storage_options)
        return Counter(map(frozen, texts_of(table)))

    @property
    def root(self) -> BucketPlace:
        made = DeltaDestination(self.options, "shop")
        assert isinstance(made._root, BucketPlace)
        return made._root


@pytest.fixture
def adapter(object_server: ObjectServer) -> Iterator[BucketAdapter]:
    made = BucketAdapter(object_server)
    yield made
    made.close()


@pytest.mark.release
class TestDeltaInBucket(DestinationContract):
    """The suite on tables in an object store."""


def test_a_driver_dies_among_the_tables_of_a_batch(
    adapter: BucketAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_tables_told_apart(adapter, ChangeBuilder(leave_out=[LOOSE]), 1, monkeypatch)


@pytest.mark.release
def test_chunks_come_again_in_another_order(
    adapter: BucketAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_chunks_once_in_any_order(adapter, monkeypatch)


@pytest.mark.release
def test_a_driver_dies_anywhere_in_a_transaction_that_changes_tables(
    tmp_path: Path, object_server: ObjectServer
) -> None:
    expect_once_wherever_it_dies(lambda _: BucketAdapter(object_server), tmp_path)


def test_of_two_drivers_at_once_one_is_refused(
    adapter: BucketAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen the same version of a table; the first has been replaced."""
    stale, builder = opened(adapter), ChangeBuilder(leave_out=[LOOSE])
    changes = insert_items(builder, 0, 2)
    receipt = stale.writer().write([changes])
    assert isinstance(stale, DeltaDestination)
    # It looks at the control table, and sleeps until it commits a table.
    looked, current, one_by_one = stale.apply, list[Any](), threading.Lock()

    def sleeping(*given: Any) -> Any:
        with one_by_one:  # tables are merged side by side
            if not current:
                current.append(opened(adapter))
        return looked(*given)

    monkeypatch.setattr(stale, "apply", sleeping)
    with pytest.raises((Fenced, BatchAgain)):
        stale.commit([receipt], Watermarks(builder.frontier))
    deliver(current[0], builder.frontier, [changes])
    assert_delivered(adapter, reference(changes))


def test_of_many_commits_at_once_each_version_is_one(adapter: BucketAdapter) -> None:
    """Nobody's commit is lost, and none is taken for another one's."""
    destination = opened(adapter)
    assert isinstance(destination, DeltaDestination)
    folder, commits = destination._root.of(Target.of(definition(ITEMS))), destination._transactions
    first, done = folder.table().version(), list[int]()

    def commit() -> None:
        for _ in range(4):
            try:
                with commits.explained(folder):
                    commits.sign(commits.table(folder), ITEMS.oid)
                done.append(1)
            except BatchAgain:
                pass

    threads = [threading.Thread(target=commit) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert done
    assert folder.table().version() == first + len(done)


def test_a_driver_dies_when_a_renamed_table_is_there_twice(
    adapter: BucketAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is renamed in an object store: rows are carried over, then the old table goes."""
    destination, builder = opened(adapter), ChangeBuilder(leave_out=[LOOSE])
    assert isinstance(destination, DeltaDestination)
    changes = insert_items(builder, 0, 2)
    deliver(destination, builder.frontier, [changes])
    before = definition(ITEMS)
    after = replace(before, name="goods")
    change = TableChange(before, after)

    def dies(*_: object) -> None:
        raise DriverDiedError

    with monkeypatch.context() as patch:
        patch.setattr(BucketPlace, "remove", dies)
        with pytest.raises(DriverDiedError):
            destination.alter(change, Target.of(before), Target.of(after))
    destination.alter(change, Target.of(before), Target.of(after))
    assert adapter.rows(("public", "goods")).total() == 2
    assert not destination._root.of(Target.of(before)).exists()
    assert destination.held(Target.of(after)) is not None


@pytest.mark.parametrize(
    "fault", [Fault(answer_lost=True), Fault(status=409)], ids=["answer lost", "conflict"]
)
def test_a_commit_of_which_the_store_says_no_word_or_a_conflict_comes_again(
    object_server: ObjectServer, fault: Fault
) -> None:
    """Of each step one commit, and none is refused for good: S3 tells of a conflict where two are
    under way at once, be it of a table that nobody has made yet. By way of a proxy in this process:
    its threads go on while the store is asked.
    """
    adapter = BucketAdapter(object_server, object_server.options)
    fails, builder = list[str](), ChangeBuilder(leave_out=[LOOSE])

    def decide(kind: Kind, path: str) -> Fault | None:
        if kind == "PUT" and fails and f"/{fails[0]}/_delta_log/" in path:
            fails.clear()
            return fault
        return None

    def tried(table: str, step: Callable[[], object]) -> None:
        fails.append(table)
        tried_again(step, BatchAgain)
        assert not fails

    object_server.proxy.set(decide)
    destination = adapter.make()
    assert isinstance(destination, DeltaDestination)
    before, end = definition(ITEMS), Watermarks(Frontier(2**40, 2**40))
    after = replace(before, name="goods")
    change = SchemaChange(Position(2**40, 0), 0, "ALTER TABLE", (TableChange(before, after),))
    tried("shop", destination.open)
    tried("items", lambda: destination.prepare([before, definition(NOTES)]))
    receipt = destination.writer().write([insert_items(builder, 0, 2)])
    tried("items", lambda: destination.commit([receipt], Watermarks(builder.frontier)))
    tried("goods", lambda: destination.commit_sections([change], end))
    assert adapter.rows(("public", "goods")).total() == 2
    assert not destination._root.of(Target.of(before)).exists()


def test_a_store_that_replaces_what_is_there_is_refused(
    adapter: BucketAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replacing(bucket: Bucket, name: str, data: bytes) -> bool:
        bucket.put(name, data)
        return True

    monkeypatch.setattr(Bucket, "create", replacing)
    with pytest.raises(DestinationError, match="commits to Delta tables would be lost"):
        adapter.make().check()


def test_a_store_that_does_not_answer_is_waited_for(object_server: ObjectServer) -> None:
    adapter = BucketAdapter(object_server)
    gone = {**object_server.direct_options, "endpoint": "http://127.0.0.1:1"}
    adapter.options = DeltaOptions.model_validate({"path": adapter.place, "path_options": gone})
    with pytest.raises(DestinationUnavailable):
        DeltaDestination(adapter.options, "shop").check()


# As delta-rs writes it for a terminal.
_ARROW = "\n   \x1b[31m↳\x1b[0m "


@pytest.mark.parametrize(
    ("said", "passes"),
    [
        ("in 401.5ms, after 10 retries, max_retries{}10 - HTTP error{}Connection refused", True),
        ("in 1ms - Server returned non-2xx status code{}503 Service Unavailable{}<Error/>", True),
        ("in 1ms - Server returned non-2xx status code{}403 Forbidden{}<Error/>", False),
        ("in 1ms{}<Error><Code>AccessDenied</Code></Error>", False),
    ],
)
def test_whether_a_store_is_waited_for_is_no_matter_of_names(said: str, passes: bool) -> None:
    told = "Generic S3 error{}Error performing PUT http://lake:400/lake/orders-404/AccessDenied "
    error = OSError((told + said).replace("{}", _ARROW))
    assert is_away(error) is passes
    kind = DestinationUnavailable if passes else DestinationError
    with pytest.raises(kind) as raised, PipelineCommits("shop").explained(FolderPlace("lake")):
        raise error
    assert type(raised.value) is kind
    assert "\x1b" not in raised.value.message


def test_what_the_path_does_not_say_the_environment_does(
    object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the store is, and that it is one without TLS."""
    options = object_server.direct_options
    monkeypatch.setenv("AWS_ENDPOINT_URL", options.pop("endpoint"))
    destination = opened(BucketAdapter(object_server, options))
    assert destination.committed() is None
    destination.close()


def test_a_place_whose_name_is_no_plain_one(object_server: ObjectServer) -> None:
    """It is written another way in addresses."""
    adapter = BucketAdapter(object_server, below="a lake of été")
    destination, builder = opened(adapter), ChangeBuilder(leave_out=[LOOSE])
    deliver(destination, builder.frontier, [insert_items(builder, 0, 2)])
    assert isinstance(destination, DeltaDestination)
    before = definition(ITEMS)
    after = replace(before, name="goods")
    destination.alter(TableChange(before, after), Target.of(before), Target.of(after))
    assert adapter.rows(("public", "goods")).total() == 2
    destination.close()


def test_keys_are_not_shown(adapter: BucketAdapter) -> None:
    """Neither by the client of the executors nor by delta-rs."""
    adapter.make().check()
    wrong = {**adapter.root.storage_options, "aws_secret_access_key": "planted-secret"}
    given = {name.removeprefix("aws_"): value for name, value in wrong.items()}
    options = {name: given[name] for name in PATH_OPTIONS if name in given}
    adapter.options = DeltaOptions.model_validate({"path": adapter.place, "path_options": options})
    destination = adapter.make()
    with pytest.raises(DestinationError) as refused:
        destination.check()
    with pytest.raises(DestinationError) as opened_wrong:
        destination.open()
    shown = f"{refused.value} {opened_wrong.value} {destination.options!r} {adapter.root!r}"
    assert "planted-secret" not in shown


@pytest.mark.parametrize(
    "options",
    [
        {"path": "gs://bucket/lake"},
        {"path": "s3://bucket"},
        {"path": "s3://bucket/lake%20"},
        {"path": "s3://bucket/lake#1"},
        {"path": "/lake", "path_options": {"region": "x"}},
        {"path": "s3://bucket/lake", "path_options": {"aws_s3_allow_unsafe_rename": "true"}},
    ],
)
def test_options_that_are_not_taken(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DeltaOptions.model_validate(options)

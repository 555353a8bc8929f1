"""`files`, and what queues put aside, in an object store that fails."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock import failpoints
from penstock.decode.changes import ChangeSet
from penstock.destination.encode.penstock_json import PenstockFormat
from penstock.destination.families.queue.events import Encoder
from penstock.destination.families.queue.options import ClaimCheckOptions, LaneOptions
from penstock.destination.families.queue.oversize import Oversize
from penstock.destination.files.committed_files import list_names
from penstock.destination.files.destination import FilesDestination
from penstock.destination.files.options import FilesOptions
from penstock.destination.files.tree import FILES
from penstock.model.errors import BatchAgain, DestinationError, DestinationUnavailable, Fenced
from penstock.model.watermarks import Watermarks
from penstock.objects.bucket import Bucket, opened
from penstock.testing.change_builder import ChangeBuilder
from penstock.testing.contract.deliveries import ITEMS, definition
from tests.objects_proxy import Decide, Fault, Kind
from tests.objects_server import SECRET, ObjectServer


class Place:
    """A prefix of its own, and what is below it."""

    def __init__(self, server: ObjectServer) -> None:
        self.url, self.options = server.place(), server.options
        self.bucket = Bucket(self.url, server.direct_options, FILES)

    def destination(self, **more: Any) -> FilesDestination:
        given = {"path": self.url, "options": self.options, **more}
        made = FilesDestination(FilesOptions.model_validate(given), "shop")
        made.open()
        return made

    def names(self, below: str = "") -> list[str]:
        return [each.name for each in self.bucket.list(below)]

    def ids(self) -> list[int]:
        """Of all rows that somebody finds who knows nothing of manifests."""
        files = [name for name in self.names() if name.startswith("public.items/")]
        assert files == list_names(self.url, "shop", options=self.options)
        tables = [pq.read_table(pa_buffer(self.bucket.get(name))) for name in files]
        return sorted(row for table in tables for row in table.column("id").to_pylist())


def pa_buffer(data: Any) -> Any:
    import pyarrow as pa

    return pa.BufferReader(pa.py_buffer(data))


@pytest.fixture
def place(object_server: ObjectServer) -> Place:
    return Place(object_server)


def insert(builder: ChangeBuilder, *ids: int) -> ChangeSet:
    with builder.transaction():
        for number in ids:
            builder.insert(ITEMS, str(number), "x")
    return builder.cut()


def when(kind: Kind, part: str, fault: Fault) -> Decide:
    """One request for such an object fails so."""
    left = [fault]

    def decide(asked: Kind, path: str) -> Fault | None:
        return left.pop() if left and asked == kind and part in path else None

    return decide


def test_a_crash_between_manifest_and_copies_is_finished_by_the_next_driver(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = ChangeBuilder()
    first = place.destination()
    receipt = first.writer().write([insert(builder, 1, 2)])
    assert place.names("public.items/") == []
    monkeypatch.setitem(failpoints._points, "files.manifest_written", ("error", 1))
    with pytest.raises(RuntimeError, match="manifest_written"):
        first.commit([receipt], Watermarks(builder.frontier))
    # Committed, though not in place.
    (waiting,) = list_names(place.url, "shop", options=place.options)
    assert waiting in place.names("_penstock/shop/staging/")
    second = place.destination()
    assert second.committed() == Watermarks(builder.frontier)
    assert place.ids() == [1, 2]
    assert place.names("_penstock/shop/staging/") == []
    with pytest.raises(Fenced):
        first.commit([], Watermarks(builder.frontier))


def test_answers_that_are_lost_and_a_store_that_refuses_for_a_while(
    place: Place, object_server: ObjectServer
) -> None:
    builder = ChangeBuilder()
    destination = place.destination()
    for part in ("/staging/", "/manifests/", "/public.items/"):
        for number, fault in enumerate((Fault(answer_lost=True), Fault(503))):
            object_server.proxy.set(when("PUT", part, fault))
            receipt = destination.writer().write([insert(builder, number)])
            destination.commit([receipt], Watermarks(builder.frontier))
    assert place.ids() == [0, 0, 0, 1, 1, 1]


def test_what_arrives_late_is_never_seen(place: Place, object_server: ObjectServer) -> None:
    """A task is given up while its file is on the way; another one writes the same again."""
    builder = ChangeBuilder()
    destination = place.destination()
    changes = insert(builder, 1)
    object_server.proxy.set(when("PUT", "/staging/", Fault(late=True)))
    receipt = destination.writer().write([changes])
    object_server.proxy.set()
    destination.commit([receipt], Watermarks(builder.frontier))
    assert object_server.proxy.deliver_late() == [200]
    assert place.ids() == [1]
    place.destination()
    assert place.names("_penstock/shop/staging/") == []


@pytest.fixture
def given_up_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The client makes no second attempt."""
    monkeypatch.setattr("penstock.objects.bucket._RETRY_SECONDS", 0)
    opened.cache_clear()
    yield
    opened.cache_clear()


def fail_late(destination: FilesDestination, builder: ChangeBuilder, changes: ChangeSet) -> None:
    """A commit that the driver gives up while its manifest is on the way."""
    with pytest.raises(DestinationUnavailable):
        destination.commit([destination.writer().write([changes])], Watermarks(builder.frontier))


@pytest.mark.usefixtures("given_up_at_once")
def test_a_commit_that_comes_to_pass_when_it_was_given_up_fences_nobody(
    place: Place, object_server: ObjectServer
) -> None:
    builder = ChangeBuilder()
    destination = place.destination()
    before, changes = destination.committed(), insert(builder, 1)
    object_server.proxy.set(when("PUT", "/manifests/", Fault(late=True)))
    fail_late(destination, builder, changes)
    assert destination.committed() == before
    assert object_server.proxy.deliver_late() == [200]
    receipt = destination.writer().write([changes])
    with pytest.raises(BatchAgain):
        destination.commit([receipt], Watermarks(builder.frontier))
    assert destination.committed() == Watermarks(builder.frontier)
    assert place.ids() == [1]
    receipt = destination.writer().write([insert(builder, 2)])
    destination.commit([receipt], Watermarks(builder.frontier))
    assert place.ids() == [1, 2]
    place.destination()
    with pytest.raises(Fenced):
        destination.commit([], Watermarks(builder.frontier))


@pytest.mark.usefixtures("given_up_at_once")
def test_a_batch_that_was_planned_before_another_thread_found_such_a_commit_is_not_committed(
    place: Place, object_server: ObjectServer
) -> None:
    builder = ChangeBuilder()
    destination = place.destination()
    changes = insert(builder, 1)
    object_server.proxy.set(when("PUT", "/manifests/", Fault(late=True)))
    fail_late(destination, builder, changes)
    assert destination.committed() is None
    assert object_server.proxy.deliver_late() == [200]
    destination.truncate_table(definition(ITEMS))
    # A larger one than before, in files of other names.
    receipt = destination.writer().write([changes, insert(builder, 2)])
    with pytest.raises(BatchAgain):
        destination.commit([receipt], Watermarks(builder.frontier))
    assert place.ids() == [1]


def test_what_check_says(
    place: Place, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(path: str, **options: str) -> None:
        given = {"path": path, "options": {**object_server.direct_options, **options}}
        FilesDestination(FilesOptions.model_validate(given), "shop").check()

    check(place.url)
    assert place.names() == []
    with pytest.raises(DestinationError, match="the store refuses") as error:
        check(place.url, secret_access_key="wrong")
    assert "destination.path" in error.value.remedy
    monkeypatch.setattr("penstock.objects.bucket._RETRY_SECONDS", 0)
    opened.cache_clear()
    with pytest.raises(DestinationUnavailable) as away:
        check(place.url, endpoint="http://127.0.0.1:1")
    assert SECRET not in str(away.value)
    opened.cache_clear()


def test_claim_checks(place: Place) -> None:
    option = ClaimCheckOptions.model_validate(
        {"claim_check": f"{place.url}/claims", "options": place.options}
    )
    assert SECRET not in repr(option)
    oversize = Oversize("kafka", 2000, option, "")
    encoder = Encoder(PenstockFormat({}), LaneOptions(), oversize)
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "x" * 5000)
    (value,) = encoder.events(builder.cut()).column("value").to_pylist()
    claim = json.loads(value)["claim_check"]
    assert claim["path"].startswith(f"{place.url}/claims/")
    content = bytes(place.bucket.get(claim["path"].removeprefix(f"{place.url}/")))
    assert hashlib.sha256(content).hexdigest() == claim["sha256"]
    assert json.loads(content)["new"]["name"] == "x" * 5000

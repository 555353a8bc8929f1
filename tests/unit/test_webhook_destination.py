"""The driver's side of webhooks, without a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.changelog.storage.folder import FolderStorage
from penstock.destination.webhooks.destination import WebhooksDestination
from penstock.model.errors import DestinationUnavailable
from penstock.testing.contract.deliveries import definition
from tests.webhook_shop import ORDERS, PIPELINE, options_for


class CountedRequests(FolderStorage):
    """Stands for a bucket: which requests it was sent, and how much its listings told."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.asked: list[str] = []
        self.listed = 0

    def list(self, after: str = "", *, and_in: str = "") -> list[tuple[str, int]]:
        found = super().list(after, and_in=and_in)
        self.asked.append("LIST")
        self.listed += len(found)
        return found

    def read_bytes(self, name: str) -> bytes | None:
        self.asked.append("GET")
        return super().read_bytes(name)

    def write(self, name: str, data: Any, *, durable: bool) -> None:
        self.asked.append("PUT")
        super().write(name, data, durable=durable)

    def delete(self, *names: str) -> None:
        self.asked.append("DELETE")
        super().delete(*names)


class Answering:
    """Stands for the database."""

    def check(self) -> None: ...


def test_an_idle_pipeline_pays_for_no_look_at_its_bucket(tmp_path: Path) -> None:
    options = options_for("postgresql://nobody@localhost/nowhere", "s3://bucket/outbox")
    destination = WebhooksDestination(options, PIPELINE)
    place, database = CountedRequests(str(tmp_path)), Answering()
    destination._outbox = replace(destination._outbox, storage=place)
    destination._database = database  # type: ignore[assignment]
    for number in range(20):
        place.write(f"00000001-{number:032x}.arrow", b"waits for who is paused", durable=False)
    place.asked.clear()
    destination.check()
    assert place.asked == ["PUT", "LIST", "GET", "DELETE"]
    assert place.listed == 1, "however much waits there"
    place.asked.clear()
    # It is asked every few seconds while nothing comes.
    destination.check()
    assert place.asked == ["GET"]


class Index:
    """Stands for the outbox's index in the database."""

    def __init__(self) -> None:
        self.is_away = True
        self.known: dict[str, Sequence[str]] = {}

    def know_tables(self, tables: Mapping[str, Sequence[str]]) -> None:
        if self.is_away:
            raise DestinationUnavailable("away")
        self.known |= tables


def test_tables_are_told_again_where_the_database_did_not_hear_of_them(tmp_path: Path) -> None:
    destination = WebhooksDestination(
        options_for("postgresql://nobody@localhost/nowhere", tmp_path), PIPELINE
    )
    index = Index()
    destination._index = index  # type: ignore[assignment]
    with pytest.raises(DestinationUnavailable):
        destination.prepare([definition(ORDERS)])
    index.is_away = False
    destination.prepare([definition(ORDERS)])
    assert index.known == {"public.orders": ["id", "total"]}

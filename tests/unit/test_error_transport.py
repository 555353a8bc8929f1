"""Errors of plug-ins keep their class and fields across processes."""

from __future__ import annotations

import pickle

from penstock.model.error_policy import Action, decide
from penstock.model.error_transport import (
    error_from_json,
    error_from_text,
    error_to_json,
    error_to_text,
)
from penstock.model.errors import (
    DestinationError,
    DestinationUnavailable,
    PenstockError,
    TableRefused,
)


class TopicFull(DestinationUnavailable):
    """An error of another package: its constructor takes what no error of ours does."""

    def __init__(self, topic: str, limit: int) -> None:
        super().__init__(f"topic {topic} is full", remedy="wait")
        self.topic = topic
        self.limit = limit


def test_a_plug_ins_error_keeps_class_and_fields() -> None:
    error = TopicFull("orders", 7)
    text = f"org.apache.spark.SparkException: …\n{error_to_text(error)}\n at java.base/…"
    for found in (error_from_text(text), pickle.loads(pickle.dumps(error))):  # noqa: S301
        assert type(found) is TopicFull
        assert (found.topic, found.limit) == ("orders", 7)
        assert (str(found), found.message, found.remedy) == (
            *("topic orders is full", "topic orders is full"),
            "wait",
        )
        assert decide(found) is Action.RETRY


def test_fields_of_our_own_errors_stay() -> None:
    error = TableRefused("no", remedy="yes", table=9, may_pass=True)
    found = error_from_json(error_to_json(error))
    assert isinstance(found, TableRefused)
    assert (found.table, found.may_pass) == (9, True)


def test_a_class_that_is_not_there_is_its_nearest_base() -> None:
    value = error_to_json(TopicFull("orders", 7))
    value["kinds"][0] = "nowhere.to.be.found:TopicFull"
    found = error_from_json(value)
    assert type(found) is DestinationUnavailable
    assert decide(found) is Action.RETRY


def test_only_errors_of_ours_are_made() -> None:
    value = {"kinds": ["builtins:SystemExit", "os:system"], "fields": {"message": "x"}}
    assert type(error_from_json(value)) is PenstockError


def test_a_field_that_json_does_not_know_is_a_text() -> None:
    error = DestinationError("x")
    error.topic = {1: b"y"}  # type: ignore[attr-defined]
    assert error_from_json(error_to_json(error)).topic == {"1": "b'y'"}  # type: ignore[attr-defined]


def test_a_text_without_an_error_has_none() -> None:
    assert error_from_text("java.lang.OutOfMemoryError") is None
    assert error_from_text("PENSTOCK-ERROR:{torn") is None

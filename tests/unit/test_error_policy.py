"""What each kind of error means for a pipeline."""

from __future__ import annotations

import pytest

from penstock.model import errors
from penstock.model.error_policy import Action, decide
from penstock.model.errors import PenstockError

RETRIED: list[type[PenstockError]] = [
    errors.SourceUnavailable,
    errors.DestinationUnavailable,
    errors.StoreUnavailable,
    errors.LogUnavailable,
    errors.SegmentGone,
    PenstockError,
]
STOPPED: list[type[PenstockError]] = [
    errors.ConfigError,
    errors.CheckFailed,
    errors.SourceError,
    errors.SlotError,
    errors.IdentityChanged,
    errors.LogError,
    errors.CorruptSegment,
    errors.Fenced,
    errors.DecodeError,
    errors.DestinationError,
    errors.SparkLost,
    errors.StoreError,
    errors.PipelineBusy,
    errors.RowsRefused,
    errors.UnknownTable,
    errors.UnknownLetter,
    errors.UnknownSubscription,
]
OTHERWISE: dict[type[PenstockError], Action] = {
    errors.BatchAgain: Action.AGAIN,
    errors.SnapshotGone: Action.AGAIN,
    errors.TableRewritten: Action.AGAIN,
    errors.TableRefused: Action.SET_ASIDE,
    errors.TableChanged: Action.SET_ASIDE,
}


@pytest.mark.parametrize("kind", RETRIED)
def test_what_may_pass_is_tried_again(kind: type[PenstockError]) -> None:
    assert decide(kind("x")) is Action.RETRY


@pytest.mark.parametrize("kind", STOPPED)
def test_what_needs_a_person_stops(kind: type[PenstockError]) -> None:
    assert decide(kind("x")) is Action.STOP


@pytest.mark.parametrize("kind", OTHERWISE)
def test_what_has_an_answer_of_its_own(kind: type[PenstockError]) -> None:
    assert decide(kind("x")) is OTHERWISE[kind]


def test_every_kind_is_decided_on_purpose() -> None:
    defined = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, PenstockError)
    }
    assert defined == {*RETRIED, *STOPPED, *OTHERWISE}

"""What a destination keeps about a pipeline beside its data, and how a stale driver is fenced."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from penstock.backoff import tried_again
from penstock.model.errors import BatchAgain, Fenced
from penstock.model.watermarks import Watermarks


class Ledger(ABC):
    """Texts by name, of one pipeline, with the number of the driver that may write them.

    A member keeps them where its data is: a table of three columns will do. Used on the driver.
    """

    @abstractmethod
    def take_over(self) -> int:
        """Count drivers, and return the number of the new one: those before it are fenced."""

    @abstractmethod
    def read(self, prefix: str = "") -> dict[str, str]:
        """The notes whose names begin so. Called without ``take_over``, too."""

    @abstractmethod
    def write(self, driver: int, notes: Mapping[str, str | None]) -> None:
        """Put notes down, or with None remove them, all or nothing. Part of the transaction that is
        under way, where there is one. Raises what ``fenced`` makes if another driver took over, be
        there notes or not.
        """

    @abstractmethod
    def forget(self) -> bool:
        """Remove all of it; whether there was something."""


def fenced(destination: str, pipeline: str) -> Fenced:
    """The error of a driver that is no longer the one."""
    return Fenced(
        f"destination {destination}: another driver of pipeline {pipeline} has taken over",
        remedy="stop this one; the other goes on where it stood",
    )


def watermarks_text(watermarks: Watermarks) -> str:
    """Watermarks as a note."""
    return json.dumps(watermarks.to_json())


def watermarks_from(text: str) -> Watermarks:
    """The watermarks that a note holds."""
    return Watermarks.from_json(json.loads(text))


def once_alone(take_over: Callable[[], int]) -> int:
    """What it returns, tried again where another driver takes over at the same time. Raises
    BatchAgain where that happens every time.
    """
    return tried_again(take_over, BatchAgain)

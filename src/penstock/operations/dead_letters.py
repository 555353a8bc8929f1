"""Rows that a pipeline's destination refused: listed, looked at, brought again, discarded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.model.errors import ConfigError, UnknownLetter

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.config import PipelineConfig
    from penstock.destination.dead_letters import DeadLetter, DeadLetterBox
    from penstock.operations.outcome import Outcome


def list_letters(
    config: PipelineConfig, *, table: str | None = None, after: int = 0, most: int = 100
) -> Sequence[DeadLetter]:
    """Those with an id above ``after``; none where the destination keeps none."""
    box = _box(config)
    return [] if box is None else box.list(table=table, after=after, most=most)


def get_letter(config: PipelineConfig, letter: int) -> DeadLetter:
    """Raises UnknownLetter where there is none of that id."""
    box = _box(config)
    found = None if box is None else box.get(letter)
    if found is None:
        raise UnknownLetter(
            f"The destination of pipeline {config.name} keeps no refused row {letter}.",
            remedy="`penstock dead-letters list` shows those that it keeps.",
        )
    return found


def retry_letters(config: PipelineConfig, file: Path, letters: Sequence[int]) -> Outcome:
    """Bring refused rows again as they are now: their tables are copied anew, and the letters go,
    since a row that is refused again is a new one. The refused values themselves may be long out of
    date, so they are not sent again.

    Raises UnknownLetter where none of them is there, and PenstockError where tables are not copied.
    """
    from penstock.operations.table_copies import resync_tables

    box = _box(config)
    found = [] if box is None else [box.get(letter) for letter in dict.fromkeys(letters)]
    there = [letter for letter in found if letter is not None]
    if box is None or not there:
        raise UnknownLetter(
            f"The destination of pipeline {config.name} keeps none of these refused rows.",
            remedy="`penstock dead-letters list` shows those that it keeps.",
        )
    # First: whoever dies in between has letters too many, not rows too few.
    outcome = resync_tables(config, file, sorted({letter.table for letter in there}))
    box.discard([letter.id for letter in there])
    return outcome


def discard_letters(config: PipelineConfig, letters: Sequence[int]) -> Sequence[int]:
    """Remove refused rows for good; the ids of those that were there.

    Raises ConfigError for a destination that keeps none.
    """
    box = _box(config)
    if box is None:
        raise ConfigError(
            f"The destination {config.destination_type} of pipeline {config.name} keeps no refused "
            "rows.",
            remedy="There is nothing to discard.",
        )
    return box.discard(letters)


def _box(config: PipelineConfig) -> DeadLetterBox | None:
    from penstock.destination.registry import dead_letter_box

    return dead_letter_box(config.destination_type, config.destination_options, config.delivery)

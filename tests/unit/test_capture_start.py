"""Where capture goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.config import PipelineConfig
from penstock.model.lsn import Frontier
from penstock.source.postgres.capture.process import start_frontier, wants_messages
from penstock.source.postgres.capture.stream import ReplicationStream

OLD, HELD, AHEAD, END = (Frontier(lsn, lsn + 8) for lsn in (0x100, 0x200, 0x300, 0x400))


def test_at_the_end_of_the_log() -> None:
    assert start_frontier(END, HELD, AHEAD, HELD.end_lsn) == END
    assert start_frontier(END, None, None, 0) == END


def test_without_a_log_where_the_last_of_the_tables_stands() -> None:
    """The destination as a whole is further on; what lies between is for that table."""
    assert start_frontier(None, HELD, AHEAD, HELD.end_lsn) == HELD
    assert start_frontier(OLD, HELD, AHEAD, HELD.end_lsn) == HELD


def test_with_an_older_log_where_the_destination_stands() -> None:
    """What its reader still lacked then was delivered, and the slot has let it go."""
    assert start_frontier(OLD, OLD, AHEAD, HELD.end_lsn) == AHEAD
    assert start_frontier(None, None, AHEAD, HELD.end_lsn) == AHEAD


def test_nothing_is_known_at_first() -> None:
    assert start_frontier(None, None, None, HELD.end_lsn) is None


@pytest.mark.parametrize(
    ("source", "changes", "asked"),
    [
        ({}, {}, "true"),
        ({}, {"track": False}, "false"),
        ({"messages": ["orders.audit"]}, {"track": False}, "true"),
    ],
)
def test_messages_of_strangers_are_asked_for_only_where_some_are_wanted(
    source: dict[str, Any], changes: dict[str, Any], asked: str
) -> None:
    """The server sends those of everybody, each up to a gigabyte, or none."""
    config = PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": {
                "url": "postgresql://localhost/shop",
                "tables": {"include": ["*.*"]},
                **source,
            },
            "change_log": {"path": "log"},
            "destination": {"type": "discard"},
            "schema_changes": changes,
        }
    )
    commands: list[str] = []
    stream: Any = ReplicationStream.__new__(ReplicationStream)
    stream._connection, stream._pgconn = None, SimpleNamespace()
    stream._exec = lambda command, *_, **__: commands.append(command)
    stream.start("slot", ["one"], 0, messages=wants_messages(config))
    assert f"messages '{asked}'" in commands[0]

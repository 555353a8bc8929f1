"""What `files` holds, in the form in which the witness tells it, and the comparison of the two."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path

from penstock.destination.families.durable import TEMPORARY
from penstock.destination.files.committed_files import list_files
from penstock.destination.files.layout import MESSAGES, ControlFolder, table_folder
from penstock.destination.files.stored_changes import StoredChange, read_changes
from penstock.model.lsn import Position, parse_lsn
from tests.crash.witness import Change
from tests.workload import MARK


def delivered_changes(root: Path, pipeline: str, tables: Sequence[str]) -> list[Change]:
    """Every change in the files, by position.

    Asserts that each table's files, read one after another, hold rising positions: nothing is
    there twice and nothing out of order.
    """
    found: list[Change] = []
    for table in tables:
        stored = [
            change
            for file in list_files(root, pipeline, table_folder("public", table))
            for change in read_changes(file, root, pipeline, "public", table)
        ]
        _check_rising(table, [change.position for change in stored])
        found += (_change(table, change) for change in stored)
    messages = [
        change for file in list_files(root, pipeline, MESSAGES) for change in _messages(file)
    ]
    _check_rising("messages", [change.position for change in messages])
    found += messages
    # At one position stands one change, except for a TRUNCATE of several tables.
    return sorted(found, key=lambda change: (change.position, change.table))


def expect_equal(delivered: list[Change], committed: list[Change]) -> None:
    """Fail and show the first difference, unless both are the same list."""
    for number, (ours, theirs) in enumerate(zip_longest(delivered, committed)):
        assert ours == theirs, (
            f"change {number} of {len(committed)} differs ({len(delivered)} were delivered):\n"
            f"the files have   {_shown(ours)}\nPostgres sent    {_shown(theirs)}"
        )


def expect_recorded(
    delivered: list[Change], committed: Mapping[str, int], in_doubt: Mapping[str, int]
) -> None:
    """Fail unless the transactions are those that the load saw committed, whole, once."""
    sizes = Counter(position for position in {change.position for change in delivered})
    changes_of = Counter(position.commit_lsn for position in sizes)
    marks = [
        (bytes.fromhex(change.new["content"] or "").decode(), change.position.commit_lsn)
        for change in delivered
        if change.op == "message" and change.table == MARK and change.new is not None
    ]
    seen = dict(marks)
    assert len(seen) == len(marks), "a transaction was delivered twice"
    lost = sorted(set(committed) - set(seen))
    assert not lost, f"committed, but not delivered: {lost}"
    invented = sorted(set(seen) - set(committed) - set(in_doubt))
    assert not invented, f"delivered, but never committed: {invented}"
    for mark, commit_lsn in marks:
        expected = committed.get(mark) or in_doubt[mark]
        assert changes_of[commit_lsn] == expected, f"transaction {mark} is not whole"
    for session in {mark.partition(":")[0] for mark in seen}:
        numbers = [
            int(mark.partition(":")[2]) for mark in seen if mark.partition(":")[0] == session
        ]
        assert numbers == sorted(numbers), f"session {session}: out of commit order"


def leftovers(root: Path, pipeline: str) -> list[str]:
    """Files that belong to no commit."""
    staging = root / ControlFolder(pipeline).staging
    hidden = [
        path for path in root.rglob("*") if path.is_file() and path.name.startswith(TEMPORARY)
    ]
    return [str(path) for path in [*staging.iterdir(), *hidden]]


def _check_rising(what: str, positions: list[Position]) -> None:
    for before, after in pairwise(positions):
        assert before < after, f"{what}: {after} stands behind {before}"


def _change(table: str, change: StoredChange) -> Change:
    if change.op == "truncate":
        return Change(change.position, table, change.op)
    new = None if change.op == "delete" else change.values
    return Change(change.position, table, change.op, new, change.old)


def _messages(file: Path) -> Iterator[Change]:
    for line in file.read_text(encoding="utf-8").split("\n")[:-1]:
        value = json.loads(line)
        content = value["content"]
        raw = content.encode() if value["encoding"] == "utf-8" else base64.b64decode(content)
        place = value["position"]
        position = Position(parse_lsn(place["commit_lsn"]), place["ordinal"])
        yield Change(position, value["prefix"], "message", {"content": raw.hex()})


def _shown(change: Change | None) -> str:
    return "nothing more" if change is None else repr(change)[:600]

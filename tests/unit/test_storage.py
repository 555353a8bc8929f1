"""What of a file of the change log is on the disk, and when."""

from __future__ import annotations

from pathlib import Path

from penstock.changelog.storage import Storage


def test_what_is_durable_was_synced_before_it_has_its_name(
    tmp_path: Path, disk_steps: list[str]
) -> None:
    storage = Storage(str(tmp_path))
    storage.write("a", b"12345", durable=True)
    assert disk_steps == ["5 bytes", "a", "folder"]
    disk_steps.clear()
    assert storage.create("b", b"123")
    assert disk_steps == ["3 bytes", "b", "folder"]


def test_what_may_be_lost_waits_for_no_disk(tmp_path: Path, disk_steps: list[str]) -> None:
    Storage(str(tmp_path)).write("a", b"12345", durable=False)
    assert disk_steps == ["a"]

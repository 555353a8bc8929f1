"""What of a file of the change log is on the disk, and when."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow import fs

from penstock.changelog.changelog import ChangeLog
from penstock.changelog.segment import without_rows
from penstock.changelog.storage.folder import FolderStorage
from penstock.changelog.writer import LogWriter
from penstock.model.error_policy import Action, decide
from penstock.model.errors import LogError, LogUnavailable
from penstock.model.lsn import Frontier
from penstock.source.postgres.snapshot.snapshot_record import HeldSnapshot, SnapshotRecord


def test_what_is_durable_was_synced_before_it_has_its_name(
    tmp_path: Path, disk_steps: list[str]
) -> None:
    storage = FolderStorage(str(tmp_path))
    storage.write("a", b"12345", durable=True)
    assert disk_steps == ["5 bytes", "a", "folder"]
    disk_steps.clear()
    assert storage.create("b", b"123")
    assert disk_steps == ["3 bytes", "b", "folder"]


@pytest.mark.parametrize("fails", ["fsync", "link", "replace"])
def test_a_disk_without_room_is_worth_another_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    storage = FolderStorage(str(tmp_path / "log"))
    monkeypatch.setattr(os, fails, full)
    writes: list[Callable[[], object]] = [
        lambda: storage.create("a", b"12345"),
        lambda: storage.write("b", b"123", durable=True),
    ]
    for write in writes if fails == "fsync" else writes[:1] if fails == "link" else writes[1:]:
        with pytest.raises(LogUnavailable, match="No space left on device") as caught:
            write()
        assert decide(caught.value) is Action.RETRY
    monkeypatch.undo()
    assert storage.create("a", b"12345")


@pytest.mark.parametrize(
    ("code", "action"),
    [(errno.EACCES, Action.STOP), (errno.ESTALE, Action.RETRY), (errno.EMFILE, Action.RETRY)],
)
def test_a_folder_that_cannot_be_read_says_whether_to_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, action: Action
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    storage = FolderStorage(str(tmp_path))
    storage.write("a", b"12345", durable=True)
    for function in ("scandir", "listdir", "unlink"):
        monkeypatch.setattr(os, function, fail)
    monkeypatch.setattr(Path, "read_bytes", fail)
    monkeypatch.setattr(fs, "LocalFileSystem", lambda **_: SimpleNamespace(open_input_file=fail))
    asked: list[Callable[[], object]] = [
        storage.list,
        storage.entries,
        storage.delete_temporary,
        lambda: storage.read("a"),
        lambda: storage.read_bytes("a"),
        lambda: storage.delete("a"),
    ]
    for ask in asked:
        with pytest.raises(LogError, match=os.strerror(code)) as caught:
            ask()
        assert decide(caught.value) is action


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (errno.EACCES, Action.STOP),
        (errno.EROFS, Action.STOP),
        (errno.ENOENT, Action.STOP),
        (errno.EIO, Action.RETRY),
        (errno.ESTALE, Action.RETRY),
        (errno.EMFILE, Action.RETRY),
    ],
)
def test_a_folder_that_cannot_be_written_says_whether_to_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, action: Action
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    storage = FolderStorage(str(tmp_path))
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(LogError, match=os.strerror(code)) as caught:
        storage.write("a", b"12345", durable=True)
    assert decide(caught.value) is action


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of folders, each when it was synced."""
    seen: list[str] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        fsync(handle)
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            seen.append(Path(f"/proc/self/fd/{handle}").readlink().name)

    monkeypatch.setattr(os, "fsync", noted)
    return seen


def test_a_new_folder_is_on_the_disk_before_what_is_in_it(
    tmp_path: Path, synced: list[str]
) -> None:
    """A segment that is synced is lost nevertheless with the folder that it is in."""
    log = ChangeLog(str(tmp_path / "penstock" / "log"))
    log.segments.write("a", b"12345", durable=True)
    assert set(synced[:-1]) == {tmp_path.name, "penstock", "log"}
    assert synced[-1] == "segments"
    synced.clear()
    log.segments.write("b", b"12345", durable=True)
    assert synced == ["segments"]


@pytest.mark.parametrize(
    ("code", "is_minded"), [(errno.EINVAL, False), (errno.EACCES, False), (errno.EIO, True)]
)
def test_a_volume_may_be_mounted_on_what_knows_no_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, *, is_minded: bool
) -> None:
    fsync = os.fsync

    def refuse(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink() == tmp_path:
            raise OSError(code, os.strerror(code))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", refuse)
    log = ChangeLog(str(tmp_path / "log"))
    with pytest.raises(LogUnavailable) if is_minded else nullcontext():
        assert LogWriter(log).frontier is None


def test_what_a_writer_left_is_on_the_disk_before_it_counts(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed when its segment had its name, and the folder was not synced yet. Whoever takes
    over confirms that segment, where the pipeline says `confirm: log`.
    """
    log = ChangeLog(str(tmp_path / "log"))
    writer = LogWriter(log)
    writer.start_at(Frontier(1, 2))
    replace = os.replace

    def killed(source: str, target: str) -> None:
        replace(source, target)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            writer.publish(without_rows(), Frontier(7, 8), is_open=False)
    synced.clear()
    assert LogWriter(log).frontier == Frontier(7, 8)
    assert "segments" in synced


def test_what_cannot_be_looked_at_is_not_missing(tmp_path: Path) -> None:
    storage = FolderStorage(str(tmp_path))
    storage.write("a", b"12345", durable=True)
    assert (storage.exists("a"), storage.exists("b")) == (True, False)
    with pytest.raises(LogError, match="Not a directory"):
        storage.child("a").exists("b")


def test_what_may_be_lost_waits_for_no_disk(tmp_path: Path, disk_steps: list[str]) -> None:
    FolderStorage(str(tmp_path)).write("a", b"12345", durable=False)
    assert disk_steps == ["a"]


# -- who may read it -------------------------------------------------------------------------------


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, int]:
    found = [root, *root.rglob("*")]
    return {str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode) for path in found}


@pytest.mark.usefixtures("no_umask")
def test_the_log_and_what_is_beside_it_is_its_owner_s_alone(tmp_path: Path) -> None:
    log = ChangeLog(str(tmp_path / "log"))
    log.segments.write("a", b"", durable=True)
    log.set_reader("shop", Frontier(1, 2), durable=True)
    log.set_tables({})
    assert log.epochs.create("000001", b"")
    snapshot = SnapshotRecord(log.root.child("snapshots").child("1"))
    snapshot.write(HeldSnapshot("s", 1, 3, "4", "5", 6))
    snapshot.say_alive()
    for name, mode in modes(tmp_path / "log").items():
        is_folder = (tmp_path / "log" / name).is_dir()
        assert mode == (0o700 if is_folder else 0o600), name


@pytest.mark.usefixtures("no_umask")
def test_what_consumers_are_to_read_is_as_open_as_the_umask_says(tmp_path: Path) -> None:
    FolderStorage(str(tmp_path / "checks"), private=False).write("a", b"", durable=True)
    assert modes(tmp_path / "checks") == {".": 0o777, "a": 0o666}


@pytest.mark.usefixtures("no_umask")
def test_a_log_that_others_could_read_is_closed_to_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = ChangeLog(str(tmp_path / "log"))
    log.root.make_private()
    assert not (tmp_path / "log").exists(), "what is not there yet is made as it should be"
    log.segments.write("a", b"", durable=True)
    for path in (tmp_path / "log", tmp_path / "log" / "segments"):
        path.chmod(0o755)
    (tmp_path / "log" / "segments" / "a").chmod(0o644)
    log.root.make_private()
    assert modes(tmp_path / "log") == {".": 0o700, "segments": 0o700, "segments/a": 0o600}
    assert "others could read the change log" in caplog.text
    caplog.clear()
    log.root.make_private()
    assert not caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_somebody_else_s_folder_is_not_ours_to_close(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir(mode=0o755)
    os.chown(folder, 12345, -1)
    with pytest.raises(LogError, match="belongs to another user") as refused:
        ChangeLog(str(folder)).root.make_private()
    assert f"chmod -R go= {folder}" in refused.value.remedy
    folder.chmod(0o700)
    ChangeLog(str(folder)).root.make_private()

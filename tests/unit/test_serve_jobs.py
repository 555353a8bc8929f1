"""Long operations: how they ended is their own word, whoever looks."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from penstock.model.errors import PenstockError
from penstock.serve.catalogue import Catalogue, PipelineFile
from penstock.serve.supervise import jobs as module
from penstock.serve.supervise.jobs import ENDED, Jobs
from tests.fix_pipeline import wait_until


@pytest.fixture
def shop(tmp_path: Path) -> PipelineFile:
    """A pipeline whose source is not there."""
    file = tmp_path / "shop.yaml"
    file.write_text(
        "name: shop\nsource: {url: 'postgresql://localhost:1/x'}\ndestination: {type: discard}\n"
    )
    found = Catalogue([file]).get("shop")
    assert found is not None
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "jobs"
    made.mkdir()
    return made


def test_one_that_was_killed_after_a_restart_of_the_server_has_failed(
    shop: PipelineFile, folder: Path
) -> None:
    before = Jobs(folder)
    begun = before.start(shop, "destroy", {}, "olga")
    child = before._children[begun.id]
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    job = Jobs(folder).get("shop", begun.id)
    assert job is not None
    assert job.state == "failed"
    assert "without a word" in job.error
    assert "start it again" in job.remedy


def test_one_that_ended_says_how_to_a_server_that_is_not_its_parent(
    shop: PipelineFile, folder: Path
) -> None:
    begun = (first := Jobs(folder)).start(shop, "init", {}, "olga")
    assert first._children[begun.id].wait() == 1
    job = Jobs(folder).get("shop", begun.id)
    assert job is not None
    assert job.state == "failed"
    assert "No connection to database 'x'" in job.error
    # The same without an error that could be read: the exit code alone counts.
    (folder / begun.id / "err").write_text("")
    (folder / begun.id / ENDED).write_text('{"exit_code": 0}')
    job = Jobs(folder).get("shop", begun.id)
    assert job is not None
    assert job.state == "succeeded"


def test_a_server_that_dies_before_it_wrote_one_down_leaves_nothing_that_works(
    shop: PipelineFile, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        pass

    def die(*_: object) -> None:
        raise Died

    jobs = Jobs(folder)
    with monkeypatch.context() as patched:
        patched.setattr(module, "write_json", die)
        with pytest.raises(Died):
            jobs.start(shop, "init", {}, "olga")
    (unseen,) = folder.iterdir()
    assert jobs._children[unseen.name].wait() == 0
    assert [(unseen / name).read_bytes() for name in ("out", "err")] == [b"", b""]
    assert not (unseen / ENDED).exists()
    # What it left is cleared away with the next one.
    begun = (heir := Jobs(folder)).start(shop, "check", {}, "olga")
    assert [path.name for path in folder.iterdir()] == [begun.id]
    child = heir._children[begun.id]
    child.kill()
    child.wait()


def test_what_has_ended_is_read_once_however_many_look(
    shop: PipelineFile, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Jobs(folder)
    begun = jobs.start(shop, "check", {}, "olga")
    wait_until(lambda: jobs.of("shop")[0].state != "running", "the check has ended")
    read: list[Path] = []
    monkeypatch.setattr(module, "_report", read.append)
    monkeypatch.setattr(module, "_tail", lambda path, _most: read.append(path))
    (glance,) = jobs.of("shop")
    assert (glance.id, glance.state, glance.passed) == (begun.id, "succeeded", False)
    assert glance.report is None
    assert read == []
    monkeypatch.undo()
    whole = jobs.get("shop", begun.id)
    assert whole is not None
    assert whole.report


def test_one_that_cannot_be_started_says_why(
    shop: PipelineFile, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(module, "start_detached", refuse)
    with pytest.raises(PenstockError, match="cannot be started: Cannot allocate memory"):
        Jobs(folder).start(shop, "check", {}, "olga")

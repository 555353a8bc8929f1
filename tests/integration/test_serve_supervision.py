"""Pipelines as processes of their own: started, stopped, started again, adopted, left alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.model.errors import ConfigError, PenstockError
from penstock.operations.process_identity import ProcessIdentity
from penstock.operations.run_record import running
from penstock.serve.catalogue import Catalogue, PipelineFile
from penstock.serve.observe.events import Events
from penstock.serve.state_folder import StateFolder
from penstock.serve.supervise import supervisor as module
from penstock.serve.supervise.jobs import Jobs
from penstock.serve.supervise.pipeline_process import start_detached, start_run
from penstock.serve.supervise.supervisor import RunSupervisor
from tests.fix_pipeline import wait_until

FAKE = "name: shop\nsource: {url: 'postgresql://localhost:1/x'}\ndestination: {type: discard}\n"


class House:
    """A folder of pipeline files, and one server after the other on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "shop.yaml"
        self.file.write_text(FAKE)
        self.events = Events()
        self._servers: list[RunSupervisor] = []

    def server(self, *places: Path, starts: bool = False) -> RunSupervisor:
        """One more, as after a restart: nothing is left of the one before but its files."""
        catalogue = Catalogue(places or [self.file])
        state = StateFolder(self.folder / "state")
        made = RunSupervisor(catalogue, state, self.events, starts=starts)
        self._servers.append(made)
        made.turn()
        return made

    @property
    def shop(self) -> PipelineFile:
        file = Catalogue([self.file]).get("shop")
        assert file is not None
        return file

    def stop(self) -> None:
        for server in self._servers:
            for kept in server._kept.values():
                if kept.process is not None and kept.process.lives:
                    with suppress(ProcessLookupError):
                        os.kill(kept.process.pid, signal.SIGKILL)
                if kept.child is not None:
                    kept.child.wait()


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """Runs are played by a process that shows what a run shows."""
    made = House(tmp_path)

    def play(_config: object, file: Path, log: Path) -> subprocess.Popen[bytes]:
        return start_detached([sys.executable, "-m", "tests.fake_runs", str(file)], log, log)

    monkeypatch.setattr(module, "start_run", play)
    yield made
    made.stop()


def test_a_server_that_comes_back_touches_nothing(house: House) -> None:
    first = house.server()
    view = first.start_pipeline(house.shop)
    assert (view.state, view.wanted, view.adopted) == ("running", "running", False)
    record = wait_until(lambda: running(house.shop.require_config()), "the run is found")
    assert record is not None
    assert record.process.pid == view.pid
    # The first one is as good as killed: it is never asked again.
    again = house.server().view(house.shop)
    assert (again.state, again.pid, again.wanted) == ("running", view.pid, "running")
    assert record.process.lives


def test_stopping_and_starting(house: House) -> None:
    server = house.server()
    pid = server.start_pipeline(house.shop).pid
    assert server.start_pipeline(house.shop).pid == pid
    record = wait_until(lambda: running(house.shop.require_config()), "it runs")
    assert record is not None
    assert server.stop_pipeline(house.shop).state == "stopping"
    server.stop_pipeline(house.shop)

    def stopped() -> bool:
        server.turn()
        return server.view(house.shop).state == "stopped"

    wait_until(stopped, "it has stopped")
    assert not record.process.lives
    server.turn()
    assert server.view(house.shop).state == "stopped"
    assert house.server(starts=True).view(house.shop).state == "stopped"


@pytest.fixture
def other(house: House) -> Iterator[subprocess.Popen[bytes]]:
    """A run in somebody's terminal."""
    command = [sys.executable, "-m", "tests.fake_runs", str(house.file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as made:
        assert made.stdout is not None
        assert made.stdout.readline() == b"ready\n"
        yield made
        made.kill()


def test_a_run_of_somebody_else_is_adopted(house: House, other: subprocess.Popen[bytes]) -> None:
    server = house.server(starts=True)
    view = server.view(house.shop)
    assert (view.state, view.pid, view.adopted) == ("running", other.pid, True)
    assert view.metrics is not None
    server.stop_pipeline(house.shop)
    assert other.wait(60) == 0


@pytest.mark.parametrize(
    ("number", "code", "state", "wanted"),
    [
        # Ctrl-C; the file is wrong; it failed; it was killed.
        (signal.SIGTERM, 0, "stopped", "stopped"),
        (signal.SIGUSR2, 2, "failed", "running"),
        (signal.SIGUSR1, 1, "waiting", "running"),
        (signal.SIGKILL, -signal.SIGKILL, "waiting", "running"),
    ],
)
def test_an_adopted_run_that_ended(
    house: House,
    other: subprocess.Popen[bytes],
    number: signal.Signals,
    code: int,
    state: str,
    wanted: str,
) -> None:
    """Nobody tells the server what a process ended with that is not its child."""
    server = house.server(starts=True)
    assert server.view(house.shop).adopted
    other.send_signal(number)
    assert other.wait(60) == code
    server.turn()
    view = server.view(house.shop)
    assert (view.state, view.wanted) == (state, wanted)
    server.turn()
    if state in ("stopped", "failed"):
        assert server.view(house.shop).pid is None


def test_an_adopted_run_that_was_killed_with_its_log_is_started_again(
    house: House, other: subprocess.Popen[bytes]
) -> None:
    """What it could not write down is no word that it was stopped on purpose."""
    server = house.server(starts=True)
    assert server.view(house.shop).adopted
    shutil.rmtree(house.shop.require_config().change_log.local_folder)
    other.kill()
    other.wait(60)
    server.turn()
    view = server.view(house.shop)
    assert (view.state, view.wanted) == ("waiting", "running")


def test_one_that_fails_is_started_again_with_growing_pauses(house: House) -> None:
    server = house.server(starts=True)

    def ended(times: int) -> bool:
        server.turn()
        view = server.view(house.shop)
        if view.state == "running" and view.pid is not None:
            os.kill(view.pid, signal.SIGKILL)
        return view.restarts >= times and view.state == "waiting"

    wait_until(lambda: ended(3), "it was started again three times")
    assert server.view(house.shop).next_start is not None
    said = [event.message for event in house.events.latest("shop")]
    assert any("exit code -9; starts again in" in text for text in said)


def test_a_real_run_says_why_it_ended(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """`penstock run` itself, on a source that is not there."""
    monkeypatch.setattr(module, "start_run", start_run)
    server = house.server(starts=True)

    def waiting() -> bool:
        server.turn()
        return server.view(house.shop).state == "waiting"

    wait_until(waiting, "the run has failed")
    view = server.view(house.shop)
    assert "No connection to database 'x' at localhost, port 1" in view.error
    assert "What to do" in view.error


def test_what_cannot_be_supervised(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "start_run", start_run)
    house.file.write_text(FAKE.replace("discard", "stdout"))
    with pytest.raises(ConfigError, match="nobody would read") as caught:
        house.server().start_pipeline(house.shop)
    assert "penstock run" in caught.value.remedy
    # One that is to be kept running is given up, and says so.
    view = house.server(starts=True).view(house.shop)
    assert view.state == "failed"
    assert "nobody would read" in view.error


def test_one_that_cannot_be_started_holds_up_no_other(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without memory for a moment: it is tried again, and the server comes up."""
    play, refused = vars(module)["start_run"], [True]

    def start(views: object, file: Path, log: Path) -> subprocess.Popen[bytes]:
        if refused[0] and file == house.file:
            raise OSError(12, "Cannot allocate memory")
        begun: subprocess.Popen[bytes] = play(views, file, log)
        return begun

    monkeypatch.setattr(module, "start_run", start)
    second = house.folder / "stock.yaml"
    second.write_text(FAKE.replace("shop", "stock"))
    server = house.server(house.file, second, starts=True)
    stock = Catalogue([second]).all()[0]
    assert server.view(stock).state == "running"
    view = server.view(house.shop)
    assert (view.state, view.wanted) == ("waiting", "running")
    assert "cannot be started: Cannot allocate memory" in view.error
    with pytest.raises(PenstockError, match="Cannot allocate memory"):
        server.start_pipeline(house.shop)
    refused[0] = False

    def running_again() -> bool:
        server.turn()
        return server.view(house.shop).state == "running"

    wait_until(running_again, "it was started once that was possible")


def test_a_full_disk_keeps_no_pipeline_from_being_looked_after(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    server = house.server()
    with monkeypatch.context() as patched:
        patched.setattr(module, "write_json", full)
        with pytest.raises(PenstockError, match="cannot be written down"):
            server.start_pipeline(house.shop)
        assert server.view(house.shop).wanted == "stopped", "nothing was changed"
    view = server.start_pipeline(house.shop)
    with monkeypatch.context() as patched:
        patched.setattr(module, "write_json", full)
        assert view.pid is not None
        os.kill(view.pid, signal.SIGKILL)

        def again() -> bool:
            server.turn()
            now = server.view(house.shop)
            return now.state == "running" and now.pid != view.pid

        wait_until(again, "it was started again")
    server.turn()
    # A server that comes back finds it by what was written once there was room.
    assert house.server().view(house.shop).pid == server.view(house.shop).pid


def test_a_run_whose_file_was_broken_is_still_looked_after(house: House) -> None:
    house.file = house.file.rename(house.folder / "10-shop.yaml")
    server = house.server(house.folder)
    pid = server.start_pipeline(house.shop).pid
    wait_until(lambda: running(house.shop.require_config()), "it runs")
    house.file.write_text("name: shop\nsource: [")
    server.turn()
    broken = server._catalogue.get("shop")
    assert broken is not None
    view = server.view(broken)
    assert (view.state, view.pid) == ("running", pid)
    assert view.error
    server.stop_pipeline(broken)

    def stopped() -> bool:
        server.turn()
        return server.view(broken).state == "invalid"

    wait_until(stopped, "it has stopped")


def test_a_number_that_is_another_process_now(tmp_path: Path) -> None:
    own = ProcessIdentity.own()
    assert own.lives
    assert ProcessIdentity.from_json(json.loads(json.dumps(own.to_json()))) == own
    assert not ProcessIdentity(own.pid, own.host, own.boot, "1").lives
    assert not ProcessIdentity(own.pid, "elsewhere", own.boot, own.start).lives


def test_two_files_of_one_name_and_files_that_change(house: House) -> None:
    second = house.folder / "again.yaml"
    second.write_text(FAKE)
    catalogue = Catalogue([house.folder])
    assert [(file.name, file.config is None) for file in catalogue.all()] == [
        ("shop", False),
        ("shop_2", True),
    ]
    second.write_text(FAKE.replace("name: shop", "name: other"))
    catalogue.refresh()
    assert [file.name for file in catalogue.all()] == ["other", "shop"]
    second.unlink()
    catalogue.refresh()
    assert [file.name for file in catalogue.all()] == ["shop"]


def test_a_check_as_a_job(house: House) -> None:
    """It runs as a process, and outlives the server that started it."""
    folder = house.folder / "jobs"
    folder.mkdir()
    jobs = Jobs(folder)
    begun = jobs.start(house.shop, "check", {}, "olga")
    assert jobs.start(house.shop, "check", {}, "rita").id == begun.id
    other = Jobs(folder)

    def done() -> bool:
        job = jobs.get("shop", begun.id)
        return job is not None and job.state != "running"

    wait_until(done, "the check has ended")
    job = other.get("shop", begun.id)
    assert job is not None
    assert (job.state, job.passed, job.started_by) == ("succeeded", False, "olga")
    assert any(result["remedy"] for result in job.report)
    assert other.get("else", begun.id) is None
    assert other.get("shop", "../jobs") is None

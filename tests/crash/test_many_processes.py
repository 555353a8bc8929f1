"""`penstock run` of a file with several destinations: processes that fail, are killed, and end.

But for one test the drivers do without Spark: it is the processes that count here.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
import yaml

from penstock.config import load_pipeline
from penstock.destination.files.folding import fold
from tests.crash.penstock_run import PATIENCE, WITHOUT_SPARK, PenstockRun
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.http_get import http_get

NOBODY = "postgresql://postgres@127.0.0.1:9/nowhere"


class ManyRun:
    """One file, and the command on it."""

    def __init__(self, pipeline: PipelineUnderTest) -> None:
        self.pipeline = pipeline
        self.run: PenstockRun
        self._begun: list[PenstockRun] = []

    def configure(self, **destinations: dict[str, str]) -> None:
        self.pipeline.configure(copy=True)
        content = yaml.safe_load(self.pipeline.file.read_text())
        del content["destination"]
        content |= {"destinations": destinations, "spark": {"master": "local[1, 4]"}}
        self.pipeline.file.write_text(yaml.safe_dump(content))

    def lake(self, name: str = "lake") -> dict[str, str]:
        return {"type": "files", "path": str(self.pipeline.folder / name), "format": "ndjson"}

    def start(self, *arguments: str, has_spark: bool = False) -> PenstockRun:
        """The one that counts from now on; ``begin`` leaves that as it is."""
        self.run = self.begin(*arguments, has_spark=has_spark)
        return self.run

    def begin(self, *arguments: str, has_spark: bool = False) -> PenstockRun:
        environment = {} if has_spark else WITHOUT_SPARK
        begun = PenstockRun(self.pipeline.file, *arguments, environment=environment)
        self._begun.append(begun)
        return begun

    def end(self) -> None:
        for begun in self._begun:
            begun.end()

    def names(self, name: str = "lake") -> set[str]:
        """What the files of a destination hold of the table's names."""
        view = load_pipeline(self.pipeline.file, only=name)
        found = fold(Path(view.destination_options["path"]), view.delivery, "public", "items")
        return {row[1] for row in found.rows}

    def wait_delivered(self, text: str, *names: str) -> None:
        """Write a row, and wait until it is there."""
        self.pipeline.execute(f"INSERT INTO items (name) VALUES ('{text}')")  # noqa: S608 (our own)
        for name in names:
            wait_until(partial(self._holds, name, text), f"{name} has {text}", PATIENCE)

    def _holds(self, name: str, text: str) -> bool:
        self.run.expect_running()
        return text in self.names(name)

    def child(self, name: str) -> psutil.Process:
        """The process of a destination, once there is one."""

        def found() -> psutil.Process | None:
            for process in self.run.processes():
                try:
                    command = process.cmdline()
                except psutil.Error:
                    continue
                if "--tether" in command and command[command.index("--only") + 1] == name:
                    return process
            return None

        process = wait_until(found, f"there is a process of {name}", PATIENCE)
        assert process is not None
        return process


@pytest.fixture
def shop(pipeline: PipelineUnderTest) -> Iterator[ManyRun]:
    pipeline.execute(
        "CREATE TABLE items (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text)",
        "INSERT INTO items (name) VALUES ('copied')",
    )
    shop = ManyRun(pipeline)
    yield shop
    shop.end()


@pytest.mark.parametrize("has_spark", [False, pytest.param(True, marks=pytest.mark.release)])
def test_one_is_broken_and_killed_and_the_rest_goes_on(shop: ManyRun, has_spark: bool) -> None:
    shop.configure(lake=shop.lake(), broken={"type": "postgres", "url": NOBODY})
    run = shop.start(has_spark=has_spark)
    wait_until(lambda: shop.names() == {"copied"}, "the rows are copied", PATIENCE)
    shop.wait_delivered("first", "lake")
    wait_until(lambda: "destination broken: " in run.output, "the broken one is named")
    assert re.search(r"destination broken: .*nothing listens.*started again in", run.output, re.S)
    url = re.search(r"metrics at (\S+)/metrics", run.output)
    assert url is not None
    shown = http_get(f"{url[1]}/metrics").text
    assert re.search(r'penstock_copied_rows_total{destination="lake".* 1\.0', shown), shown
    assert re.search(r'penstock_destination_running{destination="broken".* 0\.0', shown)
    assert len(re.findall(r"^penstock_capture_streaming{", shown, re.M)) == 1
    assert http_get(f"{url[1]}/health").status == 200
    ready = http_get(f"{url[1]}/ready")
    assert (ready.status, "destination broken: " in ready.text) == (503, True)
    # Nothing is confirmed that the broken one will need: it has its place at the beginning.
    waiting = shop.pipeline.log.reader(f"{shop.pipeline.name}.broken")
    assert waiting is not None
    assert waiting.frontier == waiting.begin
    assert shop.pipeline.confirmed <= waiting.frontier.end_lsn
    shop.child("lake").kill()
    shop.wait_delivered("after the kill", "lake")
    assert "destination lake: its process ended with -9" in run.output
    second = shop.begin()
    wait_until(lambda: second.exit_code is not None, "a second command is refused", PATIENCE)
    assert "its supervisor lock is held by" in second.output
    run.stop()
    assert shop.names() == {"copied", "first", "after the kill"}


@pytest.mark.release
def test_whoever_is_killed_nothing_is_left_and_nothing_lost(shop: ManyRun) -> None:
    shop.configure(lake=shop.lake(), pond=shop.lake("pond"))
    run = shop.start()
    shop.wait_delivered("first", "lake", "pond")
    assert run.kill("capture")
    shop.wait_delivered("without the first capture", "lake", "pond")
    assert "capture ended unexpectedly; starting it again" in run.output
    # The command itself: all that it started ends by itself, and a new one goes on.
    run.kill_driver()
    run.wait_gone()
    run = shop.start()
    shop.wait_delivered("second run", "lake", "pond")
    # A new command at once, while the children of the old one are still ending.
    run.kill_driver()
    again = shop.start()
    shop.wait_delivered("third run", "lake", "pond")
    run.wait_gone()
    shop.child("pond").send_signal(signal.SIGSTOP)
    shop.wait_delivered("one is frozen", "lake")
    shop.child("pond").send_signal(signal.SIGCONT)
    shop.wait_delivered("all are well", "lake", "pond")
    again.stop()
    everything = {
        *("copied", "first", "without the first capture", "second run", "third run"),
        *("one is frozen", "all are well"),
    }
    assert shop.names("lake") == shop.names("pond") == everything


@pytest.mark.release
def test_each_in_a_command_of_its_own(shop: ManyRun) -> None:
    """Whichever comes first captures; when it ends, another one takes over."""
    shop.configure(lake=shop.lake(), pond=shop.lake("pond"))
    first = shop.start("--only", "lake")
    shop.wait_delivered("first", "lake")
    other = shop.begin("--only", "pond")
    shop.wait_delivered("second", "lake", "pond")
    assert first.find("capture") is not None
    assert other.find("capture") is not None, "it stands by"
    first.stop()
    shop.run = other
    shop.wait_delivered("third", "pond")
    shop.begin("--only", "lake", "--until-caught-up").wait_done()
    assert shop.names("lake") == shop.names("pond") == {"copied", "first", "second", "third"}
    other.stop()


@pytest.mark.release
def test_until_all_have_caught_up(shop: ManyRun) -> None:
    shop.configure(lake=shop.lake(), broken={"type": "postgres", "url": NOBODY})
    run = shop.start("--until-caught-up")
    wait_until(lambda: run.exit_code is not None, "it ends", PATIENCE)
    assert run.exit_code == 1
    assert "destination broken: " in run.output
    assert shop.names() == {"copied"}
    shop.configure(lake=shop.lake(), pond=shop.lake("pond"))
    shop.pipeline.execute("INSERT INTO items (name) VALUES ('more')")
    run = shop.start("--until-caught-up")
    run.wait_done()
    assert shop.names("lake") == shop.names("pond") == {"copied", "more"}

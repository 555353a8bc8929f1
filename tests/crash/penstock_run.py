"""`penstock run` as a process of its own, with all the processes below it in our hand."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import psutil
import pytest

from tests.fix_pipeline import wait_until

# Long enough for a start of Spark on a machine that is busy with other things.
PATIENCE = 300.0

_TESTS = Path(__file__).parents[1]
# Its tasks run in the driver (tests/threads_engine.py): for tests of what processes do to each
# other and to a destination.
# With the code beside these tests, whichever is installed.
_PATHS = (_TESTS / "without_spark", _TESTS.parent, _TESTS.parent / "src")
WITHOUT_SPARK = {"PYTHONPATH": os.pathsep.join(map(str, _PATHS))}

Part = Literal["capture", "worker", "worker daemon", "JVM", "snapshot holder"]

# All processes of a run inherit it, wherever they stand in the tree and whoever is their parent.
_MARK = "PENSTOCK_CRASH_TEST_RUN"

# What Python raises where the program is wrong, and no code of ours raises on purpose.
_BUG = re.compile(
    r"^(Assertion|Attribute|Import|Index|Key|Name|Type|UnboundLocal|ZeroDivision)Error\b.*$",
    re.MULTILINE,
)


class PenstockRun:
    """One life of the command. Whatever happens, ``end`` leaves nothing of it."""

    command = "run"

    def __init__(
        self,
        file: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        apart_from: Path | None = None,
    ) -> None:
        """``apart_from``: as on a second machine, with a name and process numbers of its own, which
        does not see this folder. ``file`` is not in it.
        """
        self._mark = uuid.uuid4().hex
        self._file = file
        self._lost_jvm = False
        self.has_failpoints = "PENSTOCK_FAILPOINTS" in (environment or {})
        self._output = file.with_name(f"run-{self._mark[:8]}.txt")
        # Spark keeps its temporary files below the test's folder: a killed JVM leaves them there.
        scratch = file.with_name("spark")
        scratch.mkdir(exist_ok=True)
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    *([] if apart_from is None else _second_machine(apart_from)),
                    *(sys.executable, "-m", "penstock", self.command, str(file), *arguments),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={
                    **os.environ,
                    **(environment or {}),
                    _MARK: self._mark,
                    "SPARK_LOCAL_DIRS": str(scratch),
                },
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def exit_code(self) -> int | None:
        """None while it runs; -9 once it was killed."""
        return self._process.poll()

    @property
    def ended_at_failpoint(self) -> bool:
        """Whether it was killed where it was told to be."""
        return self.exit_code == -9 and self.has_failpoints

    def expect_no_bug(self) -> None:
        """Fail if it ever stumbled over itself. A new attempt may hide that: it often succeeds."""
        if self._lost_jvm:
            # py4j, when its other half is gone, says all kinds of things.
            return
        bug = _BUG.search(self.output)
        if bug is not None:
            pytest.fail(f"a bug came to light:\n{self.output[: bug.end()][-3000:]}")

    def expect_running(self) -> None:
        if self.exit_code is not None:
            pytest.fail(f"penstock run ended with {self.exit_code}:\n{self.output[-3000:]}")

    def stop(self) -> None:
        """Ask it to stop, as Ctrl-C does; fail unless it does so in order and leaves nothing but
        the holder of a snapshot."""
        self.expect_running()
        self._process.send_signal(signal.SIGINT)
        self.wait_done()

    def wait_done(self) -> None:
        """Wait until it ends by itself; fail unless all is well and nothing is left running."""
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            pytest.fail(f"penstock run does not end:\n{self.output[-3000:]}")
        assert code == 0, f"penstock run ended with {code}:\n{self.output[-3000:]}"
        assert not self._mortal(), f"left running: {self._mortal()}"

    def kill(self, part: Part) -> bool:
        """SIGKILL to one process of that kind, once there is one; False if the run ended before."""
        found = wait_until(
            lambda: self.find(part) or self.exit_code is not None, f"there is a {part}", PATIENCE
        )
        if isinstance(found, bool):
            return False
        self._lost_jvm |= part == "JVM"
        with suppress(psutil.NoSuchProcess):
            found.kill()
        wait_until(lambda: not _is_alive(found), f"the {part} is dead")
        return True

    def kill_driver(self) -> None:
        """SIGKILL to the command itself, which has no chance to end what it started."""
        self._process.kill()

    def lose(self) -> None:
        """SIGKILL to all of its processes, holders of snapshots too: the machine is gone."""
        for holder in self._holders():
            with suppress(psutil.NoSuchProcess):
                holder.kill()
        self.end()

    def freeze(self) -> None:
        """Stop all of its processes in the middle of what they do, as a paused machine does."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def thaw(self) -> None:
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def wait_gone(self) -> None:
        """Wait until the command and, soon after, all that it started have ended by themselves.

        Those that hold a snapshot stay: the next run goes on with it.
        """
        wait_until(lambda: self.exit_code is not None, "penstock run has ended", PATIENCE)
        wait_until(lambda: not self._mortal(), "all that penstock run started has ended", PATIENCE)

    def find(self, part: Part) -> psutil.Process | None:
        """One of the processes of that kind, if there is one now."""
        if part == "snapshot holder":
            # An earlier run of the pipeline may have started it.
            return next(iter(self._holders()), None)
        for process in self.processes():
            try:
                if _is(part, process):
                    return process
            except psutil.Error:
                continue
        return None

    def processes(self) -> list[psutil.Process]:
        """Those that are alive; a zombie that nobody waits for is not."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid == self._process.pid and self.exit_code is not None:
                    continue
                alive = process.status() != psutil.STATUS_ZOMBIE
                if alive and process.environ().get(_MARK) == self._mark:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def _mortal(self) -> list[psutil.Process]:
        """Those that may not outlive the command."""
        holders = self._holders()
        return [process for process in self.processes() if process not in holders]

    def _holders(self) -> list[psutil.Process]:
        """Whoever holds a snapshot for the pipeline."""
        found = []
        for process in psutil.process_iter():
            try:
                if _is("snapshot holder", process) and str(self._file) in process.cmdline():
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def end(self) -> None:
        """Kill what is left."""
        self._process.kill()
        self._process.wait()
        for _ in range(3):
            # What one of them forks meanwhile is found the next time.
            for process in self.processes():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        wait_until(lambda: not self.processes(), "the killed processes are gone")


class PenstockCopy(PenstockRun):
    """`penstock copy`, with its workers."""

    command = "copy"


class PenstockCapture(PenstockRun):
    """`penstock capture`, alone."""

    command = "capture"


def _second_machine(hidden: Path) -> list[str]:
    """What to put before a command. When it is killed, so is the command."""
    setup = f"mount -t tmpfs none '{hidden}' && hostname second && exec \"$@\""
    spaces = ["--mount", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
    return ["unshare", *spaces, "sh", "-c", setup, "sh"]


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _is(part: Part, process: psutil.Process) -> bool:
    command = process.cmdline()
    match part:
        case "capture":
            return "--supervised" in command
        case "JVM":
            return bool(process.name() == "java")
        case "worker" | "worker daemon":
            parent = process.parent()
            if "penstock.spark.daemon" not in command or parent is None:
                return False
            # Workers are forked from the daemon, and have its command line. They go on without it.
            is_daemon = bool(parent.name() == "java")
            return is_daemon == (part == "worker daemon")
        case "snapshot holder":
            return "penstock.source.postgres.snapshot.holder_process" in command

"""One seed of chaos whose change log is in an object store, which dies and fails as well."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import pytest
import yaml

from penstock.changelog.changelog import ChangeLog
from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.chaos_seed import Say, SeedReport, Supervisor, bring
from tests.crash.fault_schedule import PlannedFault, plan_faults
from tests.crash.faults import FAULTS as ALL
from tests.crash.into_postgres import IntoPostgres
from tests.crash.penstock_run import PenstockCapture, PenstockRun
from tests.crash.process_faults import capture_meanwhile, delete_log, second_capture
from tests.objects_proxy import Fault, Kind
from tests.objects_server import ObjectServer

_LONGEST_SECONDS = 6.0
# It ends where another one has taken over, and where it cannot reach something at its start.
_MOST_CAPTURES = 60


class IntoObjects(IntoPostgres):
    """Into `postgres`; whoever reads or writes the log does so through the store's proxy."""

    def __init__(
        self,
        server: EmbeddedPostgres,
        target: EmbeddedPostgres,
        objects: ObjectServer,
        folder: Path,
        seed: int,
    ) -> None:
        super().__init__(server, target, folder, seed)
        self.objects = objects
        self.pipeline.log = ChangeLog(objects.place(), objects.options)
        content = yaml.safe_load(self.pipeline.file.read_text())
        content["change_log"] |= {
            "path": self.pipeline.log.root.path,
            "options": objects.options,
            "segment_age": "50ms",
            # Less than many a transaction takes, so that parts of one are left behind.
            "segment_bytes": "8 KiB",
        }
        self.pipeline.file.write_text(yaml.safe_dump(content))

    def kill_capture(self) -> bool:
        """False if the run ended before."""
        return self.run.kill("capture")

    def stop(self) -> None:
        """Ask all that runs to stop, and fail unless it does."""
        self.run.stop()


class IntoApart(IntoObjects):
    """The same with `penstock capture` and `penstock run --no-capture`, which have nothing but the
    bucket in common. Who captures is started again here, as by what supervises it on its machine.
    """

    def __init__(
        self,
        server: EmbeddedPostgres,
        target: EmbeddedPostgres,
        objects: ObjectServer,
        folder: Path,
        seed: int,
    ) -> None:
        super().__init__(server, target, objects, folder, seed)
        self._captures: list[PenstockCapture] = []

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for capture in self._captures:
            capture.end()
        if error is not None and self._captures:
            error.add_note(f"penstock capture said:\n{self._captures[-1].output[-3000:]}")
        super().__exit__(kind, error, trace)

    def start(self, *arguments: str, **environment: str) -> PenstockRun:
        """A failpoint may be on the way of either."""
        if environment:
            self.kill_capture()
        self._capture(environment)
        return super().start("--no-capture", *arguments, **environment)

    def _capture(self, environment: Mapping[str, str] | None = None) -> None:
        if self._captures and self._captures[-1].exit_code is None:
            return
        if len(self._captures) == _MOST_CAPTURES:
            last = self._captures[-1]
            pytest.fail(f"penstock capture ended again, with {last.exit_code}:\n{last.output}")
        self._captures.append(PenstockCapture(self.pipeline.file, environment=environment))

    def kill_capture(self) -> bool:
        for capture in self._captures[-1:]:
            capture.end()
        return True

    def check_watchers(self) -> None:
        super().check_watchers()
        self._capture()

    def check_alive(self) -> None:
        super().check_alive()
        self._capture()

    def check_runs(self) -> None:
        super().check_runs()
        for capture in self._captures:
            capture.expect_no_bug()

    def stop(self) -> None:
        super().stop()
        self._captures[-1].stop()


Objects = TypeVar("Objects", bound=IntoObjects)


def _kill_store(injured: IntoObjects, amount: float) -> str:
    injured.objects.kill()
    seconds = amount * _LONGEST_SECONDS
    time.sleep(seconds)
    injured.objects.start()
    return f"away for {seconds:.1f} s"


def _refuse(injured: IntoObjects, amount: float) -> str:
    """All that is asked fails, longer than the client tries by itself if ``amount`` is large."""
    seconds = amount * _LONGEST_SECONDS * 5
    injured.objects.proxy.set(lambda _kind, _path: Fault(503))
    time.sleep(seconds)
    injured.objects.proxy.set()
    return f"{seconds:.1f} s"


def _lose_answers(injured: IntoObjects, amount: float) -> str:
    """Some are refused, and of some the answer is lost."""
    chance, seconds = random.Random(amount), amount * _LONGEST_SECONDS

    def decide(kind: Kind, _path: str) -> Fault | None:
        draw = chance.random()
        if draw < 0.2:
            return Fault(status=chance.choice((409, 429, 500, 503)) if kind == "PUT" else 503)
        return Fault(answer_lost=True) if draw < 0.4 and kind == "PUT" else None

    injured.objects.proxy.set(decide)
    time.sleep(seconds)
    injured.objects.proxy.set()
    return f"{seconds:.1f} s"


def _write_late(injured: IntoObjects, amount: float) -> str:
    """A writer dies with a segment on its way, which arrives when another one has taken over."""
    proxy = injured.objects.proxy
    proxy.set(lambda kind, path: Fault(late=kind == "PUT" and "/segments/" in path))
    deadline = time.monotonic() + 30
    while not proxy.late and time.monotonic() < deadline:
        time.sleep(0.01)
    killed = injured.kill_capture()
    proxy.set()
    time.sleep(amount * _LONGEST_SECONDS)
    return f"{len(proxy.deliver_late())} came late" if killed else "the run had ended"


def _kill_capture(injured: IntoObjects, _amount: float) -> str:
    return "" if injured.kill_capture() else "there was none, as the run had ended"


def _second_capture(injured: IntoObjects, amount: float) -> str:
    if isinstance(injured, IntoApart):
        capture_meanwhile(injured, amount)
        return "beside one on another machine"
    return second_capture(injured, amount)


def _delete_log(injured: IntoObjects, amount: float) -> str:
    """Nobody does so while somebody writes it."""
    if isinstance(injured, IntoApart):
        injured.kill_capture()
    return delete_log(injured, amount)


FAULTS: dict[str, Callable[[IntoObjects, float], str]] = {
    "store killed": _kill_store,
    "store refuses": _refuse,
    "store loses answers": _lose_answers,
    "store refuses again": _refuse,
    "late write": _write_late,
    "another late write": _write_late,
    "second capture": _second_capture,
    "capture killed": _kill_capture,
    "change log deleted": _delete_log,
    **{
        name: ALL[name]
        for name in (
            *("driver killed", "worker killed", "stale driver", "failpoint", "another failpoint"),
            *("source crashed", "destination connections cut"),
        )
    },
}


def run_objects_seed(
    report: SeedReport,
    count: int,
    servers: tuple[EmbeddedPostgres, EmbeddedPostgres],
    folder: Path,
    say: Say = print,
) -> None:
    """Bring ``count`` faults over a pipeline whose log is in an object store.

    In odd seeds capture is a command of its own. Fails unless the pipeline gets up after each,
    nobody sees half a transaction, and both databases hold the same rows in the end.
    """
    source, target = servers
    kind = IntoApart if int(report.seed) % 2 else IntoObjects
    with (
        ObjectServer() as objects,
        kind(source, target, objects, folder, int(report.seed)) as injured,
    ):
        bring_all(report, injured, plan_faults(int(report.seed), count, FAULTS), FAULTS, say)


def bring_all(
    report: SeedReport,
    injured: Objects,
    plan: Sequence[PlannedFault],
    faults: Mapping[str, Callable[[Objects, float], str]],
    say: Say,
) -> None:
    """Start, bring each fault once the one before is overcome, and judge in the end."""
    supervisor = Supervisor(injured)
    injured.load.start()
    injured.start()
    supervisor.wait_recovered()
    for number, fault in enumerate(plan):
        line = bring(fault, injured, supervisor, faults)
        report.faults.append(line)
        say(f"  {number + 1:3} {line}")
    injured.settle()
    injured.verify()
    injured.stop()
    report.judged(injured)

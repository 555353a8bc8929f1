"""Keeps pipelines as people want them: started, stopped, started again after a failure.

What is wanted is written down, and so is the process that was started for it. A server that starts
finds both, and touches nothing that runs. Runs that others started (`penstock run` in a terminal, a
unit of systemd) are found by the record that every run leaves, and are adopted.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from penstock.backoff import Backoff
from penstock.cadence import paced
from penstock.model.errors import PenstockError
from penstock.operations.exit_codes import EXIT_CONFIG
from penstock.operations.process_identity import ProcessIdentity
from penstock.operations.run_record import RunRecord, left_code, running
from penstock.serve.catalogue import Catalogue, PipelineFile
from penstock.serve.observe.events import Events
from penstock.serve.state_folder import StateFolder, read_json, write_json
from penstock.serve.supervise.pipeline_process import send_signal, start_run
from penstock.serve.supervise.run_log import RunLog

TURN_SECONDS = paced(1.0)
_INSIST_SECONDS = 0.3
_FIRST_PAUSE = paced(1.0)
_LONGEST_PAUSE = paced(300.0)
# In order, or at once after a second signal: somebody stopped it.
_STOPPED = (0, -signal.SIGINT, -signal.SIGTERM)

Wanted = Literal["running", "stopped"]
ProcessState = Literal["running", "stopping", "stopped", "waiting", "failed", "invalid"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProcessView:
    """How a pipeline's process stands.

    ``adopted``: somebody else started it. ``waiting``: it ended by itself and is started again at
    ``next_start``. ``failed``: it ended, and another start would not help. ``error`` is the last
    thing that it said of a failure.
    """

    state: ProcessState
    wanted: Wanted
    pid: int | None = None
    began_at: datetime | None = None
    adopted: bool = False
    metrics: str | None = None
    restarts: int = 0
    next_start: datetime | None = None
    error: str = ""


@dataclass
class _Kept:
    """What is known of one pipeline's process."""

    wanted: Wanted
    log: RunLog
    process: ProcessIdentity | None = None
    child: subprocess.Popen[bytes] | None = None
    record: RunRecord | None = None
    began_at: datetime | None = None
    metrics: str | None = None
    backoff: Backoff = field(
        default_factory=lambda: Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
    )
    adopted: bool = False
    stopping: bool = False
    due: float | None = None
    restarts: int = 0
    gave_up: bool = False
    error: str = ""
    written: bool = True


class _CannotStart(PenstockError):
    """The machine could not start it; another try may succeed."""


class RunSupervisor:
    """One thread looks after all pipelines; others ask and command. May be used by any thread."""

    def __init__(
        self, catalogue: Catalogue, folder: StateFolder, events: Events, *, starts: bool = True
    ) -> None:
        """``starts``: pipelines of which nobody ever said what is wanted are started."""
        self._catalogue = catalogue
        self._folder = folder
        self._events = events
        self._new: Wanted = "running" if starts else "stopped"
        self._lock = threading.RLock()
        self._kept: dict[str, _Kept] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-supervisor", daemon=True)

    def start(self) -> None:
        """Look once, so that whoever asks gets an answer; then go on in a thread."""
        self.turn()
        self._thread.start()

    def stop(self) -> None:
        """Stop looking. Pipelines are left as they are."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(5 * TURN_SECONDS)

    def _run(self) -> None:
        while not self._ending.wait(TURN_SECONDS):
            try:
                self.turn()
            except Exception:
                # Of one turn: the next one looks again.
                _log.exception("a look at the pipelines failed", extra={"event": "turn_failed"})

    # -- what people want ------------------------------------------------------------------------

    def start_pipeline(self, file: PipelineFile) -> ProcessView:
        """Want it to run; starts it at once where it does not. Raises PenstockError."""
        file.require_config()
        with self._lock:
            kept = self._of(file)
            kept.gave_up, kept.due, kept.restarts, kept.error = False, None, 0, ""
            kept.backoff.start_over()
            self._look(file, kept)
            if kept.stopping and kept.process is not None:
                raise PenstockError(
                    f"Pipeline {file.name} is being stopped.",
                    remedy="Start it again once it has stopped.",
                )
            self._want(file, kept, "running")
            if kept.process is None:
                self._begin(file, kept)
            return self._view(file, kept)

    def stop_pipeline(self, file: PipelineFile, *, now: bool = False) -> ProcessView:
        """Want it to be stopped; ``now``: without waiting for the batch that is under way."""
        with self._lock:
            kept = self._of(file)
            self._want(file, kept, "stopped")
            kept.due, kept.gave_up = None, False
            self._look(file, kept)
            if kept.process is not None:
                again = kept.stopping
                if not again or now:
                    send_signal(kept.process, signal.SIGTERM)
                if now and not again:
                    # The first one asks, the second one insists; sent at once, they would be one.
                    time.sleep(_INSIST_SECONDS)
                    send_signal(kept.process, signal.SIGTERM)
                kept.stopping = True
            return self._view(file, kept)

    def keep_stopped(self, file: PipelineFile) -> None:
        """Want what does not run to stay so, before it is destroyed: one that failed would be
        started again meanwhile. Raises PenstockError where it runs.
        """
        with self._lock:
            kept = self._of(file)
            self._look(file, kept)
            if kept.process is not None:
                raise PenstockError(
                    f"Pipeline {file.name} runs as process {kept.process.pid}.",
                    remedy="Stop it first, and try again once it has stopped.",
                )
            kept.due, kept.gave_up = None, False
            self._want(file, kept, "stopped")

    def view(self, file: PipelineFile) -> ProcessView:
        with self._lock:
            return self._view(file, self._of(file))

    def log_of(self, file: PipelineFile) -> RunLog:
        with self._lock:
            return self._of(file).log

    # -- one turn --------------------------------------------------------------------------------

    def turn(self) -> None:
        """Read changed files, look at every process, start what is due."""
        self._catalogue.refresh()
        for file in self._catalogue.all():
            try:
                self._turn_of(file)
            except Exception:
                # Of one pipeline: the others are looked after, and the next turn looks again.
                _log.exception(
                    "a look at pipeline %s failed", file.name, extra={"event": "turn_failed"}
                )

    def _turn_of(self, file: PipelineFile) -> None:
        with self._lock:
            kept = self._of(file)
            self._look(file, kept)
            if file.config is not None and kept.wanted == "running":
                self._keep_running(file, kept)
            if not kept.written:
                self._note(file, kept)
            self._read_log(file, kept)
            kept.log.shorten()

    def _keep_running(self, file: PipelineFile, kept: _Kept) -> None:
        if kept.process is not None or kept.gave_up:
            return
        if kept.due is None or time.monotonic() >= kept.due:
            try:
                self._begin(file, kept)
            except PenstockError as error:
                kept.error = f"{error.message} {error.remedy}".strip()
                if isinstance(error, _CannotStart):
                    kept.due = time.monotonic() + kept.backoff.next_pause()
                    kept.restarts += 1
                else:
                    kept.gave_up = True
                self._tell(file, "start_failed", kept.error, level="error")

    def _begin(self, file: PipelineFile, kept: _Kept) -> None:
        file.require_config()
        try:
            kept.child = start_run(file.views, file.path, self._folder.pipeline_log(file.name))
        except OSError as error:
            raise _CannotStart(
                f"Pipeline {file.name} cannot be started: {error.strerror}.",
                remedy="See that the machine has memory and processes left, and that "
                f"{self._folder.path} can be written.",
            ) from None
        kept.process = ProcessIdentity.of(kept.child.pid)
        kept.began_at, kept.adopted, kept.stopping, kept.due = datetime.now(UTC), False, False, None
        self._note(file, kept)
        self._tell(file, "process_started", f"started as process {kept.child.pid}")

    def _look(self, file: PipelineFile, kept: _Kept) -> None:
        """Notice a process that ended, and one that somebody else started."""
        if kept.process is not None and not self._lives(kept):
            self._ended(file, kept)
        if file.config is None or (kept.process is not None and kept.record is not None):
            # What lives has said all that its record says.
            return
        record = running(file.config)
        if record is None:
            return
        kept.metrics = record.metrics
        if kept.process is None:
            kept.process, kept.began_at = record.process, record.began_at
            kept.adopted, kept.stopping, kept.due = True, False, None
            self._note(file, kept)
            self._tell(file, "process_adopted", f"runs as process {record.process.pid}")
        if kept.process == record.process:
            kept.record = record

    def _lives(self, kept: _Kept) -> bool:
        if kept.child is not None:
            return kept.child.poll() is None
        return kept.process is not None and kept.process.lives

    def _ended(self, file: PipelineFile, kept: _Kept) -> None:
        self._read_log(file, kept)
        code = _exit_code(file, kept)
        how = "" if code is None else f" with exit code {code}"
        said = "" if kept.adopted else kept.log.last_error
        kept.process, kept.child, kept.record, kept.metrics = None, None, None, None
        if kept.stopping or kept.wanted == "stopped":
            kept.stopping, kept.error = False, ""
            self._tell(file, "process_stopped", "stopped")
        elif code in _STOPPED:
            # Somebody else's signal: it was asked to stop, and did.
            kept.wanted = "stopped"
            self._tell(file, "process_stopped", "stopped by a signal")
        elif code == EXIT_CONFIG:
            kept.gave_up, kept.error = True, said
            self._tell(file, "process_failed", f"ended{how}: {said}", level="error")
        else:
            pause = kept.backoff.next_pause()
            kept.due, kept.restarts, kept.error = (
                time.monotonic() + pause,
                kept.restarts + 1,
                said,
            )
            text = f"ended{how}; starts again in {pause:.0f} s" + (f": {said}" if said else "")
            self._tell(file, "process_failed", text, level="error")
        self._note(file, kept)

    def _read_log(self, file: PipelineFile, kept: _Kept) -> None:
        while lines := kept.log.read():
            for line in lines:
                self._events.add(file.name, line)

    # -- what is kept ----------------------------------------------------------------------------

    def _of(self, file: PipelineFile) -> _Kept:
        kept = self._kept.get(file.name)
        if kept is None:
            kept = self._kept[file.name] = self._read(file)
        return kept

    def _read(self, file: PipelineFile) -> _Kept:
        kept = _Kept(self._new, RunLog(self._folder.pipeline_log(file.name)))
        value = read_json(self._folder.pipeline_state(file.name))
        if isinstance(value, dict):
            if value.get("wanted") in ("running", "stopped"):
                kept.wanted = value["wanted"]
            with suppress(KeyError, TypeError, ValueError):
                process = ProcessIdentity.from_json(value["process"])
                if process.lives:
                    kept.process = process
                    kept.adopted = bool(value["adopted"])
                    kept.began_at = datetime.fromisoformat(value["began_at"])
        return kept

    def _want(self, file: PipelineFile, kept: _Kept, wanted: Wanted) -> None:
        """Raises PenstockError where it cannot be written down; then nothing else is wanted."""
        before, kept.wanted = kept.wanted, wanted
        try:
            self._write(file, kept)
        except OSError as error:
            kept.wanted = before
            raise PenstockError(
                f"What is wanted of pipeline {file.name} cannot be written down: {error.strerror}.",
                remedy=f"See that {self._folder.path} can be written.",
            ) from None

    def _note(self, file: PipelineFile, kept: _Kept) -> None:
        """Write down how it stands. What cannot be written now is written by a later turn: a full
        disk keeps no pipeline from being looked after.
        """
        try:
            self._write(file, kept)
        except OSError as error:
            if kept.written:
                text = f"how it stands cannot be written down: {error.strerror}"
                self._tell(file, "state_not_written", text, level="error")
            kept.written = False

    def _write(self, file: PipelineFile, kept: _Kept) -> None:
        value = {
            "wanted": kept.wanted,
            "process": kept.process and kept.process.to_json(),
            "adopted": kept.adopted,
            "began_at": kept.began_at and kept.began_at.isoformat(),
        }
        write_json(self._folder.pipeline_state(file.name), value)
        kept.written = True

    def _view(self, file: PipelineFile, kept: _Kept) -> ProcessView:
        if kept.process is not None:
            state: ProcessState = "stopping" if kept.stopping else "running"
        elif file.config is None:
            state = "invalid"
        elif kept.gave_up:
            state = "failed"
        else:
            state = "waiting" if kept.due is not None else "stopped"
        next_start = None
        if state == "waiting" and kept.due is not None:
            left = max(0.0, kept.due - time.monotonic())
            next_start = datetime.fromtimestamp(time.time() + left, UTC)
        return ProcessView(
            state,
            kept.wanted,
            None if kept.process is None else kept.process.pid,
            None if kept.process is None else kept.began_at,
            kept.adopted and kept.process is not None,
            kept.metrics,
            kept.restarts,
            next_start,
            file.problem.message if file.problem is not None else kept.error,
        )

    def _tell(self, file: PipelineFile, event: str, text: str, *, level: str = "info") -> None:
        self._events.tell(file.name, event, text, level=level)
        _log.info("pipeline %s: %s", file.name, text, extra={"event": event})


def _exit_code(file: PipelineFile, kept: _Kept) -> int | None:
    """What the process ended with; None where nobody can say, as of one that was killed."""
    if kept.child is not None:
        return kept.child.returncode
    if kept.record is None or file.config is None or running(file.config) is not None:
        # A run that started since has cleared the records of those that ended.
        return None
    return left_code(kept.record)

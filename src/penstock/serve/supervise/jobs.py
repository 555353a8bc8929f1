"""Long operations (check, verify, init, snapshot, destroy) as processes, with their progress.

Each has a folder with its process, its output, what it said and how it ended. A server that starts
anew finds them there, and those that still run go on. How one ended is its own word: one that was
killed has failed, whoever looks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from penstock.model.errors import PenstockError
from penstock.operations.process_identity import ProcessIdentity
from penstock.serve.catalogue import PipelineFile
from penstock.serve.state_folder import read_json, write_json
from penstock.serve.supervise.pipeline_process import send_signal, start_detached

JobKind = Literal["check", "verify", "init", "snapshot", "destroy"]
JobState = Literal["running", "succeeded", "failed", "cancelled"]

# Those that say what they found as one JSON document.
_REPORTING = ("check", "verify")
_MOST_KEPT = 20
_MOST_RUNNING = 4
_MOST_OUTPUT = 8 * 2**20
_MOST_SAID = 64 * 2**10

# What the process of an operation (penstock.cli.as_job) and the server have agreed on.
GO = b"go\n"
ENDED = "ended.json"

_KILLED = "It ended without a word: it was killed, or the machine went down."
_START_AGAIN = "What it had done stays done. See how the pipeline stands, and start it again."


@dataclass(frozen=True)
class JobView:
    """One operation. ``report`` is what it found; ``said`` what it printed, for people.

    ``passed``: whether what was checked or compared is as it should be; None where nothing was.
    ``destination``: the one of several that it is about, empty where it is about all.
    """

    id: str
    pipeline: str
    kind: JobKind
    state: JobState
    started_by: str
    began_at: str
    done: int | None = None
    of: int | None = None
    passed: bool | None = None
    report: Any = None
    said: str = ""
    error: str = ""
    remedy: str = ""
    destination: str = ""

    def without_rows(self) -> JobView:
        """The same without values of rows, for who may see the state alone: what a comparison found
        has the keys of rows that differ.
        """
        if self.kind != "verify" or not isinstance(self.report, dict):
            return self
        tables = [{**table, "differences": []} for table in self.report.get("tables", ())]
        return replace(self, report={**self.report, "tables": tables})


class Jobs:
    """May be used by any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        # What has ended stays as it is. Without reports, which can be large.
        self._ended: dict[str, JobView] = {}

    def start(
        self, file: PipelineFile, kind: JobKind, options: Mapping[str, int | float], who: str
    ) -> JobView:
        """Start one. Of each kind, pipeline and destination one runs at a time: asking again gives
        that one.

        Raises PenstockError where too many run.
        """
        file.require_config()
        with self._lock:
            running = [job for job in self._all() if job.state == "running"]
            for job in running:
                if (job.pipeline, job.destination, job.kind) == (file.name, file.destination, kind):
                    return job
            if len(running) >= _MOST_RUNNING:
                raise PenstockError(
                    f"{len(running)} operations are under way, which is as many as may be.",
                    remedy="Wait until one of them has ended.",
                )
            self._forget_old()
            job_id = uuid.uuid4().hex
            try:
                self._begin(job_id, file, kind, options, who)
            except OSError as error:
                raise PenstockError(
                    f"{kind} of pipeline {file.name} cannot be started: {error.strerror}.",
                    remedy=f"See that {self._folder} can be written, and that the machine has "
                    "memory and processes left.",
                ) from None
            view = self._view(job_id)
        if view is None:
            raise PenstockError(f"{kind} of pipeline {file.name} could not be started.")
        return view

    def _begin(
        self,
        job_id: str,
        file: PipelineFile,
        kind: JobKind,
        options: Mapping[str, int | float],
        who: str,
    ) -> None:
        """It waits until it is written down. Where that fails, it ends without a beginning."""
        folder = self._folder / job_id
        folder.mkdir(mode=0o700)
        process = [sys.executable, "-m", "penstock.cli.as_job", str(folder)]
        child = start_detached(
            [*process, *_arguments(kind, file, options)],
            folder / "out",
            folder / "err",
            stdin=subprocess.PIPE,
        )
        self._children[job_id] = child
        record = {
            "pipeline": file.name,
            "destination": file.destination,
            "kind": kind,
            "started_by": who,
            "began_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "process": ProcessIdentity.of(child.pid).to_json(),
        }
        # One that has died already says so by its end.
        with suppress(BrokenPipeError), child.stdin or nullcontext() as to_child:
            write_json(folder / "job.json", record)
            if to_child is not None:
                to_child.write(GO)

    def get(self, pipeline: str, job_id: str) -> JobView | None:
        with self._lock:
            view = self._view(job_id)
        return view if view is not None and view.pipeline == pipeline else None

    def of(self, pipeline: str) -> list[JobView]:
        """Newest first, without their reports: ``get`` has that of one."""
        with self._lock:
            return [job for job in self._all() if job.pipeline == pipeline]

    def cancel(self, pipeline: str, job_id: str) -> JobView | None:
        """Ask it to end. One that has ended stays as it is."""
        with self._lock:
            view, record = self._view(job_id), self._record(job_id)
            if view is None or record is None or view.pipeline != pipeline:
                return None
            if view.state == "running":
                write_json(self._folder / job_id / "job.json", {**record, "cancelled": True})
                send_signal(ProcessIdentity.from_json(record["process"]), signal.SIGINT)
            return self._view(job_id)

    def _all(self) -> list[JobView]:
        found = [self._at_a_glance(path.name) for path in self._folder.iterdir() if path.is_dir()]
        jobs = [job for job in found if job is not None]
        return sorted(jobs, key=lambda job: job.began_at, reverse=True)

    def _at_a_glance(self, job_id: str) -> JobView | None:
        """Without its report. Those who look ask every second: one that has ended is read once."""
        known = self._ended.get(job_id)
        if known is not None:
            return known
        view = self._view(job_id)
        if view is None:
            return None
        view = replace(view, report=None, said="")
        if view.state != "running":
            self._ended[job_id] = view
        return view

    def _record(self, job_id: str) -> dict[str, Any] | None:
        # It becomes a path: nothing but what we gave out is looked for.
        if not re.fullmatch(r"[0-9a-f]{32}", job_id):
            return None
        record = read_json(self._folder / job_id / "job.json")
        return record if isinstance(record, dict) else None

    def _view(self, job_id: str) -> JobView | None:
        record = self._record(job_id)
        if record is None:
            return None
        folder = self._folder / job_id
        lives = self._lives(job_id, record)
        # First looked at, then read: what it said last is not missed.
        said = _tail(folder / "err", _MOST_SAID)
        error, remedy = _error_in(said)
        report = None if lives or record["kind"] not in _REPORTING else _report(folder / "out")
        passed = _passed(record["kind"], report)
        code = _exit_code(folder)
        if lives:
            state: JobState = "running"
        elif record.get("cancelled") and report is None and code != 0:
            state = "cancelled"
        elif record["kind"] in _REPORTING:
            state = "succeeded" if report is not None else "failed"
        else:
            state = "succeeded" if code == 0 else "failed"
        if state == "failed" and code is None and not error:
            error, remedy = _KILLED, _START_AGAIN
        done, of = _progress(said)
        return JobView(
            job_id,
            record["pipeline"],
            record["kind"],
            state,
            record["started_by"],
            record["began_at"],
            done,
            of,
            passed,
            report,
            _tail(folder / "out", _MOST_SAID) if record["kind"] not in _REPORTING else "",
            error,
            remedy,
            record.get("destination", ""),
        )

    def _lives(self, job_id: str, record: dict[str, Any]) -> bool:
        child = self._children.get(job_id)
        if child is not None:
            return child.poll() is None
        with suppress(KeyError, TypeError, ValueError):
            return ProcessIdentity.from_json(record["process"]).lives
        return False

    def _forget_old(self) -> None:
        jobs = self._all()
        old = [job.id for job in jobs if job.state != "running"][_MOST_KEPT:]
        # A server that died before it had written one down had not let it begin, either.
        known = {job.id for job in jobs}
        old += [path.name for path in self._folder.iterdir() if path.name not in known]
        for job_id in old:
            shutil.rmtree(self._folder / job_id, ignore_errors=True)
            self._children.pop(job_id, None)
            self._ended.pop(job_id, None)


def _arguments(kind: JobKind, file: PipelineFile, options: Mapping[str, int | float]) -> list[str]:
    command = ["--log-format", "json", kind, str(file.path)]
    if file.destination:
        command += ["--only", file.destination]
    if kind in _REPORTING:
        command.append("--json")
    if kind == "destroy":
        command.append("--yes")
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    return command


def _report(path: Path) -> Any:
    with suppress(OSError, ValueError):
        return json.loads(path.read_bytes()[:_MOST_OUTPUT])
    return None


def _passed(kind: str, report: Any) -> bool | None:
    with suppress(KeyError, TypeError):
        if kind == "verify":
            return bool(report["equal"])
        if kind == "check":
            return all(result["status"] != "failed" for result in report)
    return None


def _exit_code(folder: Path) -> int | None:
    """What it wrote down at its end; None where it could not."""
    value = read_json(folder / ENDED)
    code = value.get("exit_code") if isinstance(value, dict) else None
    return code if isinstance(code, int) else None


def _tail(path: Path, most: int) -> str:
    with suppress(OSError), path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most))
        return file.read(most).decode(errors="replace")
    return ""


def _error_in(said: str) -> tuple[str, str]:
    found = re.search(r"^Error: (.*?)(?:^What to do: (.*))?\Z", said, re.DOTALL | re.MULTILINE)
    return (found[1].strip(), (found[2] or "").strip()) if found else ("", "")


def _progress(said: str) -> tuple[int | None, int | None]:
    for line in reversed(said.splitlines()):
        with suppress(ValueError, KeyError, TypeError):
            value = json.loads(line)
            if value["event"] == "compared":
                return int(value["done"]), int(value["of"])
    return None, None

"""What a running pipeline leaves for others to find it: its process, and where its metrics are.

One small file a process, in the folder that processes of one machine share. Whoever reads it looks
whether the process lives. One that ends writes its exit code into it, for whoever looks after it
and is not its parent; one that was killed cannot. The next run clears such files away.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.operations.exit_codes import exit_code_of
from penstock.operations.process_identity import ProcessIdentity

if TYPE_CHECKING:
    from penstock.config import PipelineConfig


@dataclass(frozen=True)
class RunRecord:
    """One `penstock run`. ``metrics`` is a URL, None where none are served. ``whole``: it runs all
    destinations of the file. ``ended``: it has written its exit code. ``place`` is the record's own
    file.
    """

    process: ProcessIdentity
    file: str
    metrics: str | None
    began_at: datetime
    whole: bool
    ended: bool
    place: Path


@contextmanager
def recorded_run(
    config: PipelineConfig, file: Path, metrics: str | None, *, whole: bool = True
) -> Iterator[Callable[[], None]]:
    """Leave the record, and in it what the block ended with. `penstock run` calls it. Gives what
    notes an end in order, for a run that is told to end at once and cannot finish the block.

    A folder that cannot be written ends no pipeline: then nobody finds it, and that is all.
    """
    # Machines and containers that share the folder give their processes the same numbers.
    record = _folder(config) / f"{uuid.uuid4().hex}.json"
    said = {
        **ProcessIdentity.own().to_json(),
        "file": str(file.resolve()),
        "metrics": metrics,
        "began_at": datetime.now(UTC).isoformat(),
        "whole": whole,
    }
    with suppress(OSError):
        # The change log's folder may not be there yet: it is its owner's alone, too.
        record.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        record.parent.mkdir(mode=0o700, exist_ok=True)
        _forget_ended(record.parent)
        _write_whole(record, said)

    def end(code: int = 0) -> None:
        with suppress(OSError):
            _write_whole(record, {**said, "exit_code": code})

    try:
        yield end
    except Exception as error:
        end(exit_code_of(error))
        raise
    else:
        end()


def running(config: PipelineConfig) -> RunRecord | None:
    """The run of the whole pipeline that lives on this machine; the oldest where there are several,
    since a second one only waits for the first one's lock.
    """
    found = []
    for path in _folder(config).glob("*.json"):
        record = _read(path)
        if record is not None and record.whole and not record.ended and record.process.lives:
            found.append(record)
    return min(found, key=lambda record: record.began_at, default=None)


def left_code(record: RunRecord) -> int | None:
    """What a run that does not live any more ended with: 0 in order, None where it was killed, or
    where somebody took the record away. For who knows it from when it lived, and is not its parent.
    """
    try:
        value = json.loads(record.place.read_text())
    except (OSError, ValueError):
        return None
    code = value.get("exit_code") if isinstance(value, dict) else None
    return code if isinstance(code, int) else None


def _folder(config: PipelineConfig) -> Path:
    return config.change_log.local_folder / "runs"


def _forget_ended(folder: Path) -> None:
    for path in folder.glob("*.json"):
        record = _read(path)
        if record is None or (
            record.process.is_here and (record.ended or not record.process.lives)
        ):
            path.unlink(missing_ok=True)


def _read(path: Path) -> RunRecord | None:
    """None for a file that is gone, or that is not one of ours."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        value = json.loads(path.read_text())
        return RunRecord(
            ProcessIdentity.from_json(value),
            value["file"],
            value["metrics"],
            datetime.fromisoformat(value["began_at"]),
            value.get("whole", True) is True,
            "exit_code" in value,
            path,
        )
    return None


def _write_whole(path: Path, value: dict[str, Any]) -> None:
    """So that nobody reads half of it."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(value))
    new.replace(path)

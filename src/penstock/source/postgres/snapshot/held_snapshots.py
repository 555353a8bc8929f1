"""The snapshots that a pipeline's copies read under: several at a time, each with its holder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from penstock.config.models import PipelineConfig
from penstock.source.postgres.snapshot.held_snapshot import HeldSnapshot, SnapshotKeeper

_FOLDER = "snapshots"
_KEEP_SECONDS = 1.0


def folder_of(config: PipelineConfig) -> Path:
    """Where a destination's snapshots are: those of another one are nothing to it."""
    folder = config.change_log.local_folder / _FOLDER
    if config.delivery == config.name:
        return folder
    return folder / f"of_{config.destination_name}"


class HeldSnapshots:
    """Numbered folders beside the log, one a snapshot; a later run finds them again."""

    def __init__(
        self,
        config: PipelineConfig,
        file: Path,
        max_age: float,
        check: Callable[[], None],
    ) -> None:
        self._config = config
        self._file = file
        self._max_age = max_age
        self._check = check
        self._folder = folder_of(config)
        self._keepers: dict[int, SnapshotKeeper] = {}
        self._next_keep = 0.0

    def found(self) -> dict[int, HeldSnapshot]:
        found = {}
        for folder in sorted(self._folder.glob("[0-9]*")):
            number = int(folder.name)
            keeper = self._keeper(number)
            held = keeper.current()
            if held is None:
                self._remove(number)
            else:
                found[number] = held
                self._keepers[number] = keeper
        return found

    def take(self) -> tuple[int, HeldSnapshot]:
        number = max(self._keepers, default=0) + 1
        keeper = self._keeper(number)
        held = keeper.take(check=self._check)
        self._keepers[number] = keeper
        return number, held

    def keep(self) -> None:
        if time.monotonic() < self._next_keep:
            return
        self._next_keep = time.monotonic() + _KEEP_SECONDS
        for keeper in self._keepers.values():
            keeper.keep()

    def release(self, number: int) -> None:
        keeper = self._keepers.pop(number, None)
        if keeper is not None:
            keeper.release()
        self._remove(number)

    def _remove(self, number: int) -> None:
        shutil.rmtree(self._folder / str(number), ignore_errors=True)

    def _keeper(self, number: int) -> SnapshotKeeper:
        return SnapshotKeeper(
            self._config,
            self._file,
            folder=self._folder / str(number),
            max_age=self._max_age,
        )

"""The snapshots that a pipeline's copies read under: several at a time, each with its holder."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from pathlib import Path

from penstock.config.models import PipelineConfig
from penstock.source.postgres.snapshot.held_snapshot import SnapshotKeeper, snapshot_folder
from penstock.source.postgres.snapshot.snapshot_record import HeldSnapshot, SnapshotRecord

_FOLDER = "snapshots"
_NAME = re.compile(r"[0-9a-f]+")


def folder_of(config: PipelineConfig) -> str:
    """Where a destination's snapshots are, beside the log: those of another one are nothing to
    it.
    """
    if config.delivery == config.name:
        return _FOLDER
    return f"{_FOLDER}/of_{config.destination_name}"


def forget_snapshots(config: PipelineConfig) -> None:
    """Remove what is written down of a destination's snapshots: their holders end."""
    SnapshotRecord(snapshot_folder(config, folder_of(config))).remove()


class HeldSnapshots:
    """A folder beside the log for each; a later run, on any machine, finds them again.

    Their names are made up, so that two drivers never write to one: whoever has lost the pipeline's
    lock may not know it yet. Numbers are this run's own.
    """

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

    def found(self) -> dict[int, HeldSnapshot]:
        found = {}
        for name in sorted(snapshot_folder(self._config, self._folder).entries()):
            # Other destinations have folders of their own in that of the first.
            if _NAME.fullmatch(name) is None:
                continue
            keeper = self._keeper(name)
            held = keeper.current()
            if held is None:
                keeper.record.remove()
            else:
                found[self._add(keeper)] = held
        self.keep()
        return found

    def take(self) -> tuple[int, HeldSnapshot]:
        keeper = self._keeper(uuid.uuid4().hex)
        held = keeper.take(check=self._check)
        return self._add(keeper), held

    def keep(self) -> None:
        for keeper in self._keepers.values():
            keeper.keep()

    def release(self, number: int) -> None:
        keeper = self._keepers.pop(number, None)
        if keeper is not None:
            keeper.release()

    def _add(self, keeper: SnapshotKeeper) -> int:
        number = max(self._keepers, default=0) + 1
        self._keepers[number] = keeper
        return number

    def _keeper(self, name: str) -> SnapshotKeeper:
        return SnapshotKeeper(
            self._config, self._file, f"{self._folder}/{name}", max_age=self._max_age
        )

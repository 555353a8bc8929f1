"""Which pipelines are served: the files that were named, and those in the folders that were."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.config import PipelineConfig, load_deliveries
from penstock.config.models import MAX_NAME_LENGTH
from penstock.model.errors import ConfigError, PenstockError

_SUFFIXES = (".yaml", ".yml")
_Stamp = tuple[int, int]


@dataclass(frozen=True)
class PipelineFile:
    """One pipeline file. ``config`` is None where it cannot be used; ``problem`` then says why."""

    name: str
    path: Path
    config: PipelineConfig | None
    problem: PenstockError | None = None

    def require_config(self) -> PipelineConfig:
        """Raises ConfigError where the file cannot be used."""
        if self.config is None:
            raise self.problem or ConfigError(f"{self.path} cannot be used.")
        return self.config


class Catalogue:
    """Reads files again when they change. May be used by any thread."""

    def __init__(self, places: Sequence[Path]) -> None:
        """Raises ConfigError where one of the places is not there."""
        self._places = [place.absolute() for place in places]
        self._lock = threading.Lock()
        self._stamps: dict[Path, _Stamp] = {}
        self._known: dict[Path, PipelineFile] = {}
        self._files: dict[str, PipelineFile] = {}
        for place in self._places:
            if not place.exists():
                raise ConfigError(
                    f"There is neither a pipeline file nor a folder at {place}.",
                    remedy="Name pipeline files, or a folder with files that end in .yaml.",
                )
        self.refresh()

    def refresh(self) -> None:
        """Look which files there are, and read those that are new or changed."""
        with self._lock:
            paths = [path for place in self._places for path in _files_of(place)]
            stamps = {path: stamp for path in paths if (stamp := _stamp(path)) is not None}
            if stamps == self._stamps:
                return
            known = {
                path: self._known[path] if self._stamps.get(path) == stamp else _read(path)
                for path, stamp in stamps.items()
            }
            found: dict[str, PipelineFile] = {}
            for file in known.values():
                served = _second(file, found[file.name]) if file.name in found else file
                found[served.name] = served
            self._files, self._known, self._stamps = found, known, stamps

    def all(self) -> list[PipelineFile]:
        """By name."""
        return [self._files[name] for name in sorted(self._files)]

    def get(self, name: str) -> PipelineFile | None:
        return self._files.get(name)


def _files_of(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(path for path in place.iterdir() if path.suffix in _SUFFIXES)
    return [place]


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _read(path: Path) -> PipelineFile:
    try:
        config, *others = load_deliveries(path)
        if others:
            raise ConfigError(
                f"{path} has several destinations, and `penstock serve` shows pipelines with one.",
                remedy=f"Use the command line for it: `penstock run {path}`, `penstock status`.",
            )
    except PenstockError as error:
        return PipelineFile(_name_of(path), path, None, error)
    return PipelineFile(config.name, path, config)


def _second(file: PipelineFile, first: PipelineFile) -> PipelineFile:
    """A file whose pipeline is called like another one: neither is left out silently."""
    problem = ConfigError(
        f"{file.path} describes pipeline {file.name}, and so does {first.path}.",
        remedy="Give one of them another name, or serve one of them alone.",
    )
    name = f"{_name_of(file.path)[: MAX_NAME_LENGTH - 2]}_2"
    return PipelineFile(name, file.path, None, problem)


def _name_of(path: Path) -> str:
    return re.sub(r"[^a-z0-9_]", "_", path.stem.lower())[:MAX_NAME_LENGTH] or "file"

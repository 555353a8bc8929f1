"""Which pipelines are served: the files that were named, and those in the folders that were."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.config import PipelineConfig, load_deliveries
from penstock.config.load import choose
from penstock.config.models import MAX_NAME_LENGTH
from penstock.model.errors import ConfigError, PenstockError

_SUFFIXES = (".yaml", ".yml")
_Stamp = tuple[int, int]


@dataclass(frozen=True)
class PipelineFile:
    """One pipeline file. ``views`` are its destinations, each with what it sees of the file; there
    are none where the file cannot be used, and ``problem`` says why. ``destination`` is the one of
    several that somebody chose, whose view is then the only one; empty before that.
    """

    name: str
    path: Path
    views: tuple[PipelineConfig, ...]
    problem: PenstockError | None = None
    destination: str = ""

    @property
    def config(self) -> PipelineConfig | None:
        """For what all destinations share, or for the one that was chosen."""
        return self.views[0] if self.views else None

    def only(self, destination: str | None) -> PipelineFile:
        """The same for one destination. Raises ConfigError where there is none of that name, or
        where there are several and nobody said which.
        """
        self.require_config()
        view = choose(self.views, destination, str(self.path), "destination")
        return replace(self, views=(view,), destination=view.destination_name)

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
        views = load_deliveries(path)
    except PenstockError as error:
        return PipelineFile(_name_of(path), path, (), error)
    return PipelineFile(views[0].name, path, views)


def _second(file: PipelineFile, first: PipelineFile) -> PipelineFile:
    """A file whose pipeline is called like another one: neither is left out silently."""
    problem = ConfigError(
        f"{file.path} describes pipeline {file.name}, and so does {first.path}.",
        remedy="Give one of them another name, or serve one of them alone.",
    )
    name = f"{_name_of(file.path)[: MAX_NAME_LENGTH - 2]}_2"
    return PipelineFile(name, file.path, (), problem)


def _name_of(path: Path) -> str:
    return re.sub(r"[^a-z0-9_]", "_", path.stem.lower())[:MAX_NAME_LENGTH] or "file"

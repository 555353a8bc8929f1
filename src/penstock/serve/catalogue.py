"""Which pipelines are served: the files that were named, and those in the folders that were."""

from __future__ import annotations

import re
import threading
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from penstock.config import PipelineConfig, load_deliveries
from penstock.config.load import choose
from penstock.config.models import MAX_NAME_LENGTH
from penstock.model.errors import ConfigError, PenstockError

_SUFFIXES = (".yaml", ".yml")
_NAME_LINE = re.compile(
    r"""^["']?name["']?:[ \t]+["']?([a-z0-9_]+)["']?[ \t]*(?:#.*)?$""", re.MULTILINE
)
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
            try:
                paths = [path for place in self._places for path in _files_of(place)]
            except OSError:
                # A folder that cannot be listed for a while: what is known goes on.
                return
            stamps = {path: stamp for path in paths if (stamp := _stamp(path)) is not None}
            if stamps == self._stamps:
                return
            known = {
                path: self._known[path] if self._stamps.get(path) == stamp else self._read(path)
                for path, stamp in stamps.items()
            }
            self._files, self._known, self._stamps = self._named(known), known, stamps

    def _read(self, path: Path) -> PipelineFile:
        """A file that cannot be used keeps its pipeline's name: its run may live, and is to be
        seen and stopped under it.
        """
        try:
            views = load_deliveries(path)
        except PenstockError as error:
            problem: PenstockError = error
        except Exception as error:
            problem = ConfigError(f"{path} cannot be read: {error}")
        else:
            return PipelineFile(views[0].name, path, views)
        before = self._known.get(path)
        name = _name_in(path) or (before.name if before is not None else _name_of(path))
        return PipelineFile(name, path, (), problem)

    def _named(self, known: Mapping[Path, PipelineFile]) -> dict[str, PipelineFile]:
        """Each file under a name of its own. Who can be used comes before who cannot, and who had
        the name comes before who is new: a broken or copied file takes no pipeline's name away.
        """

        def place(file: PipelineFile) -> tuple[bool, bool]:
            had = self._files.get(file.name)
            return not file.views, had is None or had.path != file.path

        found: dict[str, PipelineFile] = {}
        others = []
        for file in sorted(known.values(), key=place):
            if file.name in found:
                others.append(file)
            else:
                found[file.name] = file
        for file in others:
            name = _free_name(file.path, found)
            found[name] = replace(_second(file, found[file.name]), name=name)
        return found

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


def _second(file: PipelineFile, first: PipelineFile) -> PipelineFile:
    """A file whose pipeline is called like another one: neither is left out silently."""
    if file.problem is not None:
        return file
    problem = ConfigError(
        f"{file.path} describes pipeline {file.name}, and so does {first.path}.",
        remedy="Give one of them another name, or serve one of them alone.",
    )
    return PipelineFile(file.name, file.path, (), problem)


def _free_name(path: Path, taken: Container[str]) -> str:
    stem = _name_of(path)
    if stem not in taken:
        return stem
    numbers = (f"_{number}" for number in count(2))
    return next(
        name for end in numbers if (name := stem[: MAX_NAME_LENGTH - len(end)] + end) not in taken
    )


def _name_in(path: Path) -> str:
    """The name that a file gives its pipeline, though the rest of it cannot be used."""
    with suppress(OSError, UnicodeDecodeError):
        found = _NAME_LINE.search(path.read_text())
        return found[1] if found and len(found[1]) <= MAX_NAME_LENGTH else ""
    return ""


def _name_of(path: Path) -> str:
    return re.sub(r"[^a-z0-9_]", "_", path.stem.lower())[:MAX_NAME_LENGTH] or "file"

"""Manifests: numbered files, each the commit of one batch. The newest says how far the data is.

A number is taken by creating its file, which only one driver can do. That fences: a driver that
slept finds its next number taken by the one that took over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.destination.files.layout import ControlFolder
from penstock.destination.files.tree import Tree, tree_at
from penstock.model.errors import DestinationError
from penstock.model.lsn import Frontier
from penstock.model.source_identity import SourceIdentity
from penstock.model.watermarks import Watermarks

VERSION = 1
# As many are kept behind the newest, for people who look; nothing reads them again.
_KEPT = 16
_NAME = re.compile(r"(\d{12}|[1-9]\d{12,})\.json", re.ASCII)


@dataclass(frozen=True)
class StagedFile:
    """One data file: its name in the staging folder, and its place below the root."""

    staged: str
    final: str
    rows: int
    bytes: int
    first: str
    """Positions of its first and last change, as ``16/B374D848+3``."""
    last: str


@dataclass(frozen=True)
class Manifest:
    """One commit: the files that it added and the frontier that it reached.

    ``epoch`` names the driver. Its first manifest adds no files: it takes the destination over.
    ``source`` says of which source the frontier is; manifests of older versions do not.
    """

    number: int
    epoch: str
    frontier: Frontier | None
    files: tuple[StagedFile, ...]
    source: SourceIdentity | None = None

    @property
    def watermarks(self) -> Watermarks | None:
        return None if self.frontier is None else Watermarks(self.frontier, source=self.source)

    def to_bytes(self) -> bytes:
        value = {
            "version": VERSION,
            "number": self.number,
            "epoch": self.epoch,
            "frontier": None if self.frontier is None else self.frontier.to_json(),
            "files": files_to_json(self.files),
            "source": None if self.source is None else self.source.to_json(),
        }
        return json.dumps(value, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> Manifest:
        try:
            value = json.loads(data)
            if value["version"] != VERSION:
                raise DestinationError(
                    f"destination files: manifest {path} has version {value['version']}; this "
                    f"Penstock reads version {VERSION}",
                    remedy="run the Penstock version that wrote it",
                )
            frontier, source = value["frontier"], value.get("source")
            return cls(
                value["number"],
                value["epoch"],
                None if frontier is None else Frontier.from_json(frontier),
                files_from_json(value["files"]),
                None if source is None else SourceIdentity.from_json(source),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DestinationError(
                f"destination files: manifest {path} is damaged ({type(error).__name__}: {error})",
                remedy="restore it from a backup; it says which files were delivered, so nothing "
                "can be written safely without it",
            ) from None


def files_to_json(files: Sequence[StagedFile]) -> list[dict[str, Any]]:
    return [asdict(file) for file in files]


def files_from_json(value: Sequence[dict[str, Any]]) -> tuple[StagedFile, ...]:
    return tuple(StagedFile(**file) for file in value)


class Manifests:
    """The manifests of one pipeline."""

    def __init__(self, tree: Tree, pipeline: str) -> None:
        self._tree = tree
        self._folder = ControlFolder(pipeline).manifests

    def newest(self) -> Manifest | None:
        while True:
            numbers = self._numbers()
            if not numbers:
                return None
            name = self._name(max(numbers))
            data = self._tree.read(name)
            if data is not None:
                return Manifest.from_bytes(data, f"{self._tree.path}/{name}")
            # Many commits later it is one of the old ones that were removed.

    def create(self, manifest: Manifest) -> bool:
        """Commit a manifest; False where a later driver has taken its number, or a higher one."""
        name = self._name(manifest.number)
        if not self._tree.create(name, manifest.to_bytes()):
            return False
        # The number of a driver that slept for long may be free again, since old manifests are
        # removed. Only the highest number counts, so a lower one was never a commit.
        if max(self._numbers()) > manifest.number:
            self._tree.remove([name])
            return False
        if manifest.number % _KEPT == 0:
            self._prune(manifest.number - _KEPT)
        return True

    def _prune(self, upto: int) -> None:
        """Nothing is lost with them: the files that they name are in place."""
        self._tree.remove(self._name(number) for number in self._numbers() if number < upto)

    def _numbers(self) -> list[int]:
        names = self._tree.names(self._folder)
        return [int(found[1]) for name in names if (found := _NAME.fullmatch(name))]

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.json"


def read_manifest(
    path: str | Path, pipeline: str, options: Mapping[str, str] | None = None
) -> Manifest | None:
    """The newest manifest of a pipeline below ``path``, a folder or a URL with the store's
    ``options``; None before its first run.
    """
    return Manifests(tree_at(str(path), options), pipeline).newest()

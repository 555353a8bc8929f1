"""Which data files belong to the last commit, for readers who want neither less nor more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.destination.files.layout import ControlFolder, last_commit_lsn
from penstock.destination.files.manifest import Manifest, read_manifest


def list_files(path: str | Path, pipeline: str, folder: str | None = None) -> list[Path]:
    """The files that one commit and all before it delivered, and the rows that were copied.

    They are in order of their names within a folder, which is position order. ``folder`` limits
    them to one table (``table_folder(schema, name)``) or to ``MESSAGES``. A file of the newest
    commit that is not in its place yet is listed where it waits, in the staging folder; while the
    pipeline runs, it may move from there at any time.
    """
    root = Path(path)
    manifest = read_manifest(root, pipeline)
    if manifest is None:
        return []
    upto = 0 if manifest.frontier is None else manifest.frontier.commit_lsn
    found = {name: root / name for name in _in_place(root, pipeline, folder, upto)}
    found |= _waiting(root, pipeline, folder, manifest)
    return [found[name] for name in sorted(found)]


def _in_place(root: Path, pipeline: str, folder: str | None, upto: int) -> Iterator[str]:
    """Files reach their place only after their commit; those of later commits are left out."""
    for file in root.glob(f"{folder or '*'}/commit_date=*/*"):
        last = last_commit_lsn(file.name, pipeline)
        if last is not None and last <= upto:
            yield file.relative_to(root).as_posix()


def _waiting(root: Path, pipeline: str, folder: str | None, manifest: Manifest) -> dict[str, Path]:
    staging = ControlFolder(root, pipeline).staging
    waiting = {}
    for file in manifest.files:
        if folder is not None and not file.final.startswith(f"{folder}/"):
            continue
        if (staging / file.staged).exists():
            waiting[file.final] = staging / file.staged
        elif (root / file.final).exists():
            waiting[file.final] = root / file.final
    return waiting

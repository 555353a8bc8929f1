"""Which data files belong to the last commit, for readers who want neither less nor more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.destination.files.layout import ControlFolder, last_commit_lsn
from penstock.destination.files.manifest import Manifest, read_manifest
from penstock.destination.files.tree import Tree, tree_at


def list_files(path: str | Path, pipeline: str, folder: str | None = None) -> list[Path]:
    """The files that one commit and all before it delivered, and the rows that were copied.

    They are in order of their names within a folder, which is position order. ``folder`` limits
    them to one table (``table_folder(schema, name)``) or to ``MESSAGES``. A file of the newest
    commit that is not in its place yet is listed where it waits, in the staging folder; while the
    pipeline runs, it may move from there at any time.
    """
    return [Path(path) / name for name in list_names(path, pipeline, folder)]


def list_names(
    path: str | Path,
    pipeline: str,
    folder: str | None = None,
    options: Mapping[str, str] | None = None,
) -> list[str]:
    """The same as names below ``path``, which may also be a URL with the store's ``options``."""
    manifest = read_manifest(path, pipeline, options)
    if manifest is None:
        return []
    tree = tree_at(str(path), options)
    upto = 0 if manifest.frontier is None else manifest.frontier.commit_lsn
    # Files reach their place only after their commit; those of later commits are left out.
    found = {
        name: name
        for name in tree.data_files(folder)
        if (last := last_commit_lsn(name.rpartition("/")[2], pipeline)) is not None and last <= upto
    }
    found |= _waiting(tree, pipeline, folder, manifest)
    return [found[name] for name in sorted(found)]


def _waiting(tree: Tree, pipeline: str, folder: str | None, manifest: Manifest) -> dict[str, str]:
    staging = ControlFolder(pipeline).staging
    waiting = {}
    for file in manifest.files:
        if folder is not None and not file.final.startswith(f"{folder}/"):
            continue
        staged = f"{staging}/{file.staged}"
        # It may be moved between two looks. In a bucket a late write may bring the staged one back.
        for name in (file.final, staged, file.final):
            if tree.exists(name):
                waiting[file.final] = name
                break
    return waiting

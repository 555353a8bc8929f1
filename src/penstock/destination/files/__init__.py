"""``files``: every change once, in Parquet or NDJSON files. See docs/destinations/files.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy import attributes

if TYPE_CHECKING:
    from penstock.destination.files.committed_files import list_files
    from penstock.destination.files.destination import FilesDestination
    from penstock.destination.files.folding import FoldedTable, fold, folded_source
    from penstock.destination.files.layout import MESSAGES, table_folder
    from penstock.destination.files.manifest import Manifest, StagedFile, read_manifest
    from penstock.destination.files.options import FilesOptions

__all__ = [
    "MESSAGES",
    "FilesDestination",
    "FilesOptions",
    "FoldedTable",
    "Manifest",
    "StagedFile",
    "fold",
    "folded_source",
    "list_files",
    "read_manifest",
    "table_folder",
]

_PLACES = {
    "committed_files": ("list_files",),
    "destination": ("FilesDestination",),
    "folding": ("FoldedTable", "fold", "folded_source"),
    "layout": ("MESSAGES", "table_folder"),
    "manifest": ("Manifest", "StagedFile", "read_manifest"),
    "options": ("FilesOptions",),
}
__getattr__ = attributes(
    __name__, {name: f"{__name__}.{place}" for place, names in _PLACES.items() for name in names}
)

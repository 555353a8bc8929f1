"""``files``: every change once, in Parquet or NDJSON files. See docs/destinations/files.md."""

from penstock.destination.files.committed_files import list_files
from penstock.destination.files.destination import FilesDestination
from penstock.destination.files.fold import FoldedTable, fold, folded_source
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

"""Names of indexes and fields. What the server does not allow in one becomes ``_``."""

from __future__ import annotations

import hashlib
import re

from penstock.destination.search.options import SearchOptions

# An index has at most 255 bytes; the number of its generation stands behind the name.
_LONGEST = 200
_ILLEGAL = re.compile(r'[\\/*?"<>| ,#:\x00-\x1f]')
_NOT_FIRST = "_-+."

META = "_penstock"
"""The field that holds what is ours in a document: its position."""

_OF_THE_SERVER = frozenset(
    {
        *("_id", "_index", "_source", "_type", "_routing", "_ignored", "_field_names", "_size"),
        *("_seq_no", "_version", "_primary_term", "_doc_count", "_meta", "_nested_path", "_tier"),
        *("_data_stream_timestamp", "_recovery_source", "_feature", "_ignored_source", META),
    }
)


def table_index(options: SearchOptions, pipeline: str, schema: str, table: str) -> str:
    """The name under which readers find a table."""
    return _index(options.index.format(pipeline=pipeline, schema=schema, table=table))


def ledger_index(options: SearchOptions, pipeline: str) -> str:
    """The index of a pipeline's notes."""
    return _index(options.ledger_index.format(pipeline=pipeline))


def dead_letter_index(options: SearchOptions, pipeline: str) -> str:
    """The index of documents that were refused."""
    return _index(options.dead_letter_index.format(pipeline=pipeline))


def field_name(column: str) -> str:
    """The field of a column. A dot makes a field of an object, unless a part is blank."""
    has_blank = not all(piece.strip() for piece in column.split("."))
    name = column.replace(".", "_") if has_blank else column
    return f"{name}_" if name in _OF_THE_SERVER or not name.strip() else name


def _index(text: str) -> str:
    name = _ILLEGAL.sub("_", text).lower()
    if not name or name[0] in _NOT_FIRST:
        name = f"x{name}"
    if len(name.encode()) > _LONGEST:
        cut = name.encode()[: _LONGEST - 17].decode(errors="ignore")
        name = f"{cut}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return name

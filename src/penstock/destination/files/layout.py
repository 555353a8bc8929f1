"""How folders and files are named. No I/O."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime

from penstock.model.lsn import Position

MESSAGES = "_messages"
"""The folder of logical messages. No table's folder has this name: each has a dot in it."""

_CONTROL = "_penstock"
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
# File systems allow 255 bytes. Two names of Postgres can be longer once they are encoded.
_LONGEST = 200
_DAY_MICROS = 86_400_000_000


def encode_name(name: str) -> str:
    """A name of any characters as a part of a path: no dot, no slash, nothing to quote."""
    return "".join(chr(b) if b in _PLAIN else f"%{b:02X}" for b in name.encode())


def table_folder(schema: str, name: str) -> str:
    """The folder of a table; two tables never share one."""
    folder = f"{encode_name(schema)}.{encode_name(name)}"
    if folder.startswith("_"):
        folder = f"%5F{folder[1:]}"  # Spark and pyarrow take a leading _ for hidden
    return _shortened(folder)


def date_folder(commit_micros: int | None) -> str:
    """The partition of a commit time (UTC). Copied rows have none, which Hive's name says."""
    if commit_micros is None:
        return "commit_date=__HIVE_DEFAULT_PARTITION__"
    day = datetime.fromtimestamp(commit_micros // _DAY_MICROS * 86_400, UTC)
    return f"commit_date={day:%Y-%m-%d}"


def data_file(first: Position, last: Position, pipeline: str, unique: str, suffix: str) -> str:
    """Names sort by position. ``unique`` keeps apart what is written twice after a crash."""
    return f"{position_name(first)}-{position_name(last)}-{encode_name(pipeline)}-{unique}{suffix}"


def schema_file(position: Position, table: int) -> str:
    """What a schema change of a table is called. Names sort by position."""
    return f"{position_name(position)}-{table}.json"


def chunk_file(chunk: str, pipeline: str, suffix: str) -> str:
    """The same chunk has the same name, so that it stands once."""
    return f"read-{_shortened(encode_name(chunk), 120)}-{encode_name(pipeline)}{suffix}"


def earlier_chunk_file(name: str, pipeline: str, unique: str) -> str | None:
    """What the file of a chunk is called once the table is copied anew: its old name is for the
    chunk that comes then. None if it is not such a file, or called so already.
    """
    # No encoded name has a dot, so that this one is never a chunk's.
    match = re.fullmatch(rf"(read-[^.]+)(-{re.escape(encode_name(pipeline))}\.\w+)", name)
    return None if match is None else f"{match[1]}.{unique}{match[2]}"


def last_commit_lsn(name: str, pipeline: str) -> int | None:
    """The commit LSN of the last change in a file; 0 for copied rows; None if it is not ours."""
    owner = re.escape(encode_name(pipeline))
    if re.fullmatch(rf"read-.+-{owner}\.(parquet|ndjson)", name):
        return 0
    changes = rf"[0-9A-F]{{24}}-([0-9A-F]{{16}})[0-9A-F]{{8}}-{owner}-[0-9a-f]+\.(parquet|ndjson)"
    match = re.fullmatch(changes, name)
    return None if match is None else int(match[1], 16)


class ControlFolder:
    """Where a pipeline keeps what is not data, hidden from Spark and pyarrow by its name."""

    def __init__(self, pipeline: str) -> None:
        base = f"{_CONTROL}/{encode_name(pipeline)}"
        self.staging = f"{base}/staging"
        self.manifests = f"{base}/manifests"
        self.schemas = f"{base}/schemas"


def position_name(position: Position) -> str:
    """Digits that sort as positions do."""
    return f"{position.commit_lsn:016X}{position.ordinal:08X}"


def _shortened(name: str, longest: int = _LONGEST) -> str:
    if len(name) <= longest:
        return name
    return f"{name[: longest - 17]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"

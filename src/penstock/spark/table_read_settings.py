"""The options of a table read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from penstock.config import ConnectionUrl, load_deliveries
from penstock.config.quantities import parse_duration, parse_size
from penstock.model.errors import ConfigError
from penstock.model.table_name import TableName
from penstock.source.postgres.snapshot.held_snapshot import (
    GRACE_SECONDS,
    IDLE_SECONDS,
    MAX_AGE_SECONDS,
)
from penstock.spark.typed_rows import parse_table

DEFAULT_CHUNK_BYTES = 64 * 1024 * 1024

_OPTIONS = (
    "url",
    "pipeline",
    "table",
    "columns",
    "where",
    "chunkbytes",
    "snapshotage",
    "snapshotidle",
    "snapshotgrace",
)
_COLUMN = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^",\s]+))\s*(?:,|$)')


@dataclass(frozen=True)
class TableReadSettings:
    """What the options say. ``columns`` is None for all."""

    url: ConnectionUrl
    table: TableName
    columns: tuple[str, ...] | None
    where: str | None
    chunk_bytes: int
    snapshot_age: float
    snapshot_idle: float
    snapshot_grace: float

    @classmethod
    def of(cls, given: dict[str, str]) -> TableReadSettings:
        options = {key.lower(): value for key, value in given.items()}
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise ConfigError(
                f"a table read of the penstock source has no option {unknown[0]!r}; "
                f"it has {', '.join(_OPTIONS)}"
            )
        if "table" not in options:
            raise ConfigError(
                "the penstock source needs the option table: schema.table, the table to read"
            )
        columns = options.get("columns")
        return cls(
            url=_url(options),
            table=TableName(*parse_table(options["table"])),
            columns=None if columns is None else _column_names(columns),
            where=options.get("where"),
            chunk_bytes=_size(options),
            snapshot_age=_duration(options, "snapshotage", MAX_AGE_SECONDS),
            snapshot_idle=_duration(options, "snapshotidle", IDLE_SECONDS),
            snapshot_grace=_duration(options, "snapshotgrace", GRACE_SECONDS),
        )


def _url(options: dict[str, str]) -> ConnectionUrl:
    if "url" not in options:
        file = Path(options["pipeline"])
        # Of the destination nothing is needed, not even that it is right.
        return load_deliveries(file, validate_destination=lambda *_: None)[0].source.url
    if "pipeline" in options:
        raise ConfigError("the penstock source takes url or pipeline, not both")
    try:
        return ConnectionUrl(options["url"])
    except ValueError as error:
        # Without the text, which may hold a password.
        raise ConfigError(
            f"option url of the penstock source: {error}",
            remedy="Write postgresql://user:password@host:5432/database; special characters in a "
            "password are written as %40 for @, %3F for ?, %2F for / and %23 for #.",
        ) from None


def _column_names(text: str) -> tuple[str, ...]:
    names: list[str] = []
    at = 0
    while at < len(text) or not names:
        match = _COLUMN.match(text, at)
        if match is None:
            raise ConfigError(
                f"option columns of the penstock source: {text!r} is no list of names",
                remedy='Separate them by commas; quote those with other signs: id,"full name".',
            )
        names.append(match[2] or match[1].replace('""', '"'))
        at = match.end()
    return tuple(names)


def _size(options: dict[str, str]) -> int:
    text = options.get("chunkbytes", str(DEFAULT_CHUNK_BYTES))
    try:
        size = parse_size(text)
    except ValueError:
        size = 0
    if size < 1:
        raise ConfigError(
            f"option chunkBytes of the penstock source: {text!r} is no size, such as 64MiB"
        )
    return size


def _duration(options: dict[str, str], name: str, default: float) -> float:
    text = options.get(name, str(default))
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0
    if seconds <= 0:
        raise ConfigError(
            f"option {name} of the penstock source: {text!r} is no duration, such as 10m"
        )
    return seconds

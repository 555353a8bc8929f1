"""Data files back into changes, with values that can be compared. For fold.py."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.decode.flat_columns import flat_table
from penstock.destination.files.layout import ControlFolder
from penstock.model.errors import DestinationError
from penstock.model.lsn import Position, parse_lsn
from penstock.model.table_schema import PgType, TableSchema

Values = dict[str, Any]
"""Values by column; a column that was not sent is not there."""

_JSON_TYPES = (114, 3802)
# Values are taken as they are written: an int of Python has some 4300 digits at most.
_DECODER = json.JSONDecoder(parse_int=str)
_SPACE = " \t\r\n"


@dataclass(frozen=True)
class StoredChange:
    """One change of one table. ``values`` is the row after it; for a delete, what it was."""

    position: Position
    op: str
    table: TableSchema
    values: Values
    old: Values | None


def read_changes(
    file: Path, root: Path, pipeline: str, schema: str, table: str
) -> list[StoredChange]:
    """The changes in a file; DestinationError unless they stand in position order."""
    schemas = root / ControlFolder(pipeline).schemas
    if file.suffix == ".parquet":
        found = list(_parquet_changes(file, schemas))
    else:
        found = list(_ndjson_changes(file, schemas, schema, table))
    positions = [change.position for change in found]
    if positions != sorted(positions):
        raise DestinationError(f"destination files: the changes in {file} are out of order")
    return found


def values_of(text: pa.Array, table: TableSchema, column: int, file_format: str) -> list[Any]:
    """Postgres text as the values that a file of this format gives back."""
    if file_format == "parquet":
        typed = flat_table(table).columns[column].decode(text)
        values = _comparable(typed.values)
        if typed.unrepresentable is not None:
            for row in np.flatnonzero(typed.unrepresentable.to_numpy(zero_copy_only=False)):
                values[row] = text[int(row)].as_py()
        return values
    texts: list[str | None] = text.to_pylist()
    if _base_oid(table.columns[column].type) in _JSON_TYPES:
        return [None if value in (None, "null") else _one_line(str(value)) for value in texts]
    return texts


def _parquet_changes(file: Path, schemas: Path) -> Iterator[StoredChange]:
    data = pq.ParquetFile(file).read()
    versions = data.column("_schema_version").unique().to_pylist()
    if len(versions) != 1:
        raise DestinationError(f"destination files: {file} mixes versions of a table")
    table = _schema(schemas / f"{versions[0]}.json")
    columns = [_comparable(data.column(i).combine_chunks()) for i in range(len(table.columns))]
    names = [column.name for column in table.columns]
    keys = {column.name for column in table.columns if column.is_key}
    old = _old_values(table, data.column("_old").to_pylist())
    stamps = zip(
        *(data.column(name).to_pylist() for name in ("_op", "_commit_lsn", "_ordinal")),
        *(data.column(name).to_pylist() for name in ("_unset", "_raw")),
        strict=True,
    )
    for row, (op, commit_lsn, ordinal, unset, raw) in enumerate(stamps):
        values: Values = {}
        if op != "truncate":
            left_out = set(unset)
            values = {
                name: column[row]
                for name, column in zip(names, columns, strict=True)
                if name not in left_out and (op != "delete" or name in keys)
            }
            values.update(raw)
        yield StoredChange(Position(commit_lsn, ordinal), op, table, values, old[row])


def _old_values(table: TableSchema, maps: Sequence[Any]) -> list[Values | None]:
    """The texts of ``_old`` in the form of the columns, so that rows can be found by them."""
    images: list[Values | None] = [None if pairs is None else dict(pairs) for pairs in maps]
    for number, column in enumerate(table.columns):
        having = [image for image in images if image is not None and column.name in image]
        texts = pa.array([image[column.name] for image in having], pa.string())
        for image, value in zip(having, values_of(texts, table, number, "parquet"), strict=True):
            image[column.name] = value
    return images


def _ndjson_changes(file: Path, schemas: Path, schema: str, name: str) -> Iterator[StoredChange]:
    for line in file.read_text(encoding="utf-8").split("\n")[:-1]:
        members = _members(line)
        op = json.loads(members["op"])
        place = json.loads(members["position"])
        position = Position(parse_lsn(place["commit_lsn"]), place["ordinal"])
        if op == "truncate":
            tables = json.loads(members["tables"])
            versions = [t for t in tables if (t["schema"], t["table"]) == (schema, name)]
            table = _schema(schemas / f"{versions[0]['schema_version']}.json")
            yield StoredChange(position, op, table, {}, None)
            continue
        table = _schema(schemas / f"{json.loads(members['schema_version'])}.json")
        old = _texts(members["old"], table)
        new = _texts(members["new"], table)
        yield StoredChange(position, op, table, (old if new is None else new) or {}, old)


def _texts(token: str, table: TableSchema) -> Values | None:
    """An object's values as Postgres text."""
    if token == "null":  # noqa: S105 (a JSON token)
        return None
    types = {column.name: _base_oid(column.type) for column in table.columns}
    return {name: _text(value, types[name]) for name, value in _members(token).items()}


def _text(token: str, oid: int) -> str | None:
    if token == "null":  # noqa: S105 (a JSON token)
        return None
    if oid in _JSON_TYPES:
        return token
    if token.startswith('"'):
        text: str = json.loads(token)
        return text
    return {"true": "t", "false": "f"}.get(token, token)


def _members(text: str) -> dict[str, str]:
    """The members of a JSON object, each value as it is written."""
    members: dict[str, str] = {}
    at = 1
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at + (text[at] == ","))
        start = at + 1
        while text[start] in _SPACE:  # a json value may begin with white space
            start += 1
        _, at = _DECODER.raw_decode(text, start)
        end = at
        while text[end] in _SPACE:
            end += 1
        members[name] = text[start:at]
        at = end
    return members


def _comparable(values: pa.Array) -> list[Any]:
    """Python values that are equal where the Arrow values are, whatever their range."""
    kind = values.type
    if pa.types.is_list(kind):
        items = _comparable(values.values)
        offsets = values.offsets.to_pylist()
        valid = values.is_valid().to_pylist()
        return [
            tuple(items[offsets[row] : offsets[row + 1]]) if valid[row] else None
            for row in range(len(values))
        ]
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        width, unit = (
            (pa.int64(), "M8[us]") if pa.types.is_timestamp(kind) else (pa.int32(), "M8[D]")
        )
        numbers = values.view(width).fill_null(0).to_numpy().astype(np.int64)
        texts = np.datetime_as_string(numbers.view(unit))
        valid = values.is_valid().to_pylist()
        return [str(text) if there else None for text, there in zip(texts, valid, strict=True)]
    found: list[Any] = values.to_pylist()
    if pa.types.is_floating(kind):
        return ["NaN" if value is not None and math.isnan(value) else value for value in found]
    return found


def _base_oid(pg_type: PgType) -> int:
    while pg_type.kind == "domain" and pg_type.inner is not None:
        pg_type = pg_type.inner
    return pg_type.oid if pg_type.kind == "base" else 0


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ").strip(_SPACE)


@lru_cache(maxsize=1024)
def _schema(path: Path) -> TableSchema:
    return TableSchema.from_json(json.loads(path.read_bytes()))

"""Which field of an index a column of Postgres becomes. docs/destinations/search.md has the table.

Every value stays in ``_source`` exactly as it is; a mapping says how it can be searched. Values
that a field cannot hold (infinity, dates before Christ, NaN) are ignored by the index alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.destination.search.names import META, field_name
from penstock.destination.search.options import SearchOptions
from penstock.model.errors import TableRefused
from penstock.model.table_definition import TableDefinition, TypeDefinition, TypeName

# Lucene's longest term has 32766 bytes, a character up to four.
_KEYWORD = {"type": "keyword", "ignore_above": 8191}
_STORED = {"type": "keyword", "index": False, "doc_values": False}
_TEXT = {"type": "text", "fields": {"keyword": _KEYWORD}}
_FLATTENED = {"type": "flattened", "ignore_above": 8191, "depth_limit": 500}
"""Elasticsearch refuses a document with a longer value or, by default, more than 20 levels. One of
500 levels needs less than its stack.
"""
_DATE = {"type": "date", "ignore_malformed": True}
_NUMBERS = {
    "smallint": "short",
    "integer": "integer",
    "bigint": "long",
    "oid": "long",
    "xid": "long",
    "cid": "long",
    "real": "float",
    "double precision": "double",
    "numeric": "double",
}
_OTHERS: Mapping[str, Mapping[str, Any]] = {
    "boolean": {"type": "boolean"},
    "text": _TEXT,
    "xml": _TEXT,
    "date": {**_DATE, "format": "strict_date"},
    "timestamp": {**_DATE, "format": "strict_date_optional_time_nanos"},
    "inet": {"type": "ip", "ignore_malformed": True},
    "point": {"type": "geo_point", "ignore_malformed": True},
    "bytea": _STORED,
    "int4range": {"type": "integer_range"},
    "int8range": {"type": "long_range"},
    "numrange": {"type": "double_range"},
    "daterange": {"type": "date_range", "format": "strict_date"},
    "tsrange": {"type": "date_range", "format": "strict_date_optional_time_nanos"},
    "tstzrange": {"type": "date_range", "format": "strict_date_optional_time_nanos"},
}


def index_body(
    table: TableDefinition, options: SearchOptions, *, is_opensearch: bool
) -> dict[str, Any]:
    """What an index for a table is made with, but for what is of its generation alone.

    Raises TableRefused where two columns would be one field.
    """
    columns = [column for column in table.columns if column.is_delivered]
    if len({field_name(column.name) for column in columns}) < len(columns):
        raise TableRefused(
            f"table {table.qualified_name}: names of columns differ in what a field cannot have",
            remedy="rename one, or leave it out: filter.columns in the pipeline file",
            table=table.oid,
        )
    types = {(each.schema, each.name): each for each in table.types}
    own = options.mappings.get(table.qualified_name, {})
    fields = {
        field_name(column.name): own.get(column.name)
        or _field(column.type, types, options, is_opensearch)
        for column in columns
    }
    fields[META] = {
        "properties": {
            "lsn": {"type": "long", "doc_values": False},
            "ordinal": {"type": "long", "index": False, "doc_values": False},
        }
    }
    return {
        "settings": {
            "index.mapping.total_fields.limit": max(1000, 4 * len(columns) + 100),
            **options.settings,
            "index.number_of_shards": options.shards,
            "index.gc_deletes": f"{int(options.gc_deletes)}s",
        },
        "mappings": {"dynamic": False, "properties": fields},
    }


def _field(
    of: TypeName,
    types: Mapping[tuple[str, str], TypeDefinition],
    options: SearchOptions,
    is_opensearch: bool,
) -> Mapping[str, Any]:
    """The field of a type; an array has that of its elements."""
    if of.is_user_defined:
        found = types.get((of.schema, of.name))
        if found is None or found.kind != "domain" or found.base is None:
            return _KEYWORD
        return _field(found.base, types, options, is_opensearch)
    if of.name in ("json", "jsonb"):
        if options.json_as == "flat":
            return {"type": "flat_object"} if is_opensearch else _FLATTENED
        if options.json_as == "object":
            return {"type": "object", "dynamic": True}
        return {"type": "object", "enabled": False}
    if of.name in _NUMBERS:
        return {"type": _NUMBERS[of.name], "ignore_malformed": True}
    return _OTHERS.get("timestamp" if of.name.startswith("timestamp") else of.name, _KEYWORD)

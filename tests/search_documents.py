"""What a search server holds of tables, for whoever compares it with rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import psycopg
from psycopg import sql

from penstock.destination.families.target import Target
from penstock.destination.search.client import SearchClient, part
from penstock.destination.search.destination import SearchDestination
from penstock.destination.search.exact_json import read_exactly
from penstock.destination.search.names import META, field_name, table_index
from penstock.destination.search.options import SearchOptions
from penstock.destination.search.scan import scan


def shown_documents(options: SearchOptions, name: str) -> list[dict[str, Any]]:
    """Those that readers find under a table's name, without what is ours. A field that a document
    does not have is null: it is older than the field.
    """
    client = SearchClient(options)
    ((_, about),) = client.call("GET", f"{part(name)}/_mapping", doing="looking").body.items()
    fields = [field for field in about["mappings"]["properties"] if field != META]
    found = [hit["_source"] for hits in scan(client, name) for hit in hits]
    for document in found:
        del document[META]
    return [{**dict.fromkeys(fields), **document} for document in found]


def written_rows(
    destination: SearchDestination, schema: str, table: str
) -> list[dict[str, str | None]]:
    """Rows of whole numbers and texts in the generation that is written, whether or not readers
    see it already.
    """
    client = SearchClient(destination.options)
    notes = destination.ledger.read("table/").values()
    targets = [Target.from_text(note) for note in notes]
    (target,) = (t for t in targets if (t.schema, t.name) == (schema, table))
    name = table_index(destination.options, destination.pipeline, schema, table)
    answer = client.call("GET", f"_alias/{part(name)}.g*.write", doing="looking")
    (index,) = answer.body
    found = [hit["_source"] for hits in scan(client, index) for hit in hits]
    return [{name: _text(row.get(field_name(name))) for name in target.columns} for row in found]


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def expect_same_rows(url: str, options: SearchOptions, pipeline: str, tables: Sequence[str]) -> int:
    """Fail unless the documents of each table of the schema public are the source's rows, as
    Postgres itself writes them as JSON. Returns how many there are.
    """
    count = 0
    for table in tables:
        here = source_documents(url, table)
        count += len(here)
        name = table_index(options, pipeline, "public", table)
        there = sorted(shown(document) for document in shown_documents(options, name))
        missing = [row for row in here if row not in set(there)]
        more = [row for row in there if row not in set(here)]
        assert here == there, (
            f"{table}: {len(here)} rows, {len(there)} documents; rows that are missing: "
            f"{missing[:3]}; documents that are more: {more[:3]}"
        )
    return count


def source_documents(url: str, table: str) -> list[str]:
    """The rows of a table, as texts that are the same for the same values."""
    with psycopg.connect(url) as conn:
        conn.execute("SET timezone = 'UTC'")
        found = conn.execute(
            sql.SQL("SELECT to_jsonb(t)::text FROM {} t").format(sql.Identifier("public", table))
        ).fetchall()
    return sorted(shown(read_exactly(text)) for (text,) in found)


_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?)(?:Z|\+00:00)")


def shown(document: Any) -> str:
    """A document as a text that is the same for the same values."""
    return repr(_plain(document))


def _plain(value: Any) -> Any:
    """One form for all that means the same: exact numbers are texts in documents, times end in Z,
    and what is no JSON object is wrapped in one.
    """
    match value:
        case dict():
            if set(value) == {"value"}:
                return _plain(value["value"])
            return sorted((name, _plain(member)) for name, member in value.items())
        case list():
            return [_plain(element) for element in value]
        case bool() | None:
            return value
        case int():
            return str(value)
        case Decimal():
            return format(value, "f")
        case str() if found := _TIME.fullmatch(value):
            return f"{found[1]}Z"
    return value

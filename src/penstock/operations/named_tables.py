"""Tables as people name them, in a command or a request, and as they are shown to them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.model.errors import ConfigError, StoreError, UnknownTable
from penstock.model.lsn import format_lsn
from penstock.model.table_name import TableName
from penstock.model.table_state import Catchup, SyncDone, TableState

if TYPE_CHECKING:
    from penstock.config import PipelineConfig
    from penstock.store import PostgresStore, Store

TAKEN_UP = (
    "A running pipeline takes this up within seconds; otherwise the next `penstock run` does."
)


def parse_names(texts: Iterable[str]) -> list[TableName]:
    """Each table once, in the order given."""
    from penstock.config.table_patterns import split_name
    from penstock.model.table_name import TableName

    try:
        return list(dict.fromkeys(TableName(*split_name(text)) for text in texts))
    except ValueError as error:
        raise ConfigError(
            f"{error}.", remedy="Write schema.table, such as public.orders."
        ) from None


@contextmanager
def recorded_store(config: PipelineConfig) -> Iterator[Store]:
    """The pipeline's store, loaded; nothing is created for a pipeline that never ran."""
    with existing_store(config) as store:
        store.open()
        yield store


@contextmanager
def existing_store(config: PipelineConfig) -> Iterator[PostgresStore]:
    """The same, with nothing loaded yet: of ten thousand tables, that takes its time."""
    from penstock.store import pipeline_store

    with pipeline_store(config) as store:
        if not store.exists():
            raise StoreError(
                f"Pipeline {config.delivery} has recorded no tables yet.",
                remedy="`penstock run` records them when it starts.",
            )
        yield store


def find_tables(store: Store, texts: Iterable[str]) -> list[int]:
    """The tables of these names that the pipeline has recorded; raises where it lacks one."""
    found = []
    for name in parse_names(texts):
        table = store.find_table(*name)
        if table is None or store.get_table_state(table) is None:
            known = sorted(shown_name(store, table) for table in store.get_table_states())
            raise unknown_table(store.pipeline, name, known)
        found.append(table)
    return found


def unknown_table(pipeline: str, name: TableName, known: Sequence[str]) -> UnknownTable:
    return UnknownTable(
        f"Pipeline {pipeline} has no table {name}; nothing was changed.",
        remedy=f"It has {some(known)}." if known else "It has recorded no tables yet.",
    )


def some(names: Sequence[str], most: int = 10) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def shown_name(store: Store, table: int) -> str:
    definition = store.get_table_schema(table)
    return quoted(definition.schema, definition.name) if definition else f"oid {table}"


def quoted(schema: str, name: str) -> str:
    """A name that can be given back to a command: odd ones in quotes."""
    return ".".join(
        part if re.fullmatch(r'[^."\s]+', part) else '"' + part.replace('"', '""') + '"'
        for part in (schema, name)
    )


def phase_text(state: TableState | None) -> str:
    if state is None:
        return "without a state"
    return (
        f"{state.phase} {format_lsn(state.lsn)}"
        if isinstance(state, Catchup | SyncDone)
        else state.phase
    )

"""Tables added and removed: exceptions from the patterns, by name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.model.errors import CheckFailed, SourceError
from penstock.operations.named_tables import TAKEN_UP, parse_names, quoted
from penstock.operations.outcome import Outcome, TableOutcome

if TYPE_CHECKING:
    from penstock.config import PipelineConfig
    from penstock.config.table_patterns import Rule
    from penstock.model.table_name import TableName
    from penstock.source.postgres.catalogue.tables import CatalogueTable
    from penstock.source.postgres.subscription.table_selection import TableSelection
    from penstock.store import Store

    Rules = dict[tuple[str, str], Rule]

_ON_REMOVE = {
    "keep": "Its rows stay at the destination as they are (source.tables.on_remove: keep).",
    "truncate": "Its rows at the destination are removed (source.tables.on_remove: truncate).",
    "drop": "It is dropped at the destination (source.tables.on_remove: drop).",
}


def add_tables(config: PipelineConfig, file: Path, tables: Sequence[str]) -> Outcome:
    """Follow tables that the patterns do not match, or that were removed, for all destinations.

    The rule is kept in the store and wins over the patterns. Raises where one of the tables cannot
    be followed; then nothing is changed.
    """
    from penstock.config import load_deliveries
    from penstock.store import pipeline_store

    names = parse_names(tables)
    catalogue = _read_catalogue(config)
    with pipeline_store(config) as store:
        store.open()
        rules = store.get_rules()
        before = _select(config, catalogue, rules)
        after = _select(config, catalogue, {**rules, **dict.fromkeys(names, "add")})
        new = [name for name in names if not _is_followed(before, name)]
        _require_known(names, catalogue)
        for name in new:
            _require_fit(name, after, config)
        _write(store, config, new, "add")
    for view in load_deliveries(file) if config.is_one_of_many else (config,):
        if view.source.copy_rows is not None:
            _copy_anew(view, new)
    first = (
        "Changes from then on arrive; rows that exist are not copied (source.copy: false)."
        if config.source.copy_rows is None
        else "The rows that exist are copied first."
    )
    return Outcome(
        tuple(
            TableOutcome(
                quoted(*name), "is to be followed" if name in new else "is followed already"
            )
            for name in names
        ),
        f"{TAKEN_UP} {first}" if new else "",
    )


def remove_tables(config: PipelineConfig, _file: Path, tables: Sequence[str]) -> Outcome:
    """Follow tables no longer, also where the patterns match them.

    The rule is kept in the store. What becomes of the table at the destination is said by
    source.tables.on_remove. Raises for a table that the source has not; then nothing is changed.
    """
    from penstock.store import pipeline_store

    names = parse_names(tables)
    catalogue = _read_catalogue(config)
    with pipeline_store(config) as store:
        store.open()
        selection = _select(config, catalogue, store.get_rules())
        followed = [name for name in names if _is_followed(selection, name)]
        for name in names:
            if name not in followed:
                _require_known([name], catalogue)
                _refuse_partition(name, selection, "cannot be left out alone")
        _write(store, config, followed, "remove")
    return Outcome(
        tuple(
            TableOutcome(
                quoted(*name), "is to be left out" if name in followed else "is not followed anyway"
            )
            for name in names
        ),
        f"{TAKEN_UP} {_ON_REMOVE[config.source.tables.on_remove]}" if followed else "",
    )


def _read_catalogue(config: PipelineConfig) -> list[CatalogueTable]:
    from penstock.source.postgres.catalogue.tables import read_tables
    from penstock.source.postgres.connect import connect

    with connect(config.source.url, application_name=f"penstock {config.name} tables") as conn:
        return read_tables(conn)


def _select(
    config: PipelineConfig, catalogue: list[CatalogueTable], rules: Rules
) -> TableSelection:
    from penstock.source.postgres.subscription.table_selection import select_tables

    return select_tables(catalogue, config.source.tables.patterns.with_rules(rules))


def _is_followed(selection: TableSelection, name: TableName) -> bool:
    return any(table.table_name == name for table in selection.published)


def _require_known(names: list[TableName], catalogue: list[CatalogueTable]) -> None:
    known = {quoted(*table.table_name): table.table_name for table in catalogue}
    for name in names:
        if name not in known.values():
            close = difflib.get_close_matches(quoted(*name), known, n=3, cutoff=0.85)
            raise SourceError(
                f"The source has no table {quoted(*name)}; nothing was changed.",
                remedy=f"Did you mean {' or '.join(close)}?"
                if close
                else "Check schema and name; upper and lower case count.",
            )


def _require_fit(name: TableName, selection: TableSelection, config: PipelineConfig) -> None:
    """Raise where a table could not be published, or would make the application fail."""
    from penstock.source.postgres.subscription.table_selection import why_not_added

    _refuse_partition(name, selection, "is followed already")
    for table in selection.skipped:
        if table.table_name == name:
            raise CheckFailed(
                f"{quoted(*name)} is {table.why_not_published}, which Postgres cannot publish; "
                "nothing was changed.",
                remedy="Follow the table that its rows come from.",
            )
    reasons = why_not_added(selection, copied=config.source.copy_rows is not None)
    for table in selection.published:
        if table.table_name == name and table.oid in reasons:
            raise CheckFailed(
                f"{quoted(*name)} cannot be followed: {reasons[table.oid]}; nothing was changed.",
                remedy="docs/source_setup.md says what a table needs. For one without identity, "
                "source.tables.insert_only follows inserts and truncates alone.",
            )


def _refuse_partition(name: TableName, selection: TableSelection, so: str) -> None:
    """Raise for a partition that comes with its root."""
    roots = {table.oid: table.table_name for table in selection.published}
    for table in selection.through_root:
        if table.table_name == name:
            root = next(roots[oid] for oid in table.ancestors if oid in roots)
            raise CheckFailed(
                f"{quoted(*name)} is a partition of {quoted(*root)}, with which it comes: it {so}; "
                "nothing was changed.",
                remedy=f"Add or remove {quoted(*root)} as a whole.",
            )


def _copy_anew(config: PipelineConfig, names: list[TableName]) -> None:
    """For tables whose removal nobody has noticed yet: they are to be as if somebody had."""
    from penstock.store import pipeline_store

    with pipeline_store(config) as store:
        store.open()
        kept = store.get_table_states()
        found = [store.find_table(*name) for name in names]
        store.set_wishes({table: "resync" for table in found if table in kept})


def _write(store: Store, config: PipelineConfig, names: list[TableName], rule: Rule) -> None:
    """Keep the rule for these tables, or take the opposite one back where that is enough."""
    patterns = config.source.tables.patterns
    store.set_rules(
        {name: None if patterns.matches(*name) == (rule == "add") else rule for name in names}
    )

"""From the catalogue and the patterns to the tables of a publication. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.config.table_patterns import TablePatterns
from penstock.source.postgres.catalogue.tables import CatalogueTable


@dataclass(frozen=True)
class TableSelection:
    """What the patterns mean in one database.

    ``published`` goes into the publication. ``through_root`` are the leaf partitions that come with
    a published root. ``skipped`` match, but Postgres cannot publish them. ``excluded_partitions``
    match an exclude pattern and are followed nevertheless, because their root is. ``insert_only``
    are those of ``published`` whose updates and deletes are not followed, and ``idle_insert_only``
    the texts of insert_only patterns that match none of ``published``.
    """

    published: tuple[CatalogueTable, ...]
    through_root: tuple[CatalogueTable, ...]
    skipped: tuple[CatalogueTable, ...]
    excluded_partitions: tuple[CatalogueTable, ...]
    insert_only: tuple[CatalogueTable, ...]
    idle_insert_only: tuple[str, ...]

    @property
    def needing_identity(self) -> tuple[CatalogueTable, ...]:
        """The tables whose replica identity counts.

        Postgres asks the leaf when a row changes, and describes the row's key by the root. It asks
        nothing of a table whose updates and deletes are not published.
        """
        exempt = {table.oid for table in self.insert_only}
        return tuple(
            table
            for table in self.published + self.through_root
            if not exempt & {table.oid, *table.ancestors}
        )

    def why_unidentified(self, table: CatalogueTable) -> str:
        """Why rows of one of these tables have no identity that can be relied on, else "".

        What Postgres sends of an old row is the leaf's identity, under the root's name for it:
        below a root with FULL, the rest of the row would be taken for nulls.
        """
        if table.missing_identity or table.replica_identity == "f":
            return table.missing_identity
        full = {root.oid for root in self.published if root.replica_identity == "f"}
        return "not FULL, as its root is" if full & set(table.ancestors) else ""


def why_not_added(selection: TableSelection, *, copied: bool) -> dict[int, str]:
    """The tables of ``published`` that must not be added to a publication, with the reason, by oid.

    Publishing a table without identity makes the application's UPDATE and DELETE fail. Of a
    partitioned table every leaf counts. ``copied`` says that their rows are to be read, too.
    """
    need = {table.oid for table in selection.needing_identity}
    reasons: dict[int, str] = {}
    for table in selection.published:
        if not table.owned:
            reasons[table.oid] = f"only its owner {table.owner} may publish it"
    for table in selection.published + selection.through_root:
        if table.oid in need and (lacking := selection.why_unidentified(table)):
            why = f"its rows cannot be identified ({lacking})"
        elif copied and not table.selectable:
            why = "the role may not read it"
        else:
            continue
        reasons.setdefault(table.oid, why)
        for root in table.ancestors:
            reasons.setdefault(root, f"its partition {table.table_name}: {why}")
    return {table.oid: reasons[table.oid] for table in selection.published if table.oid in reasons}


def why_withdrawn(selection: TableSelection) -> dict[int, str]:
    """The tables of ``published`` that must not stay in a publication, with the reason, by oid.

    Somebody has changed them, and their UPDATE and DELETE fail in the application since.
    """
    reasons: dict[int, str] = {}
    for table in selection.needing_identity:
        if table.generated_identity:
            why = f"its rows cannot be identified ({table.missing_identity})"
            reasons[table.oid] = why
            for root in table.ancestors:
                reasons.setdefault(root, f"its partition {table.table_name}: {why}")
    return {table.oid: reasons[table.oid] for table in selection.published if table.oid in reasons}


def select_tables(tables: Iterable[CatalogueTable], patterns: TablePatterns) -> TableSelection:
    """A partition is published by itself only where none of its ancestors is; where one of them is
    excluded, only if it is asked for by its name.
    """
    tables = list(tables)
    excluded = {table.oid for table in tables if patterns.excluded(table.schema, table.name)}
    matching = [
        table
        for table in tables
        if patterns.matches(table.schema, table.name)
        and (not excluded & set(table.ancestors) or patterns.names(table.schema, table.name))
    ]
    candidates = {table.oid: table for table in matching if table.can_be_published}
    published = [t for t in candidates.values() if not candidates.keys() & set(t.ancestors)]
    roots = {table.oid for table in published if table.kind == "p"}
    below = [table for table in tables if roots & set(table.ancestors)]
    insert_only = {
        pattern.text: [table for table in published if pattern.matches(table.schema, table.name)]
        for pattern in patterns.insert_only
    }
    inserts = {table.oid for matched in insert_only.values() for table in matched}
    return TableSelection(
        published=tuple(published),
        through_root=tuple(table for table in below if table.kind == "r"),
        skipped=tuple(table for table in matching if not table.can_be_published),
        excluded_partitions=tuple(t for t in below if patterns.excluded(t.schema, t.name)),
        insert_only=tuple(table for table in published if table.oid in inserts),
        idle_insert_only=tuple(text for text, matched in insert_only.items() if not matched),
    )

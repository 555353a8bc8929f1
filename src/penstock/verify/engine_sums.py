"""Tables of the source against an engine that counts and sums its own: no row leaves either side.

A row is the md5s of its columns' texts, in a form that both sides can make (``summed_as``), and its
own md5 is what it adds to the table's sum. Neither order nor place of rows matters.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from psycopg import sql

from penstock.destination.contract import Destination
from penstock.destination.families.target import Target
from penstock.destination.protocols import BEGINNING, SummedAs, TableSum, Verifiable
from penstock.model.errors import DestinationUnavailable, TableRefused, refused_alone
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.model.watermarks import Watermarks
from penstock.verify.checksums import ComparedRelation, find_relations
from penstock.verify.report import TableComparison
from penstock.verify.rewritten import rewritten_since, without_rewritten
from penstock.verify.snapshot import ComparedSnapshot
from penstock.verify.target_point import Drive, too_slow, went_past

_TURN_SECONDS = 0.2

_TEXTS: Mapping[SummedAs, str] = {
    # As it is replicated: a cast leaves out blanks of char(n), and gives an inet a mask.
    # A composite of nulls alone IS NULL, and is a value.
    "text": "CASE WHEN num_nulls({0}) = 0 THEN concat({0}) END",
    "flag": "{0}::int::text",
    "bytes": "encode({0}, 'hex')",
    "beginning": f"octet_length({{0}}) || ':' || encode(substr({{0}}, 1, {BEGINNING}), 'hex')",
    "days": "CASE WHEN isfinite({0}) THEN ({0} - DATE '1970-01-01')::text ELSE {0}::text END",
    "instant": "CASE WHEN isfinite({0}) THEN trunc(extract(epoch FROM {0}) * 1000000)::text"
    " ELSE {0}::text END",
    "clock": "(extract(epoch FROM {0}) * 1000000)::bigint::text",
    "presence": "CASE WHEN {0} IS NOT NULL THEN '' END",
}


class EngineVerdict:
    """Compares the tables of one pipeline whose destination is Verifiable."""

    def __init__(self, destination: Destination, lsn: int) -> None:
        assert isinstance(destination, Verifiable)  # noqa: S101 (who makes it has asked)
        self._destination = destination
        self._engine: Verifiable = destination
        self._lsn = lsn

    def reach(self, drive: Drive, deadline: float) -> bool:
        """Wait until the destination holds what was committed before the position; whether it had
        to be driven. ``deadline`` is one of time.monotonic().
        """
        drove = False
        while (at := self._committed()) is None or at.frontier.end_lsn < self._lsn:
            drove = drive() or drove
            if time.monotonic() > deadline:
                raise too_slow(self._lsn, 0 if at is None else at.frontier.end_lsn)
            time.sleep(_TURN_SECONDS)
        if at.frontier.end_lsn != self._lsn:
            raise went_past(self._lsn, at.frontier.end_lsn)
        return drove

    @contextmanager
    def pinned(self) -> Iterator[Watermarks]:
        """What is compared inside is what the destination holds now; what it then says of itself.
        Adding up may take long, and who could not renew the barrier holds the pipeline no more.
        """
        with self._engine.pinned():
            at = self._destination.committed()
            if at is None or at.frontier.end_lsn != self._lsn:
                raise went_past(self._lsn, 0 if at is None else at.frontier.end_lsn)
            yield at

    def _committed(self) -> Watermarks | None:
        try:
            return self._destination.committed()
        except DestinationUnavailable:
            return None  # a catalogue that is a file is open elsewhere

    def compare(
        self, source: ComparedSnapshot, tables: Sequence[TableDefinition]
    ) -> list[TableComparison]:
        """Tables that stand at the position. Called inside of the engine's ``pinned``."""
        names = [TableName(table.schema, table.name) for table in tables]
        with source.guard("looking for tables"), source.asked() as conn:
            relations = find_relations(conn, names)
        found = []
        for table, name in zip(tables, names, strict=True):
            result = TableComparison(str(name), str(name))
            try:
                with refused_alone(table.oid):
                    there = self._engine.table_sum(table)
            except TableRefused as error:
                found.append(replace(result, not_compared=error.message))
                continue
            if there is None or name not in relations:
                found.append(
                    replace(
                        result, not_compared="it is missing on one side, or cannot be read there"
                    )
                )
                continue
            with source.guard(f"adding up {name}"):
                here = _source_sum(source, relations[name], Target.of(table), self._engine)
            found.append(_compared(result, here, there))
        # Last: what was rewritten after this look was added up before.
        return without_rewritten(found, set(map(str, rewritten_since(source, names))))


def not_at(
    tables: Sequence[TableDefinition],
    behind: Mapping[int, Frontier],
    insert_only: Collection[TableName],
) -> dict[int, TableComparison]:
    """The tables that are not at the position, or need not be the same, with the reason."""
    found = {}
    for table in tables:
        name = TableName(table.schema, table.name)
        result = TableComparison(str(name), str(name))
        if table.oid in behind:
            found[table.oid] = replace(result, not_compared="it is behind the others")
        elif name in insert_only:
            found[table.oid] = replace(
                result, skipped="only its inserts and truncates are followed"
            )
    return found


def _source_sum(
    source: ComparedSnapshot, relation: ComparedRelation, target: Target, engine: Verifiable
) -> TableSum:
    digests = [
        sql.SQL("coalesce(md5(convert_to({}, 'UTF8')), '-')").format(
            sql.SQL(_TEXTS[engine.summed_as(plain)]).format(sql.Identifier(name))
        )
        for name, plain in zip(target.columns, target.types, strict=True)
    ]
    row = sql.SQL(" || ").join(digests) if digests else sql.SQL("''")
    query = sql.SQL(
        "SELECT count(*), coalesce(sum(('x' || left(md5({}), 15))::bit(60)::bigint), 0)::text"
        " FROM {}"
    ).format(row, relation.from_clause)
    with source.asked() as conn:
        found = conn.execute(query).fetchone()
    assert found is not None  # noqa: S101 (an aggregate without GROUP BY has one row)
    return TableSum(int(found[0]), int(found[1]))


def _compared(result: TableComparison, here: TableSum, there: TableSum) -> TableComparison:
    result = replace(result, source_rows=here.rows, target_rows=there.rows)
    if here == there:
        return result
    return replace(result, differing=max(1, abs(here.rows - there.rows)), counted_all=False)

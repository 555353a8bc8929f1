"""The rows of tables, as executors write and read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import pyarrow as pa

from penstock.destination.clickhouse.client import GONE, ClickHouseClient, Refused
from penstock.destination.clickhouse.ledger import ClickHouseLedger
from penstock.destination.clickhouse.names import (
    DELETED,
    ROW,
    VERSION,
    RowsTable,
    key_names,
    listed,
    literal,
    quoted,
)
from penstock.destination.clickhouse.types import TYPES, column_type, held, key_literals, text_of
from penstock.destination.encode.json_values import join
from penstock.destination.families.staged_merge.typed_columns import ColumnTyping, RowPlaces
from penstock.destination.families.target import Target
from penstock.destination.families.versioned.documents import (
    DocumentStore,
    Mask,
    aligned,
    document_ids,
    document_schema,
    mask,
    version_is_below,
)
from penstock.failpoints import failpoint
from penstock.model.errors import TableRefused
from penstock.model.lsn import Position

_Result = TypeVar("_Result")
_MOST_ROWS = 1_000_000
"""Of an INSERT, which is seen at once up to 1,048,449 rows."""
_MOST_BYTES = 2**28
_HEAD = "commit_lsn Int64, ordinal Int64, deleted Bool"


class ClickHouseRows(DocumentStore):
    """``at`` says where the rows of each table are. With a ``driver`` its number is a fence for
    every write; what copies write goes to a table of their own, and needs none.
    """

    def __init__(
        self,
        client: ClickHouseClient,
        ledger: ClickHouseLedger,
        at: Mapping[int, RowsTable],
        driver: int | None,
    ) -> None:
        self._client = client
        self._ledger = ledger
        self._at = at
        self._driver = driver
        self.typing = ColumnTyping(TYPES, client.options.unfit)
        self._unfit: dict[int, Counter[str]] = {}

    @property
    def unfit(self) -> Mapping[int, Mapping[str, int]]:
        return self._unfit

    def put(self, target: Target, documents: pa.Table) -> None:
        """All of them: the engine keeps the row of the greatest version."""
        target = held(target)
        for some in _slices(documents):
            self._insert(target, some)
            failpoint("clickhouse.inserted")

    def append(self, target: Target, rows: pa.Table, ids: pa.Array) -> None:
        """Add rows of a change table, whose columns are ``c0``, ``c1``, … and typed. Of those with
        one position and id the engine keeps one.
        """
        kinds = [f"c{index} {column_type(target, index)}" for index in range(len(target.columns))]
        names = [quoted(name) for name in target.columns]
        lsn, ordinal = (f"c{target.columns.index(name)}" for name in ("_commit_lsn", "_ordinal"))
        picked = [*(f"c{index}" for index in range(len(names))), "id", version(lsn, ordinal), "0"]
        sql = (
            f"INSERT INTO {self._table(target)} "  # noqa: S608
            f"({listed([*names, quoted(ROW), VERSION, DELETED])}) SELECT {listed(picked)} "
            f"FROM input({literal(listed([*kinds, 'id String']))}){self._where()}"
        )
        for some in _slices(rows.append_column("id", ids)):
            self._send(target, sql, some)
            failpoint("clickhouse.inserted")

    def fetch(self, target: Target, keys: pa.Table) -> pa.Table:
        """By key, tombstones included."""
        return self._found(held(target), keys)

    def is_passed(self, target: Target, documents: pa.Table) -> Mask:
        there = aligned(documents["id"].combine_chunks(), self.fetch(target, documents))
        return ~version_is_below(there, documents)

    def forget_before(self, target: Target, position: Position) -> None:
        """A tombstone for every row that is older: whatever comes late loses against it."""
        key = listed(map(quoted, key_names(target)))
        at, table = version(str(position.commit_lsn), str(position.ordinal)), self._table(target)
        sql = (
            f"INSERT INTO {table} ({key}, {VERSION}, {DELETED}) SELECT {key}, {at}, 1 "  # noqa: S608
            f"FROM {table} FINAL WHERE {VERSION} < {at}{self._where(' AND ')}"
        )
        doing = f"emptying {target.qualified_name}"
        self._told(target, lambda: self._client.run(sql, doing=doing))
        failpoint("clickhouse.emptied")

    def _columns(self, target: Target, documents: pa.Table) -> dict[str, pa.Array]:
        """Typed values. Raises TableRefused for one that is unfit, if the policy says so."""
        key = [documents[f"c{index}"] for index in target.key]
        is_row = ~mask(documents["deleted"])
        lsn, ordinal = documents["commit_lsn"].to_numpy(), documents["ordinal"].to_numpy()
        columns: dict[str, pa.Array] = {}
        for index, name in enumerate(target.columns):
            places = RowPlaces(key, lsn, ordinal, None if index in target.key else is_row)
            text = documents[f"c{index}"].cast(pa.string()).combine_chunks()
            columns[f"c{index}"], unfit = self.typing.column(target, index, text, places)
            if unfit:
                self._unfit.setdefault(target.oid, Counter())[name] += unfit
        return columns

    def _found(self, target: Target, keys: pa.Table) -> pa.Table:
        names = [quoted(name) for name in target.columns]
        texts = [
            f"{text_of(name, plain)} AS __penstock_{index}"
            for index, (name, plain) in enumerate(zip(names, target.types, strict=True))
        ]
        key = listed(names[index] for index in target.key)
        parts = [
            key_literals(keys[f"c{index}"].combine_chunks(), target.types[index])
            for index in target.key
        ]
        separated = [part for each in parts for part in (each, ",")][:-1]
        wanted = ",".join(join("(", *separated, ")").to_pylist())
        sql = (
            f"SELECT {listed([*texts, ''])}toInt64(bitShiftRight({VERSION}, 64)) AS __penstock_lsn, "  # noqa: S608, E501
            f"toInt64(bitAnd({VERSION}, toUInt128(18446744073709551615))) AS __penstock_ordinal, "
            f"{DELETED} = 1 AS __penstock_deleted FROM {self._table(target)} "
            f"WHERE ({key}) IN ({wanted}) ORDER BY {VERSION} DESC LIMIT 1 BY {key}"
        )
        doing = f"reading rows of {target.qualified_name}"
        rows = self._told(target, lambda: self._client.read(sql, doing=doing))
        values = [rows[f"__penstock_{index}"].combine_chunks() for index in range(len(names))]
        head = [
            document_ids([values[index] for index in target.key]),
            rows["__penstock_lsn"],
            rows["__penstock_ordinal"],
            rows["__penstock_deleted"].cast(pa.bool_()),
        ]
        schema = document_schema(target)
        columns = [
            column.cast(field.type) for column, field in zip([*head, *values], schema, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    def _insert(self, target: Target, documents: pa.Table) -> None:
        columns = self._columns(target, documents)
        kinds = [f"c{index} {column_type(target, index)}" for index in range(len(columns))]
        names, values = [quoted(name) for name in target.columns], list(columns)
        if not target.key:
            columns["id"], kinds = documents["id"], [*kinds, "id String"]
            names, values = [*names, quoted(ROW)], [*values, "id"]
        for name in ("commit_lsn", "ordinal", "deleted"):
            columns[name] = documents[name]
        sql = (
            f"INSERT INTO {self._table(target)} ({listed([*names, VERSION, DELETED])}) "  # noqa: S608
            f"SELECT {listed([*values, version('commit_lsn', 'ordinal')])}, deleted "
            f"FROM input({literal(listed([*kinds, _HEAD]))}){self._where()}"
        )
        self._send(target, sql, pa.table(columns))

    def _send(self, target: Target, sql: str, rows: pa.Table) -> None:
        doing = f"writing rows of {target.qualified_name}"
        again = self._told(target, lambda: self._client.insert(sql, rows, doing=doing))
        self.resent += again * rows.num_rows

    def _told(self, target: Target, act: Callable[[], _Result]) -> _Result:
        try:
            return act()
        except Refused as error:
            if error.code in GONE:
                raise _gone(target) from error
            raise self._ledger.translated(error) from error

    def _where(self, joint: str = " WHERE ") -> str:
        return "" if self._driver is None else f"{joint}{self._ledger.fence(self._driver)}"

    def _table(self, target: Target) -> str:
        if target.oid not in self._at:
            raise _gone(target)
        return self._at[target.oid].sql


def version(commit_lsn: str, ordinal: str) -> str:
    """An expression for the version of a row: positions are in the order of their versions."""
    return f"bitShiftLeft(toUInt128({commit_lsn}), 64) + toUInt128({ordinal})"


def _slices(documents: pa.Table) -> Iterator[pa.Table]:
    rows = documents.num_rows
    pieces = max(-(-rows // _MOST_ROWS), -(-documents.nbytes // _MOST_BYTES), 1)
    size = max(-(-rows // pieces), 1)
    for start in range(0, rows, size):
        yield documents.slice(start, size)


def _gone(target: Target) -> TableRefused:
    return TableRefused(
        f"table {target.qualified_name}: the table that its rows go to is gone",
        remedy=f"run `penstock tables resync` for {target.qualified_name}",
        table=target.oid,
    )

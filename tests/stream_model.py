"""A model of what a server sends: random histories, their messages, and what must come of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st

from penstock.changelog.changelog import ChangeLog
from penstock.changelog.segment import Segment
from penstock.changelog.storage.folder import FolderStorage
from penstock.model.lsn import Frontier, Position
from penstock.model.table_schema import TableSchema
from penstock.pgoutput.messages import (
    UNSET,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    RelationColumn,
    Truncate,
    Type,
    Update,
    Value,
    parse_message,
)
from penstock.source.postgres.capture.relations import RelationDescriber
from tests.pgoutput_bytes import encode, xlog_data

START = Frontier(0x1000, 0x1010)
_MICROS = 1_700_000_000_000_000
_INT4, _TEXT = 23, 25

describe = RelationDescriber(lambda _oids: {})


def _relation(oid: int, name: str, *columns: tuple[str, int], identity: str = "d") -> Relation:
    keys = [identity == "f" or index == 0 for index in range(len(columns))]
    described = [
        RelationColumn(column, kind, -1, key)
        for (column, kind), key in zip(columns, keys, strict=True)
    ]
    return Relation(oid, "public", name, identity, tuple(described))


# Each table with the definitions that it takes on in turn: columns come and go, one is renamed,
# one loses its last column; two tables share a layout.
VERSIONS: tuple[tuple[Relation, ...], ...] = (
    (
        _relation(20001, "a", ("id", _INT4), ("note", _TEXT)),
        _relation(20001, "a", ("id", _INT4), ("note", _TEXT), ("more", _TEXT)),
        _relation(20001, "a_renamed", ("id", _INT4), ("note", _TEXT), ("more", _TEXT)),
    ),
    (
        _relation(20002, "b", ("key", _INT4), ("text", _TEXT), identity="f"),
        _relation(20002, "b", identity="f"),
    ),
    (
        _relation(20003, "Ünï", ("id", _INT4)),
        _relation(20003, "Ünï", ("id", _TEXT)),
    ),
)
_WIDEST = 3


@dataclass(frozen=True)
class Change:
    """One change as a reader must see it."""

    position: Position
    lsn: int
    xid: int
    micros: int
    origin: str | None
    message: Insert | Update | Delete | Truncate | LogicalMessage
    tables: tuple[TableSchema, ...]
    """The definitions in force of the relations that the message names."""


@dataclass(frozen=True)
class Step:
    """A message inside a transaction, and the definitions that must be announced before it."""

    message: Message
    needs: tuple[Relation, ...]
    change: Change | None


@dataclass(frozen=True)
class Transaction:
    """Begin to Commit; for a logical message that belongs to none, only the message."""

    begin: Begin | None
    commit: Commit | None
    origin: Origin | None
    steps: tuple[Step, ...]
    frontier: Frontier


@dataclass(frozen=True)
class History:
    """Transactions in commit order."""

    transactions: tuple[Transaction, ...]

    @property
    def changes(self) -> list[Change]:
        return [s.change for t in self.transactions for s in t.steps if s.change is not None]

    @property
    def frontier(self) -> Frontier:
        return self.transactions[-1].frontier if self.transactions else START

    def committed_up_to(self, commit_lsn: int) -> list[Change]:
        return [change for change in self.changes if change.position.commit_lsn <= commit_lsn]

    def messages(self, start: Frontier = START) -> list[memoryview]:
        """What a session that starts at ``start`` receives: XLogData messages."""
        announced: dict[int, Relation] = {}
        result: list[memoryview] = []

        def send(message: Message, lsn: int) -> None:
            result.append(memoryview(xlog_data(encode(message), lsn, _MICROS + lsn)))

        for transaction in self.transactions:
            if transaction.frontier.commit_lsn <= start.commit_lsn:
                continue
            lsn = transaction.frontier.commit_lsn
            if transaction.begin is not None:
                send(transaction.begin, lsn)
            if transaction.origin is not None:
                send(transaction.origin, lsn)
            for step in transaction.steps:
                for relation in step.needs:
                    if announced.get(relation.oid) != relation:
                        announced[relation.oid] = relation
                        send(relation, 0)
                if isinstance(step.message, Relation):
                    announced[step.message.oid] = step.message
                send(step.message, step.change.lsn if step.change else 0)
            if transaction.commit is not None:
                send(transaction.commit, lsn)
        return result


# -- random histories --------------------------------------------------------------------------

_value: st.SearchStrategy[Value] = st.sampled_from(
    [None, UNSET, b"", b"7", b"-1", "Grüße".encode(), b"x" * 40]
)
_row = st.lists(_value, min_size=_WIDEST, max_size=_WIDEST).map(tuple)
_table = st.integers(0, len(VERSIONS) - 1)
_flag = st.booleans()
_old_kind = st.sampled_from([None, "key", "full"])
_name = st.sampled_from(["", "p", "é"])

_step = st.one_of(
    st.tuples(st.just("insert"), _table, _row),
    st.tuples(st.just("update"), _table, _row, _old_kind, _row),
    st.tuples(st.just("delete"), _table, _row, _flag),
    st.tuples(st.just("truncate"), st.lists(_table, min_size=1, unique=True), _flag, _flag),
    st.tuples(st.just("message"), _name, st.binary(max_size=8)),
    st.tuples(st.just("announce"), _table),
    st.tuples(st.just("redefine"), _table),
    st.tuples(st.just("type"), _name),
)
_transaction = st.one_of(
    st.tuples(
        st.just("transaction"),
        st.sampled_from([None, "elsewhere", "other"]),
        st.lists(_step, max_size=6),
    ),
    st.tuples(st.just("loose"), _name, st.binary(max_size=8)),
)


def histories(max_transactions: int = 6) -> st.SearchStrategy[History]:
    """Any sequence of transactions that a server could send."""
    return st.lists(_transaction, max_size=max_transactions).map(build)


def build(plan: list[tuple[object, ...]]) -> History:
    """The history that a plan (as ``histories`` draws them) describes."""
    builder = _Builder()
    for entry in plan:
        builder.add(*entry)
    return History(tuple(builder.transactions))


class _Builder:
    def __init__(self) -> None:
        self.transactions: list[Transaction] = []
        self._lsn = START.end_lsn
        self._xid = 700
        self._version = [0] * len(VERSIONS)

    def add(self, kind: object, *rest: object) -> None:
        if kind == "loose":
            self._loose(*rest)  # type: ignore[arg-type]
        else:
            self._transaction(*rest)  # type: ignore[arg-type]

    def _loose(self, prefix: str, content: bytes) -> None:
        lsn = self._next_lsn()
        message = LogicalMessage(False, lsn, prefix, content)
        # The message names the end of its record, where the next transaction's commit may begin.
        change = Change(Position(lsn - 1, 0), lsn, 0, _MICROS + lsn, None, message, ())
        step = Step(message, (), change)
        self.transactions.append(Transaction(None, None, None, (step,), Frontier(lsn - 1, lsn)))

    def _transaction(self, origin: str | None, plan: list[tuple[object, ...]]) -> None:
        self._xid += 1
        first = self._lsn
        commit_lsn = first + 0x10 * (len(plan) + 1)
        micros = _MICROS + self._xid
        steps = []
        ordinal = 0
        for entry in plan:
            message, relations = self._message(*entry)
            if message is None:
                continue
            change = None
            if isinstance(message, Insert | Update | Delete | Truncate | LogicalMessage):
                change = Change(
                    Position(commit_lsn, ordinal),
                    self._next_lsn(),
                    self._xid,
                    micros,
                    origin,
                    message,
                    tuple(describe(relation) for relation in relations),
                )
                ordinal += 1
            steps.append(Step(message, relations, change))
        self._lsn = commit_lsn + 0x10
        self.transactions.append(
            Transaction(
                Begin(commit_lsn, micros, self._xid),
                Commit(commit_lsn, self._lsn, micros),
                None if origin is None else Origin(first, origin),
                tuple(steps),
                Frontier(commit_lsn, self._lsn),
            )
        )

    def _message(self, kind: object, *rest: object) -> tuple[Message | None, tuple[Relation, ...]]:
        match kind, rest:
            case "message", (str(prefix), bytes(content)):
                return LogicalMessage(True, self._lsn, prefix, content), ()
            case "type", (str(name),):
                return Type(30001, "public", name), ()
            case "truncate", (list(tables), bool(cascade), bool(restart)):
                relations = tuple(self._current(table) for table in tables)
                return Truncate(tuple(r.oid for r in relations), cascade, restart), relations
            case "redefine", (int(table),):
                self._version[table] = (self._version[table] + 1) % len(VERSIONS[table])
                return None, ()
            case "announce", (int(table),):
                return self._current(table), ()
            case "insert", (int(table), tuple(row)):
                current = self._current(table)
                return Insert(current.oid, _cut(row, current)), (current,)
            case "update", (int(table), tuple(row), old_kind, tuple(old)):
                current = self._current(table)
                image = None if old_kind is None else _cut(old, current)
                new = _cut(row, current)
                return Update(current.oid, image, old_kind, new), (current,)  # type: ignore[arg-type]
            case "delete", (int(table), tuple(old), bool(full)):
                current = self._current(table)
                return Delete(current.oid, _cut(old, current), "full" if full else "key"), (
                    current,
                )
        raise AssertionError(f"no step {kind!r} with {rest!r}")

    def _current(self, table: int) -> Relation:
        return VERSIONS[table][self._version[table]]

    def _next_lsn(self) -> int:
        self._lsn += 0x10
        return self._lsn


def _cut(row: tuple[Value, ...], relation: Relation) -> tuple[Value, ...]:
    return row[: len(relation.columns)]


# -- what came out -----------------------------------------------------------------------------


def read_back(segment: Segment) -> Iterator[Change]:
    """The rows of a segment in the model's words, read one at a time with ``parse_message``."""
    micros = segment.rows.column("commit_ts").cast(pa.int64()).to_pylist()
    for row, at in zip(segment.rows.drop_columns("commit_ts").to_pylist(), micros, strict=True):
        message = parse_message(row["payload"])
        assert isinstance(message, Insert | Update | Delete | Truncate | LogicalMessage)
        assert row["op"] == row["payload"][0]
        first, count = row["schema_version"], 0
        if isinstance(message, Insert | Update | Delete):
            assert row["relation_id"] == message.relation
            count = 1
        elif isinstance(message, Truncate):
            count = len(message.relations)
        tables = tuple(segment.tables[first : first + count]) if count else ()
        yield Change(
            Position(row["commit_lsn"], row["ordinal"]),
            row["lsn"],
            row["xid"],
            at,
            None if row["origin"] < 0 else segment.origins[row["origin"]],
            message,
            tables,
        )


class MemoryStorage(FolderStorage):
    """A folder of the log without a disk, for properties that make thousands of segments."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.files: dict[str, bytes] = {}

    def list(self, after: str = "", *, and_in: str = "") -> list[tuple[str, int]]:
        return [(name, len(data)) for name, data in self.files.items() if name > after]

    def read(self, name: str) -> pa.Buffer | None:
        data = self.files.get(name)
        return None if data is None else pa.py_buffer(data)

    def read_bytes(self, name: str) -> bytes | None:
        return self.files.get(name)

    def write(self, name: str, data: bytes | memoryview | pa.Buffer, *, durable: bool) -> None:
        del durable
        self.files[name] = bytes(data)

    def create(self, name: str, data: bytes) -> bool:
        if name in self.files:
            return False
        self.files[name] = data
        return True

    def delete(self, *names: str) -> None:
        for name in names:
            self.files.pop(name, None)

    def exists(self, name: str) -> bool:
        return name in self.files

    def settle(self) -> None:
        """There is no disk."""

    def delete_temporary(self) -> None:
        """Nothing here is ever half written."""


class LateStorage(MemoryStorage):
    """As an object store: what a writer sent may arrive long after it died."""

    can_tear = False
    has_late_writes = True

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.is_slow = False
        """Whether what is written now is still on its way."""
        self.on_its_way: list[tuple[str, bytes]] = []

    def write(self, name: str, data: bytes | memoryview | pa.Buffer, *, durable: bool) -> None:
        if self.is_slow:
            self.on_its_way.append((name, bytes(data)))
        else:
            super().write(name, data, durable=durable)

    def arrive(self, index: int) -> None:
        """Let one of those arrive that are on their way, if there are any."""
        if self.on_its_way:
            name, data = self.on_its_way.pop(index % len(self.on_its_way))
            self.files[name] = data


def memory_log(kind: type[MemoryStorage] = MemoryStorage) -> ChangeLog:
    log = ChangeLog("memory")
    log.root, log.segments = kind("root"), kind("segments")
    log.readers, log.epochs = kind("readers"), kind("epochs")
    return log

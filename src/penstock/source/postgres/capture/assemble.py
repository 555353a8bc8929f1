"""Raw replication messages → the rows of a segment.

Messages are only collected while they arrive. What a segment needs to know of them (operation,
relation, transaction, ordinal) comes out of the bytes with NumPy when the segment is cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.changelog.segment import SCHEMA, Segment, place
from penstock.model.errors import DecodeError
from penstock.model.lsn import Frontier
from penstock.model.schema_message import SCHEMA_CHANGE
from penstock.model.table_schema import TableSchema
from penstock.pgoutput.messages import POSTGRES_EPOCH_MICROS, Origin, Relation, parse_message
from penstock.pgoutput.tuples import Bytes, Ints, big_endian, pad
from penstock.source.postgres.capture.messages import MessageFilter

# An XLogData message: 'w', start LSN, end LSN, send time; then the pgoutput message.
HEADER = 25

_CHANGES = np.zeros(256, bool)
_CHANGES[list(b"IUDTM")] = True
_ROWS = np.zeros(256, bool)
_ROWS[list(b"IUD")] = True
_KNOWN = np.zeros(256, bool)
_KNOWN[list(b"BCORYIUDTM")] = True


@dataclass(frozen=True)
class Cut:
    """A segment ready to be published, and how far the log is with it."""

    segment: Segment
    frontier: Frontier
    is_open: bool
    has_schema_changes: bool = False
    messages: int = 0
    transactions: int = 0
    """How many messages it was made of, and how many transactions end among them."""
    left_out: int = 0
    forged: int = 0
    """How many logical messages nobody asks for, and how many pretend to be of the triggers."""

    @property
    def has_rows(self) -> bool:
        return bool(self.segment.rows.num_rows)


@dataclass(frozen=True)
class Collected:
    """Messages as they came: joined in chunks, with the size of each."""

    chunks: list[bytes]
    sizes: list[Ints]


@dataclass
class _Transaction:
    """The transaction that is under way; commit_lsn 0 between transactions."""

    commit_lsn: int = 0
    micros: int = 0
    xid: int = 0
    ordinal: int = 0
    origin: int = -1


def ends_transaction(message: memoryview) -> bool:
    """Whether an XLogData message is a Commit."""
    return len(message) > HEADER and message[HEADER] == ord("C")


class Assembler:
    """Collects messages of one replication session and cuts them into segments."""

    def __init__(
        self,
        start: Frontier,
        describe: Callable[[Relation], TableSchema] | None = None,
        messages: MessageFilter | None = None,
    ) -> None:
        """Without ``messages``, every logical message is taken, and none tells of the schema."""
        self.frontier = start
        self._messages = messages
        self.buffered_bytes = 0
        self.tables: dict[int, TableSchema] = {}
        """The newest definition of every relation of this session."""
        self._describe = describe or _without_catalogue
        self._collected = Collected([], [])
        self._origin_names: list[str] = []
        self._open = _Transaction()

    @property
    def is_open(self) -> bool:
        """True if the last cut ended inside a transaction."""
        return self._open.commit_lsn != 0

    def add(self, messages: list[memoryview]) -> None:
        """Take XLogData messages, whole, in the order in which they came."""
        chunk = b"".join(messages)
        self._collected.chunks.append(chunk)
        self._collected.sizes.append(np.fromiter(map(len, messages), np.int64, len(messages)))
        self.buffered_bytes += len(chunk)

    def collect(self) -> Collected:
        """All that was added since the last time, to be cut, perhaps by another thread."""
        collected, self._collected, self.buffered_bytes = self._collected, Collected([], []), 0
        return collected

    def cut(self, collected: Collected | None = None) -> Cut:
        """What was collected (by default: now) as a segment. One at a time, in order."""
        collected = collected or self.collect()
        data = pad(*collected.chunks)
        sizes = np.concatenate([*collected.sizes, np.zeros(0, np.int64)])
        ends = np.cumsum(sizes)
        heads = ends - sizes
        bodies = heads + HEADER
        if (sizes <= HEADER).any():
            raise DecodeError("the server sent a replication message without a body")
        op = data[bodies]
        if not _KNOWN[op].all():
            unknown = chr(int(op[~_KNOWN[op]][0]))
            raise DecodeError(f"the server sent a pgoutput message of unknown kind {unknown!r}")

        changes = np.flatnonzero(_CHANGES[op])
        stamps = self._stamp(data, op, bodies, ends, changes)
        forged, left_out = 0, len(changes)
        if self._messages is not None and (op[changes] == ord("M")).any():
            kept, forged = _take_messages(self._messages, data, op, bodies, ends, changes, stamps)
            changes, stamps = changes[kept], stamps.part(kept)
        left_out -= len(changes) + forged
        relation_id = np.zeros(len(changes), np.int64)
        rows = np.flatnonzero(_ROWS[op[changes]])
        _whole(ends, bodies, changes[rows], 5, "row")
        relation_id[rows] = big_endian(data, bodies[changes[rows]] + 1, 4)
        version, tables = self._versions(data, op, bodies, ends, changes, relation_id)

        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(big_endian(data, heads[changes] + 1, 8).astype(np.uint64)),
                pa.array(stamps.commit_lsn.astype(np.uint64)),
                pa.array(stamps.ordinal.astype(np.uint32)),
                pa.array(stamps.xid.astype(np.uint32)),
                pa.array(stamps.micros).cast(SCHEMA.field("commit_ts").type),
                pa.array(op[changes]),
                pa.array(relation_id.astype(np.uint32)),
                pa.array(version),
                pa.array(stamps.origin),
                _payloads(data, bodies[changes], ends[changes]),
            ],
            schema=SCHEMA,
        )
        segment = Segment(batch, tables, tuple(self._origin_names))
        told = bool((op[changes] == SCHEMA_CHANGE).any())
        ended = int(np.count_nonzero(op == ord("C")))
        return Cut(segment, self.frontier, self.is_open, told, len(sizes), ended, left_out, forged)

    def _stamp(self, data: Bytes, op: Bytes, bodies: Ints, ends: Ints, changes: Ints) -> _Stamps:
        """Give every change its transaction and ordinal; move the frontier and the open state."""
        begins = np.flatnonzero(op == ord("B"))
        commits = np.flatnonzero(op == ord("C"))
        _whole(ends, bodies, begins, 21, "Begin", exact=True)
        _whole(ends, bodies, commits, 26, "Commit", exact=True)
        loose = self._loose_messages(data, op, bodies, ends, changes)

        carried = self._open
        at = bodies[begins]
        commit_lsn = np.concatenate([[carried.commit_lsn], big_endian(data, at + 1, 8)])
        micros = np.concatenate(
            [[carried.micros], big_endian(data, at + 9, 8) + POSTGRES_EPOCH_MICROS]
        )
        xid = np.concatenate([[carried.xid], big_endian(data, at + 17, 4)])
        origin = np.full(len(commit_lsn), -1, np.int16)
        origin[0] = carried.origin
        # Transaction 0 is the one that the last cut left open.
        transaction = np.cumsum(op == ord("B"))
        self._check_order(op, changes, loose)
        ending = commit_lsn[transaction[commits]]
        if (big_endian(data, bodies[commits] + 2, 8) != ending).any():
            raise DecodeError("the server sent a Commit of another transaction than the open one")
        for index in np.flatnonzero(op == ord("O")):
            origin[transaction[index]] = self._origin(bytes(data[bodies[index] : ends[index]]))

        # Ordinals count changes inside a transaction; loose messages stand only between these.
        seen = np.cumsum(_CHANGES[op])
        before = np.concatenate([[-carried.ordinal], seen[begins]])
        of_change = transaction[changes]
        stamps = _Stamps(
            commit_lsn=commit_lsn[of_change],
            ordinal=seen[changes] - 1 - before[of_change],
            xid=xid[of_change],
            micros=micros[of_change],
            origin=origin[of_change],
        )
        if loose.any():
            stamps.commit_lsn[loose] = _loose_lsn(data, bodies[changes[loose]])
            stamps.ordinal[loose] = 0
            stamps.xid[loose] = 0
            stamps.micros[loose] = big_endian(data, bodies[changes[loose]] - 8, 8) + (
                POSTGRES_EPOCH_MICROS
            )
            stamps.origin[loose] = -1
        # Readers look positions up by bisection.
        order = stamps.commit_lsn
        if (order[1:] < order[:-1]).any() or (order[:1] <= 0).any():
            raise DecodeError("the server sent transactions out of the order of their commits")

        self._advance(data, op, bodies, begins, commits, changes[loose])
        last = len(commit_lsn) - 1
        if len(commits) and (not len(begins) or commits[-1] > begins[-1]):
            self._open = _Transaction()
        elif commit_lsn[last]:
            count = int(seen[-1] - before[last]) if len(seen) else carried.ordinal
            self._open = _Transaction(
                int(commit_lsn[last]), int(micros[last]), int(xid[last]), count, int(origin[last])
            )
        return stamps

    def _check_order(self, op: Bytes, changes: Ints, loose: npt.NDArray[np.bool_]) -> None:
        """Raise unless Begin and Commit alternate and hold between them what belongs there."""
        begins, commits = op == ord("B"), op == ord("C")
        inside = int(self.is_open) + np.cumsum(begins.astype(np.int8) - commits, dtype=np.int64)
        if (inside[begins] != 1).any():
            raise DecodeError("the server sent a Begin before the Commit of the transaction before")
        if (inside[commits] != 0).any():
            raise DecodeError("the server sent a Commit without its Begin")
        if (inside[changes[~loose]] != 1).any() or (inside[op == ord("O")] != 1).any():
            raise DecodeError("the server sent a change or origin outside of any transaction")
        if (inside[changes[loose]] != 0).any():
            raise DecodeError(
                "the server sent a message that belongs to no transaction inside of a transaction"
            )

    def _loose_messages(
        self, data: Bytes, op: Bytes, bodies: Ints, ends: Ints, changes: Ints
    ) -> npt.NDArray[np.bool_]:
        """Which changes are logical messages that belong to no transaction."""
        loose: npt.NDArray[np.bool_] = op[changes] == ord("M")
        at = bodies[changes[loose]]
        _whole(ends, bodies, changes[loose], 14, "logical")
        loose[loose] = (data[at + 1] & 1) == 0
        return loose

    def _advance(
        self, data: Bytes, op: Bytes, bodies: Ints, begins: Ints, commits: Ints, loose: Ints
    ) -> None:
        """Move the frontier to the end of the last whole transaction."""
        if len(commits):
            at = bodies[commits[-1:]]
            self.advance(
                Frontier(int(big_endian(data, at + 2, 8)[0]), int(big_endian(data, at + 10, 8)[0]))
            )
        if len(loose):
            lsn = int(_loose_lsn(data, bodies[loose[-1:]])[0])
            if lsn > self.frontier.commit_lsn:
                self.advance(Frontier(lsn, lsn + 1))

    def advance(self, frontier: Frontier) -> None:
        """Move the frontier forward; it never goes back."""
        self.frontier = Frontier(
            max(self.frontier.commit_lsn, frontier.commit_lsn),
            max(self.frontier.end_lsn, frontier.end_lsn),
        )

    def _origin(self, message: bytes) -> int:
        parsed = parse_message(message)
        if not isinstance(parsed, Origin):
            raise DecodeError("expected an Origin message")
        if parsed.name not in self._origin_names:
            self._origin_names.append(parsed.name)
        return self._origin_names.index(parsed.name)

    def _versions(
        self,
        data: Bytes,
        op: Bytes,
        bodies: Ints,
        ends: Ints,
        changes: Ints,
        relation_id: Ints,
    ) -> tuple[npt.NDArray[np.int32], tuple[TableSchema, ...]]:
        """Which definition each row was written under, and these definitions."""
        # (first message under it, definition), per relation, in order.
        eras: dict[int, list[tuple[int, TableSchema]]] = {
            oid: [(-1, table)] for oid, table in self.tables.items()
        }
        for index in np.flatnonzero(op == ord("R")):
            relation = parse_message(bytes(data[bodies[index] : ends[index]]))
            if not isinstance(relation, Relation):
                raise DecodeError("expected a Relation message")
            table = self._describe(relation)
            era = eras.setdefault(table.oid, [])
            if not era or era[-1][1].fingerprint != table.fingerprint:
                era.append((int(index), table))
            self.tables[table.oid] = table

        version = np.full(len(changes), -1, np.int32)
        tables: list[TableSchema] = []
        oids, inverse = np.unique(relation_id, return_inverse=True)
        of_oid = np.full(len(oids), -1, np.int32)
        changed: list[tuple[int, list[tuple[int, TableSchema]]]] = []
        for position, oid in enumerate(oids.tolist()):
            if oid == 0:
                continue
            era = eras.get(oid, [])
            undescribed = np.searchsorted(changes, era[0][0]) if era else len(changes)
            if (relation_id[:undescribed] == oid).any():
                raise _undescribed(oid)
            of_oid[position] = len(tables)
            tables.append(era[0][1])
            if len(era) > 1:
                changed.append((oid, era))
        version[:] = of_oid[inverse]
        for oid, era in changed:
            mine = relation_id == oid
            for first, table in era[1:]:
                version[mine & (changes > first)] = len(tables)
                tables.append(table)
        for row in np.flatnonzero(op[changes] == ord("T")).tolist():
            at = int(changes[row])
            truncated = _truncated(data, int(bodies[at]), int(ends[at]))
            version[row] = place(tables, [_in_force(eras, oid, at) for oid in truncated])
        return version, tuple(tables)


@dataclass(frozen=True)
class _Stamps:
    commit_lsn: Ints
    ordinal: Ints
    xid: Ints
    micros: Ints
    origin: npt.NDArray[np.int16]

    def part(self, kept: npt.NDArray[np.bool_]) -> _Stamps:
        return _Stamps(**{name: values[kept] for name, values in vars(self).items()})


def _take_messages(
    wanted: MessageFilter,
    data: Bytes,
    op: Bytes,
    bodies: Ints,
    ends: Ints,
    changes: Ints,
    stamps: _Stamps,
) -> tuple[npt.NDArray[np.bool_], int]:
    """Which changes are kept, and how many messages are forged. Of one that tells of a schema
    change only its body is left, with its own operation before it.
    """
    rows = np.flatnonzero(op[changes] == ord("M"))
    messages = changes[rows]
    found = wanted.take(data, bodies[messages], ends[messages], stamps.xid[rows])
    ours = found.bodies > 0
    bodies[messages[ours]] = found.bodies[ours] - 1
    data[found.bodies[ours] - 1] = SCHEMA_CHANGE
    op[messages[ours]] = SCHEMA_CHANGE
    kept = np.ones(len(changes), bool)
    kept[rows] = found.taken
    return kept, found.forged


def _loose_lsn(data: Bytes, bodies: Ints) -> Ints:
    """What stands for the commit LSN of messages that belong to no transaction.

    A message names the end of its WAL record, where the next record may begin: a commit, whose
    transaction would share the position and be skipped by a start beyond it. No commit begins at
    the byte before.
    """
    return big_endian(data, bodies + 2, 8) - 1


def _payloads(data: Bytes, starts: Ints, ends: Ints) -> pa.Array:
    """The bytes of the changes, gathered without what stands between them."""
    count = len(starts)
    offsets = np.zeros(2 * count + 1, np.int32)
    offsets[1::2] = starts
    offsets[2::2] = ends
    pieces = pa.Array.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return pieces.take(pa.array(np.arange(1, 2 * count, 2)))


def _truncated(data: Bytes, start: int, end: int) -> list[int]:
    if end - start < 6:
        raise DecodeError("the server sent a Truncate message that is too short")
    count = int(big_endian(data, np.array([start + 1]), 4)[0])
    if end - start != 6 + 4 * count:
        raise DecodeError("the server sent a Truncate message of the wrong length")
    relations: list[int] = big_endian(data, start + 6 + 4 * np.arange(count), 4).tolist()
    return relations


def _in_force(eras: dict[int, list[tuple[int, TableSchema]]], oid: int, index: int) -> TableSchema:
    """The definition of relation ``oid`` that holds for message ``index``."""
    for first, table in reversed(eras.get(oid, [])):
        if first < index:
            return table
    raise _undescribed(oid)


def _undescribed(oid: int) -> DecodeError:
    return DecodeError(f"the server sent a change of relation {oid} without describing it first")


def _whole(
    ends: Ints, bodies: Ints, which: Ints, size: int, kind: str, *, exact: bool = False
) -> None:
    found = ends[which] - bodies[which]
    wrong = found != size if exact else found < size
    if wrong.any():
        raise DecodeError(
            f"the server sent a {kind} message of {found[wrong][0]} bytes; "
            f"{'' if exact else 'at least '}{size} were expected"
        )


def _without_catalogue(relation: Relation) -> TableSchema:
    raise DecodeError(f"no catalogue to describe {relation.schema}.{relation.name} with")

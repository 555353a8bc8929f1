"""The change log as a whole: segments, readers' positions, identity. Its writer is in writer.py."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from penstock.changelog import chain
from penstock.changelog.retention import without_passed_head
from penstock.changelog.segment_name import SegmentName
from penstock.changelog.storage.contract import Storage
from penstock.changelog.storage.opened import open_storage
from penstock.model.errors import ConfigError, IdentityChanged, LogError, SegmentGone
from penstock.model.lsn import NOTHING, Frontier, format_lsn
from penstock.model.source_identity import START_ANEW, SourceIdentity, not_an_ancestor
from penstock.model.table_schema import TableSchema

if TYPE_CHECKING:
    from penstock.changelog.segment import Segment
    from penstock.config.models import ChangeLogConfig

BARRIERS = "barriers"
"""The folder in that of the segments where `penstock verify` says where to wait (barrier.py)."""

LOG_FORMAT = 1

# What to do about a file that cannot be read, by the file.
_REMAKE = "delete the file: capture writes it again"
_REMAKE_LOG_JSON = (
    "restore it from a backup; or, if the source is certainly the one that this log was made from, "
    "delete the file: capture writes it again"
)
_REMAKE_READER = (
    "restore the file, or its second copy in readers/second, from a backup. If the destination "
    "remembers its position (docs/guarantees.md says which do), delete both: the pipeline writes "
    "them again. Else nobody knows it any more: start over with `penstock destroy FILE` and "
    "`penstock run FILE`"
)

# The checksum of a reader's file, among what it is the sum of. Earlier versions wrote none.
_SUM = "sha256"
_UNSUMMED = {"commit_lsn", "end_lsn", "wanted_lsn", "updated_at", "source", "by", "begin"}

# A reader's name is a file name; one with a leading dot would be overlooked by retention.
_READER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class LogIdentity:
    """What the log was made from. Another source must never be appended to it."""

    system_id: str
    timeline: int
    database: str
    slot: str

    def to_json(self) -> dict[str, Any]:
        return {"format": LOG_FORMAT, **vars(self)}


@dataclass(frozen=True)
class ReaderState:
    """How far one reader's destination durably is, and how far it would like capture to come."""

    frontier: Frontier
    wanted_lsn: int = 0
    updated_at: float = 0.0
    source: SourceIdentity | None = None
    """Of which source the frontier is, where the reader has said so."""
    by: str = ""
    """Who said it, for people."""
    begin: Frontier | None = None
    """Where the reader began; None for the slot's beginning."""
    stream: Frontier | None = None
    """Where its stream is, where tables that were set aside keep the frontier behind that."""

    def to_json(self) -> dict[str, Any]:
        return {
            **self.frontier.to_json(),
            "wanted_lsn": self.wanted_lsn,
            "updated_at": self.updated_at,
            "source": None if self.source is None else self.source.to_json(),
            "by": self.by,
            **({} if self.begin is None else {"begin": self.begin.to_json()}),
            **({} if self.stream is None else {"stream": self.stream.to_json()}),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        source = value.get("source")
        return cls(
            Frontier.from_json(value),
            value["wanted_lsn"],
            value["updated_at"],
            None if source is None else SourceIdentity.from_json(source),
            value.get("by", ""),
            *(Frontier.from_json(value[k]) if k in value else None for k in ("begin", "stream")),
        )


@dataclass(frozen=True)
class Listing:
    """The log's segments at one moment, as a chain, with their sizes."""

    segments: tuple[SegmentName, ...]
    sizes: dict[SegmentName, int]
    barriers: tuple[str, ...] = ()
    """The names of the files that say where batches are to end; looked at after the segments."""

    @property
    def frontier(self) -> Frontier | None:
        """Where the log ends; None for an empty one."""
        return self.segments[-1].frontier if self.segments else None

    @property
    def writer(self) -> int:
        """The epoch of who wrote last; 0 for an empty log."""
        return self.segments[-1].epoch if self.segments else 0

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes.values())


class ChangeLog:
    """One pipeline's log in one folder, or below one prefix of a bucket. Holds nothing open;
    picklable.
    """

    def __init__(self, path: str, options: Mapping[str, str] | None = None) -> None:
        """``options`` are those of an object store."""
        self.root = open_storage(path, options)
        self.segments = self.root.child("segments")
        self.readers = self.root.child("readers")
        self._second_copies = self.readers.child("second")
        self.epochs = self.root.child("epochs")

    @classmethod
    def of(cls, config: ChangeLogConfig) -> Self:
        """The log that a pipeline file names."""
        return cls(config.path, config.revealed_options)

    # -- what it is made from ------------------------------------------------------------------

    def claim_identity(self, identity: LogIdentity, left: Mapping[int, int] | None = None) -> None:
        """Write down what the log is made from; IdentityChanged if it was made from another.

        ``left`` says where the source has left earlier timelines: a log that ends before that goes
        on in the timeline of now.
        """
        data = json.dumps(identity.to_json(), indent=1).encode()
        if self.root.create("log.json", data):
            return
        known = self._read_json(self.root, "log.json", _REMAKE_LOG_JSON) or {}
        if known.get("format") != LOG_FORMAT:
            raise LogError(
                f"the change log in {self.root.path} has format {known.get('format')}; this "
                f"Penstock writes format {LOG_FORMAT}",
                remedy="go on with the Penstock version that made it, or give the pipeline a new "
                "change_log.path",
            )
        timeline = known.get("timeline", 0)
        for name, value in vars(identity).items():
            if name != "timeline" and known.get(name) != value:
                raise IdentityChanged(
                    f"the change log in {self.root.path} was made from {name} {known.get(name)}, "
                    f"but the source now has {name} {value}: its positions mean something else "
                    "(a failover, a restored backup, or another server behind the same address)",
                    remedy=START_ANEW,
                )
        if timeline != identity.timeline:
            frontier = self.list().frontier or NOTHING
            why = not_an_ancestor(timeline, identity.timeline, left or {}, frontier.end_lsn)
            if why is not None:
                raise IdentityChanged(
                    f"the change log in {self.root.path} ends at {format_lsn(frontier.end_lsn)}, "
                    f"and {why}",
                    remedy=START_ANEW,
                )
            self.root.write("log.json", data, durable=True)

    def timeline(self) -> int:
        """The source's timeline in which capture last began to read, or 0. All that the log had by
        then is a part of that one's history. Asked after a listing, it holds for what is listed.
        """
        known = self._read_json(self.root, "log.json", _REMAKE_LOG_JSON) or {}
        return int(known.get("timeline", 0))

    # -- segments --------------------------------------------------------------------------------

    def list(self) -> Listing:
        """The chain of segments. A gap in it that stays is an error, unless all before it was on
        its way out.

        A listing that runs beside a writer or beside retention can miss some; two that agree did
        not, for files appear and go all the time where that happens.
        """
        sizes, barriers = self.entries()
        while chain.has_gap(segments := chain.chain(sizes)):
            before, (sizes, barriers) = sizes, self.entries()
            if sizes == before:
                break
        else:
            return Listing(tuple(segments), sizes, barriers)
        # First: to a new writer, all behind what a removal left looks like a fenced one's.
        held = [reader.frontier for reader in self.all_readers().values()]
        segments = without_passed_head(segments, held, late_writes=self.segments.has_late_writes)
        segments = chain.without_stale_tail(segments, self.newest_epoch())
        if not chain.has_gap(segments):
            return Listing(tuple(segments), sizes, barriers)
        gap = chain.first_gap(segments)
        raise LogError(
            f"a segment is missing in the middle of the change log {self.segments.path}: behind "
            f"{segments[gap - 1]} comes {segments[gap]}",
            remedy="restore it from a backup; or, with `confirm: destination`, delete the change "
            "log folder: Postgres sends again what the destination does not hold yet",
        )

    def entries(self, after: str = "") -> tuple[dict[SegmentName, int], tuple[str, ...]]:
        """All segments with their sizes, also those that do not count, and the barriers; of the
        segments those whose names are greater than ``after``.
        """
        found = self.segments.list(after, and_in=BARRIERS)
        sizes = {
            parsed: size for name, size in found if (parsed := SegmentName.parse(name)) is not None
        }
        return sizes, tuple(name for name, _ in found if name.startswith(f"{BARRIERS}/"))

    def newest_epoch(self) -> int:
        """The epoch of the last writer that opened the log; 0 before the first."""
        return max((int(n) for n, _size in self.epochs.list() if n.isdigit()), default=0)

    def is_replaced(self, epoch: int) -> bool:
        """Whether another writer has opened the log since this one did."""
        return not self.epochs.exists(epoch_name(epoch)) and self.newest_epoch() > epoch

    def read(self, name: str) -> Segment:
        """A segment's rows, checked against the checksum in its name."""
        # Not above: who only looks at the log's folder does without Arrow.
        from penstock.changelog.segment import decode_segment

        parsed = SegmentName.parse(name)
        if parsed is None:
            raise LogError(f"{name!r} is not the name of a segment")
        data = self.segments.read(name)
        if data is None:
            raise SegmentGone(
                f"segment {self.segments.full(name)} is gone although this reader still needs it",
                remedy="raise change_log.grace, or name this reader so that its position is kept",
                segment=name,
            )
        return decode_segment(data, parsed, self.segments.full(name))

    # -- readers ---------------------------------------------------------------------------------

    def reader(self, name: str) -> ReaderState | None:
        return self._read_reader(_reader_file(name))

    def all_readers(self) -> dict[str, ReaderState]:
        found = self.readers.list(and_in="second" if self.readers.can_tear else "")
        # What a person puts beside them, such as a copy of one, is nobody who reads.
        files = {name.rpartition("/")[2] for name, _size in found if name.endswith(".json")}
        states = {name.removesuffix(".json"): self._read_reader(name) for name in files}
        return {name: state for name, state in states.items() if state is not None}

    def set_reader(
        self,
        name: str,
        frontier: Frontier,
        wanted_lsn: int = 0,
        source: SourceIdentity | None = None,
        begin: Frontier | None = None,
        stream: Frontier | None = None,
        *,
        durable: bool = False,
    ) -> ReaderState:
        """Record what the reader's destination durably holds: capture may confirm it. ``begin`` is
        where the reader began, if that was not with the slot, and ``stream`` where its stream is,
        if that is further on. Returns what was recorded.

        ``durable``: nobody else knows it, so it survives a crash of the machine; where a file can
        be torn, it is kept twice.
        """
        by = f"process {os.getpid()} on {socket.gethostname()}"
        state = ReaderState(frontier, wanted_lsn, time.time(), source, by, begin, stream)
        value = state.to_json()
        file, data = _reader_file(name), json.dumps({**value, _SUM: _sum(value)}).encode()
        if self.readers.can_tear:
            if durable:
                # First: what capture finds in the other one may be confirmed and removed for good.
                self._second_copies.write(file, data, durable=True)
            else:
                self._second_copies.delete(file)
        self.readers.write(file, data, durable=durable)
        return state

    def remove_reader(self, name: str) -> None:
        self._second_copies.delete(_reader_file(name))
        self.readers.delete(_reader_file(name))

    def _read_reader(self, file: str) -> ReaderState | None:
        """From its second copy where the file is torn, or gone."""
        torn: LogError | None = None
        copies = (self.readers, self._second_copies) if self.readers.can_tear else (self.readers,)
        for storage in copies:
            try:
                value = self._read_json(storage, file, _REMAKE_READER)
                if value is not None:
                    _expect_sum(value)
                    return ReaderState.from_json(value)
            except LogError as error:
                torn = torn or error
            except (KeyError, TypeError, ValueError, AttributeError):
                torn = torn or _torn(storage.full(file), "it says no position", _REMAKE_READER)
        if torn is not None:
            raise torn
        return None

    # -- the tables that capture has seen --------------------------------------------------------

    def set_tables(self, tables: dict[int, TableSchema]) -> None:
        """Publish the newest known definition of every table, for readers that plan a schema. Of
        two with one name the last one counts.
        """
        text = f"[{', '.join(table.json_text for table in tables.values())}]"
        # Seldom, and capture does not go on with one that a crash has torn.
        self.root.write("tables.json", text.encode(), durable=True)

    def tables(self) -> tuple[TableSchema, ...]:
        value = self._read_json(self.root, "tables.json", _REMAKE) or []
        return tuple(TableSchema.from_json(table) for table in value)

    # -- capture's own report --------------------------------------------------------------------

    def set_capture_report(self, report: dict[str, Any]) -> None:
        self.root.write("capture.json", json.dumps(report).encode(), durable=False)

    def capture_report(self) -> dict[str, Any] | None:
        report: dict[str, Any] | None = self._read_json(self.root, "capture.json", _REMAKE)
        return report

    @staticmethod
    def _read_json(storage: Storage, name: str, remedy: str) -> Any:
        data = storage.read_bytes(name)
        if data is None:
            return None
        try:
            return json.loads(data)
        except ValueError as error:
            raise _torn(storage.full(name), str(error), remedy) from None


def epoch_name(epoch: int) -> str:
    """The name of the file that says whose it is."""
    return f"{epoch:06d}"


def _sum(value: Mapping[str, Any]) -> str:
    text = json.dumps({name: it for name, it in value.items() if name != _SUM}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _expect_sum(value: Mapping[str, Any]) -> None:
    """Raise ValueError where the file says something else than was written. One without a sum that
    has a name which nobody wrote had one, under that name.
    """
    if value.get(_SUM) != _sum(value) if _SUM in value else value.keys() - _UNSUMMED:
        raise ValueError("its checksum does not hold")


def _torn(file: str, why: str, remedy: str) -> LogError:
    return LogError(f"{file} is torn or altered: {why}", remedy=remedy)


def _reader_file(name: str) -> str:
    if _READER_NAME.fullmatch(name) is None:
        raise ConfigError(
            f"{name!r} cannot name a reader of the change log: letters, digits, '_', '-' and '.' "
            "are allowed, not starting with '-' or '.', at most 100 of them"
        )
    return f"{name}.json"

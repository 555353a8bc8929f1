"""The change log as a whole: segments, writers' epochs, readers' positions, identity."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.changelog import chain
from penstock.changelog.segment_name import SegmentName
from penstock.changelog.storage import Storage
from penstock.model.errors import ConfigError, Fenced, IdentityChanged, LogError
from penstock.model.lsn import NOTHING, Frontier, format_lsn
from penstock.model.source_identity import START_ANEW, SourceIdentity, not_an_ancestor
from penstock.model.table_schema import TableSchema

if TYPE_CHECKING:
    from penstock.changelog.segment import Segment

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

# A reader's name is a file name; one with a leading dot would be overlooked by retention.
_READER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class Identity:
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


@dataclass(frozen=True)
class Listing:
    """The log's segments at one moment, as a chain, with their sizes."""

    segments: tuple[SegmentName, ...]
    sizes: dict[SegmentName, int]

    @property
    def frontier(self) -> Frontier | None:
        """Where the log ends; None for an empty one."""
        return self.segments[-1].frontier if self.segments else None

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes.values())


class ChangeLog:
    """One pipeline's log in one folder. Holds nothing open; picklable."""

    def __init__(self, path: str) -> None:
        self.root = Storage(path)
        self.segments = self.root.child("segments")
        self.readers = self.root.child("readers")
        self._second_copies = self.readers.child("second")
        self.epochs = self.root.child("epochs")

    # -- what it is made from ------------------------------------------------------------------

    def claim_identity(self, identity: Identity, left: Mapping[int, int] | None = None) -> None:
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

    # -- segments --------------------------------------------------------------------------------

    def list(self) -> Listing:
        """The chain of segments. A gap in it that stays is an error.

        A listing that runs beside a writer or beside retention can miss some; two that agree did
        not, for files appear and go all the time where that happens.
        """
        sizes = self._sizes()
        while chain.has_gap(segments := chain.chain(sizes)):
            before, sizes = sizes, self._sizes()
            if sizes == before:
                break
        else:
            return Listing(tuple(segments), sizes)
        segments = chain.without_stale_tail(segments, self.newest_epoch())
        if not chain.has_gap(segments):
            return Listing(tuple(segments), sizes)
        raise LogError(
            f"a segment is missing in the middle of the change log {self.segments.path}",
            remedy="restore it from a backup; or, with `confirm: destination`, delete the change "
            "log folder: Postgres sends again what the destination does not hold yet",
        )

    def _sizes(self) -> dict[SegmentName, int]:
        return {
            parsed: size
            for name, size in self.segments.list()
            if (parsed := SegmentName.parse(name)) is not None
        }

    def newest_epoch(self) -> int:
        """The epoch of the last writer that opened the log; 0 before the first."""
        return max((int(n) for n, _size in self.epochs.list() if n.isdigit()), default=0)

    def read(self, name: str) -> Segment:
        """A segment's rows, checked against the checksum in its name."""
        # Not above: who only looks at the log's folder does without Arrow.
        from penstock.changelog.segment import decode_segment

        parsed = SegmentName.parse(name)
        if parsed is None:
            raise LogError(f"{name!r} is not the name of a segment")
        data = self.segments.read(name)
        if data is None:
            raise LogError(
                f"segment {self.segments.full(name)} is gone although this reader still needs it",
                remedy="raise change_log.grace, or name this reader so that its position is kept",
            )
        return decode_segment(data, parsed, self.segments.full(name))

    # -- readers ---------------------------------------------------------------------------------

    def reader(self, name: str) -> ReaderState | None:
        return self._read_reader(_reader_file(name))

    def all_readers(self) -> dict[str, ReaderState]:
        files = {name for name, _size in (*self.readers.list(), *self._second_copies.list())}
        states = {name.removesuffix(".json"): self._read_reader(name) for name in files}
        return {name: state for name, state in states.items() if state is not None}

    def set_reader(
        self,
        name: str,
        frontier: Frontier,
        wanted_lsn: int = 0,
        source: SourceIdentity | None = None,
        *,
        durable: bool = False,
    ) -> None:
        """Record what the reader's destination durably holds: capture may confirm it.

        ``durable``: nobody else knows it, so it is kept twice, and survives a crash of the machine.
        """
        value = {
            **frontier.to_json(),
            "wanted_lsn": wanted_lsn,
            "updated_at": time.time(),
            "source": None if source is None else source.to_json(),
        }
        file, data = _reader_file(name), json.dumps(value).encode()
        if durable:
            # First: what capture finds in the other one may be confirmed and removed for good.
            self._second_copies.write(file, data, durable=True)
        else:
            self._second_copies.delete(file)
        self.readers.write(file, data, durable=durable)

    def remove_reader(self, name: str) -> None:
        self._second_copies.delete(_reader_file(name))
        self.readers.delete(_reader_file(name))

    def _read_reader(self, file: str) -> ReaderState | None:
        """From its second copy where the file is torn, or gone."""
        torn: LogError | None = None
        for storage in (self.readers, self._second_copies):
            try:
                value = self._read_json(storage, file, _REMAKE_READER)
                if value is not None:
                    return _reader_state(value)
            except LogError as error:
                torn = torn or error
            except (KeyError, TypeError, ValueError, AttributeError):
                torn = torn or _torn(storage.full(file), "it says no position", _REMAKE_READER)
        if torn is not None:
            raise torn
        return None

    # -- the tables that capture has seen --------------------------------------------------------

    def set_tables(self, tables: dict[int, TableSchema]) -> None:
        """Publish the newest known definition of every table, for readers that plan a schema."""
        value = [table.to_json() for table in tables.values()]
        self.root.write("tables.json", json.dumps(value).encode(), durable=False)

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


class LogWriter:
    """The one writer of a log. Opening it fences all earlier ones."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self.epoch = self._claim_epoch()
        log.segments.delete_temporary()
        self._drop_unfinished()
        listing = log.list()
        self.frontier = listing.frontier
        self._next = listing.segments[-1].sequence + 1 if listing.segments else 1

    def publish(
        self,
        segment: Segment,
        frontier: Frontier,
        *,
        is_open: bool,
        has_schema_changes: bool = False,
    ) -> SegmentName:
        """Make a segment durable and visible. Returns once both hold."""
        from penstock.changelog.segment import encode_segment

        data, digest = encode_segment(segment)
        after = self.frontier.commit_lsn if self.frontier else 0
        name = SegmentName(
            sequence=self._next,
            epoch=self.epoch,
            after=after,
            last=frontier.commit_lsn,
            end_lsn=frontier.end_lsn,
            rows=segment.rows.num_rows,
            is_open=is_open,
            checksum=digest,
            has_schema_changes=has_schema_changes,
        )
        self._check_fence()
        try:
            self._log.segments.write(str(name), data, durable=True)
        except LogError:
            # A writer that took over meanwhile has swept the half-written file away.
            self._check_fence()
            raise
        self._next += 1
        self.frontier = frontier
        return name

    def start_at(self, frontier: Frontier) -> None:
        """Say from where on the next segments hold everything."""
        self.frontier = frontier

    def _claim_epoch(self) -> int:
        epoch = self._newest_epoch() + 1
        while not self._log.epochs.create(f"{epoch:06d}", b""):
            epoch += 1
        for name, _size in self._log.epochs.list():
            if name.isdigit() and int(name) < epoch:
                self._log.epochs.delete(name)
        return epoch

    def _newest_epoch(self) -> int:
        # Listed before the claim: a segment that is really missing must be an error here.
        written = [segment.epoch for segment in self._log.list().segments]
        return max([self._log.newest_epoch(), *written])

    def _check_fence(self) -> None:
        if self._log.newest_epoch() > self.epoch:
            raise Fenced(
                f"another capture process has taken over the change log {self._log.root.path}",
                remedy="let one capture process run for each pipeline; this one stops",
            )

    def _drop_unfinished(self) -> None:
        """Remove segments at the end that hold only a part of a transaction, and stale ones.

        Postgres sends that transaction again, whole.
        """
        listing = self._log.list()
        segments = list(listing.segments)
        for name in listing.sizes.keys() - set(segments):
            self._log.segments.delete(str(name))
        while segments and segments[-1].is_unfinished:
            self._log.segments.delete(str(segments.pop()))


def _torn(file: str, why: str, remedy: str) -> LogError:
    return LogError(f"{file} is torn or altered: {why}", remedy=remedy)


def _reader_file(name: str) -> str:
    if _READER_NAME.fullmatch(name) is None:
        raise ConfigError(
            f"{name!r} cannot name a reader of the change log: letters, digits, '_', '-' and '.' "
            "are allowed, not starting with '-' or '.', at most 100 of them"
        )
    return f"{name}.json"


def _reader_state(value: dict[str, Any]) -> ReaderState:
    source = value.get("source")
    return ReaderState(
        Frontier.from_json(value),
        value["wanted_lsn"],
        value["updated_at"],
        None if source is None else SourceIdentity.from_json(source),
    )

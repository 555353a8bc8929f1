"""The driver's side of the `webhooks` destination: the outbox, and who delivers from it."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.config.filter_config import FilterConfig
from penstock.destination.contract import Capabilities, ChunkReceipt, Receipt, SchemaChange
from penstock.destination.families.append import AppendDestination
from penstock.destination.families.queue.events import Encoder
from penstock.destination.families.queue.formats import Formats
from penstock.destination.families.queue.options import FormatOptions, LaneOptions
from penstock.destination.families.queue.oversize import Oversize
from penstock.destination.protocols import (
    CopiedByWorkers,
    CountsByItself,
    KeepsDeadLetters,
    NamesSource,
    Ticket,
)
from penstock.destination.seen_elsewhere import not_seen_here
from penstock.destination.webhooks.count_dead_letters import dead_letters_in
from penstock.destination.webhooks.database import Database
from penstock.destination.webhooks.options import WebhooksOptions
from penstock.destination.webhooks.outbox import (
    OpenOutbox,
    ViewFile,
    expect_answer,
    expect_usable,
    files_by_driver,
    is_of,
    is_taken,
    mark_of,
    outbox_storage,
    prefix_of,
    slim,
)
from penstock.destination.webhooks.outbox_index import OutboxIndex, OutboxWritten
from penstock.destination.webhooks.views import Asked, AskedViews
from penstock.destination.webhooks.writers import EventView, OutboxChunkWriter, OutboxWriter
from penstock.failpoints import failpoint
from penstock.model.errors import DestinationError, DestinationUnavailable, LogError, LogUnavailable
from penstock.model.source_identity import SourceIdentity
from penstock.model.table_definition import TableDefinition
from penstock.model.watermarks import Watermarks
from penstock.objects.bucket import is_bucket
from penstock.transform.filter import Filter

if TYPE_CHECKING:
    from penstock.destination.contract import TaskWriter
    from penstock.destination.webhooks.delivery.service import WebhookService
    from penstock.metrics.registry import Registry

FORMATS = ("penstock", "debezium", "cloudevents")
# In an object store each file is a request to pay for.
_BUCKET_BATCH_AGE = 1.0
# Receivers have limits of their own; what is larger than max_body is refused for each of them.
_NO_LIMIT = 2**40

_log = logging.getLogger(__name__)


class WebhooksDestination(
    AppendDestination, CopiedByWorkers, CountsByItself, KeepsDeadLetters, NamesSource
):
    """Every change once in the outbox, and from there to each receiver, at least once."""

    name = "webhooks"
    options_model = WebhooksOptions
    failpoints = ("webhooks.staged", "webhooks.committed", "webhooks.answered", "webhooks.saved")
    options: WebhooksOptions
    capabilities = Capabilities(
        mode="append",
        # In the outbox. A receiver may get an event twice, always under the same id.
        exactly_once=True,
        remembers=True,
        atomic=False,
        batch_age=0.2,
        tells_by_definitions=True,
    )

    def __init__(self, options: WebhooksOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self._database = Database(options.url, pipeline, "outbox")
        self._index = OutboxIndex(self._database)
        storage = outbox_storage(options.path, pipeline, options.revealed_path_options)
        self._outbox = OpenOutbox(storage)
        if is_bucket(options.path):
            self.capabilities = replace(self.capabilities, batch_age=_BUCKET_BATCH_AGE)
        self._formats = {
            name: Formats(FormatOptions.model_validate(options.of_format(name)), pipeline)
            for name in FORMATS
        }
        self._asked = AskedViews(self._database)
        self._committing = threading.Lock()
        self._tables: dict[str, list[str]] = {}
        self._was_checked = False
        self._service: WebhookService | None = None
        self._registry: Registry | None = None

    def count_in(self, registry: Registry) -> None:
        self._registry = registry

    def check_beside(self) -> None:
        if self._service is not None:
            self._service.check()

    def check(self) -> Sequence[str]:
        self._database.check()
        # Of a folder it is asked whether executors see it (penstock.spark.shared_folders).
        if is_bucket(self.options.path):
            if self._was_checked:
                expect_answer(self._outbox.storage)
            else:
                expect_usable(self._outbox.storage)
            self._was_checked = True
        return ()

    def open(self) -> None:
        self._database.set_up()
        with _explained():
            self._outbox.storage.make_private()
            # Numbers start over with `penstock destroy`, and it may have left files behind.
            found = files_by_driver(self._outbox.storage)
            above = max(found.values(), default=0)
            driver, name = self._index.take_over(above, partial(self._mark, found))
            self._outbox = replace(self._outbox, prefix=prefix_of(driver), name=name)
            # No earlier driver can commit from here on: what it left behind is nobody's.
            committed = self._index.files()
            self._outbox.storage.delete_temporary()
            files = files_by_driver(self._outbox.storage).items()
            self._outbox.storage.delete(
                *(n for n, by in files if by < driver and n not in committed)
            )
        if self.options.deliver == "run":
            from penstock.destination.webhooks.delivery.service import WebhookService

            self._service = WebhookService(self.options, self.pipeline, self._registry)
            self._service.start()

    def come_from(self, source: SourceIdentity) -> None:
        self._outbox = replace(self._outbox, source=source.tag)

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        for formats in self._formats.values():
            formats.know(definitions)
        known = {t.qualified_name: [c.name for c in t.columns] for t in definitions}
        if known.items() <= self._tables.items():
            return
        self._index.know_tables(known)
        self._tables |= known

    def committed(self) -> Watermarks | None:
        return self._index.watermarks()

    def writer(self) -> OutboxWriter:
        return OutboxWriter(self._outbox, self._views())

    def commit(self, receipts: Sequence[Receipt], watermarks: Watermarks) -> None:
        written = [OutboxWritten.from_json(json.loads(receipt)) for receipt in receipts]
        with self._committing:
            _tell(self._index.commit(written, watermarks))
        failpoint("webhooks.committed")
        if self._service is not None:
            self._service.wake()

    # -- schema changes ------------------------------------------------------------------------

    def section_writer(self, changes: Sequence[SchemaChange]) -> TaskWriter:
        """Rows behind a schema change are encoded as their tables are from then on."""
        for change in changes:
            self.prepare([table.after for table in change.tables if table.after is not None])
        return self.writer()

    def schema_receipts(self, change: SchemaChange) -> Sequence[Receipt]:
        self.prepare([table.after for table in change.tables if table.after is not None])
        files = []
        for view in self._views():
            events = view.encoder.schema_change(change)
            if len(events):
                file = ViewFile(self._outbox, view.name)
                with _explained():
                    file.add(slim(events))
                    file.finish()
                files += file.files
        return [json.dumps(OutboxWritten(files, {}).to_json()).encode()]

    # -- copies --------------------------------------------------------------------------------

    def truncate_table(self, table: TableDefinition) -> None:
        """What was sent stays sent; the chunks of another copy are not those of this one."""
        self._index.forget_chunks(table.qualified_name)

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> OutboxChunkWriter:
        return OutboxChunkWriter(self._outbox, self._views())

    def chunk_ticket(self, table: TableDefinition, *, again: bool = False) -> Ticket:
        outbox = self._outbox
        return {"prefix": outbox.prefix, "source": outbox.source, "name": outbox.name}

    def ticket_writer(self, table: TableDefinition, ticket: Ticket) -> OutboxChunkWriter:
        self._outbox = replace(self._outbox, **ticket)
        with _explained():
            mark = self._outbox.storage.read_bytes(mark_of(int(self._outbox.prefix)))
            if not is_of(mark, self._outbox.name):
                raise not_seen_here(self.name, self._outbox.storage.path)
        for formats in self._formats.values():
            formats.know([table])
        return self.chunk_writer(table)

    def _mark(self, found: Iterable[str], driver: int, outbox: str) -> None:
        storage = self._outbox.storage
        if is_taken(storage, found, outbox):
            raise DestinationError(
                f"destination webhooks: {storage.path} is the outbox of another pipeline, which "
                "keeps its subscriptions in another database",
                remedy="give each a destination.path, or a name, of its own. If that pipeline is "
                "no more, remove what it has left there",
            )
        # The next driver removes it with what is nobody's.
        storage.write(mark_of(driver), outbox.encode(), durable=True)

    def commit_chunks(self, receipts: Sequence[ChunkReceipt]) -> None:
        for receipt in receipts:
            told = json.loads(receipt.content)
            with self._committing:
                # Files of one that stands already are removed by the next driver, if nobody's.
                written = OutboxWritten.from_json(told)
                _tell(self._index.commit_chunk(told["table"], told["chunk"], written))
        if self._service is not None:
            self._service.wake()

    # -- the rest ------------------------------------------------------------------------------

    def dead_letters(self) -> Mapping[str, int]:
        return dead_letters_in(self._database)

    def forget(self) -> Sequence[str]:
        if not self._database.has_tables():
            return ()
        # First what is there: without the row nobody knows whose it is.
        storage = self._outbox.storage
        with _explained():
            found = files_by_driver(storage)
            is_ours = not is_taken(storage, found, self._index.outbox())
            if is_ours:
                storage.delete_temporary()
                storage.delete(*found)
        self._database.forget()
        return ["position, subscriptions and outbox" if is_ours else "position and subscriptions"]

    def close(self) -> None:
        if self._service is not None:
            self._service.stop()
            self._service = None
        self._database.close()

    def _views(self) -> tuple[EventView, ...]:
        """One for each pair of format and conditions that somebody waits for."""
        return tuple(self._view(name, asked) for name, asked in self._asked.now().items())

    def _view(self, name: str, asked: Asked) -> EventView:
        wanted = FilterConfig.model_validate(
            {
                "tables": {"include": asked.tables},
                "operations": {"include": asked.operations},
            }
        )
        conditions = None
        if asked.rows:
            conditions = Filter(FilterConfig.model_validate({"rows": asked.rows}))
        oversize = Oversize("webhooks", _NO_LIMIT, "error", "leave out large columns")
        encoder = Encoder(
            self._formats[asked.format].format(), LaneOptions(by=self.options.order), oversize
        )
        return EventView(name, Filter(wanted), conditions, encoder)


def _tell(ended: Sequence[str]) -> None:
    """Of subscriptions whose conditions do not suit a table: nothing more is encoded for them."""
    for said in ended:
        _log.warning("webhooks: a subscription ends: %s", *(said,), extra={"event": "webhook_ends"})


@contextmanager
def _explained() -> Iterator[None]:
    """What the outbox's folder refuses, as the destination's error."""
    try:
        yield
    except LogUnavailable as error:
        raise DestinationUnavailable(
            f"destination webhooks: {error.message}", remedy=error.remedy
        ) from error
    except LogError as error:
        raise DestinationError(
            f"destination webhooks: {error.message}", remedy=error.remedy
        ) from error

"""Every metric, once. docs/metrics.md has the same table, and a test compares the two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_COUNTS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)


@dataclass(frozen=True)
class Metric:
    """What is measured. Beside ``labels`` every one has the label ``pipeline``."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


RECEIVED_MESSAGES = Metric(
    "penstock_received_messages_total",
    "counter",
    "Messages that capture got from the server, with those that begin and end transactions.",
)
RECEIVED_BYTES = Metric(
    "penstock_received_bytes_total", "counter", "The size of the messages that capture got."
)
RECEIVED_TRANSACTIONS = Metric(
    "penstock_received_transactions_total", "counter", "Transactions that capture got the end of."
)
RECEIVED_CHANGES = Metric(
    "penstock_received_changes_total",
    "counter",
    "Changes that capture wrote to the change log: rows, truncates and logical messages.",
)
LEFT_OUT_MESSAGES = Metric(
    "penstock_left_out_messages_total",
    "counter",
    "Logical messages that source.messages does not ask for.",
)
FORGED_MESSAGES = Metric(
    "penstock_forged_messages_total",
    "counter",
    "Logical messages that pretend to be of the source's triggers; they are left out.",
)
CAPTURE_STREAMING = Metric(
    "penstock_capture_streaming", "gauge", "1 while capture reads the slot, else 0."
)
CAPTURE_BUFFERED = Metric(
    "penstock_capture_buffered_bytes", "gauge", "What capture holds and has not cut a segment of."
)
LOG_BYTES = Metric("penstock_change_log_bytes", "gauge", "The size of the change log.")

BATCHES = Metric("penstock_batches_total", "counter", "Micro-batches with changes, committed.")
DELIVERED = Metric(
    "penstock_delivered_changes_total",
    "counter",
    "Changes of the stream that the destination holds, counted when their batch is committed.",
    ("table", "op"),
)
FILTERED = Metric(
    "penstock_filtered_changes_total",
    "counter",
    "Changes and copied rows that the filter kept out, by what did: table, operation or row.",
    ("table", "reason"),
)
ENCODED_MESSAGES = Metric(
    "penstock_encoded_messages_total", "counter", "Messages that changes became, for a queue."
)
ENCODED_BYTES = Metric(
    "penstock_encoded_bytes_total", "counter", "The size of these messages, as executors pass them."
)
RESENT = Metric(
    "penstock_resent_messages_total",
    "counter",
    "Messages that a queue did not take at first, and that were sent again (Kinesis, RabbitMQ).",
)
UNROUTABLE = Metric(
    "penstock_unroutable_messages_total",
    "counter",
    "Messages that no queue was bound for, and that are dropped (RabbitMQ, unroutable: count).",
)
TASK_SECONDS = Metric(
    "penstock_task_seconds_total",
    "counter",
    "Time of tasks on executors: read (with filter), encode, shuffle, write.",
    ("stage",),
)
BATCH_SECONDS = Metric(
    "penstock_batch_seconds",
    "histogram",
    "From the start of a batch's job to the end of its commit.",
    buckets=_SECONDS,
)
BATCH_CHANGES = Metric(
    "penstock_batch_changes", "histogram", "Changes delivered by a batch.", buckets=_COUNTS
)
BATCH_WAIT = Metric(
    "penstock_batch_wait_seconds",
    "histogram",
    "How long a batch that tasks had written waited until its commit began.",
    buckets=_SECONDS,
)
COMMIT_SECONDS = Metric(
    "penstock_commit_seconds", "histogram", "How long a commit took.", buckets=_SECONDS
)
SCHEMA_CHANGES = Metric(
    "penstock_schema_changes_total", "counter", "Changes of tables that were followed."
)
LAG_BYTES = Metric(
    "penstock_lag_bytes", "gauge", "WAL that the source has written and the destination lacks."
)
LAG_SECONDS = Metric(
    "penstock_lag_seconds",
    "gauge",
    "How old the state is that the destination holds; 0 when it lacks nothing.",
)
UNCONFIRMED_BYTES = Metric(
    "penstock_unconfirmed_bytes", "gauge", "WAL that the source keeps for the slot."
)

COPIED_ROWS = Metric("penstock_copied_rows_total", "counter", "Rows copied.", ("table",))
COPIED_BYTES = Metric("penstock_copied_bytes_total", "counter", "Their size.", ("table",))
COPIED_CHUNKS = Metric("penstock_copied_chunks_total", "counter", "Chunks copied.", ("table",))
COPY_REMAINING = Metric(
    "penstock_copy_remaining_bytes",
    "gauge",
    "About how much of a table is still to be copied, as the source's disk has it.",
    ("table",),
)
NOTES = Metric(
    "penstock_table_notes",
    "gauge",
    "What the destination could not make of tables (indexes, constraints), and what they lack: see "
    "`penstock status`.",
)
TABLES = Metric("penstock_tables", "gauge", "Tables by their state.", ("phase",))

FAILURES = Metric(
    "penstock_failures_total",
    "counter",
    "Errors that interrupted something, by their kind (the names in src/penstock/model/errors.py).",
    ("component", "error"),
)
RETRIES = Metric(
    "penstock_retries_total",
    "counter",
    "What was begun again: batches, units of a copy, tasks, the capture process.",
    ("component",),
)
SETBACKS = Metric(
    "penstock_destination_setbacks_total",
    "counter",
    "How often the destination held less than it had said before: it failed over and lost commits.",
)
WEBHOOK_DELIVERED = Metric(
    "penstock_webhook_delivered_events_total", "counter", "Events that receivers took (webhooks)."
)
WEBHOOK_FAILED = Metric(
    "penstock_webhook_failed_requests_total",
    "counter",
    "Requests to receivers that brought nothing there: later (asked to try again), away (no "
    "answer), refused, gone.",
    ("reason",),
)
WEBHOOK_SECONDS = Metric(
    "penstock_webhook_request_seconds",
    "histogram",
    "How long a request to a receiver took, whatever became of it.",
    buckets=_SECONDS,
)
WEBHOOK_SUBSCRIPTIONS = Metric(
    "penstock_webhook_subscriptions",
    "gauge",
    "Subscriptions by their state: active, failing (active, and nothing is taken), paused, "
    "disabled.",
    ("state",),
)
WEBHOOK_BEHIND = Metric(
    "penstock_webhook_behind_subscriptions",
    "gauge",
    "Active subscriptions that lack events of the outbox.",
)

CATALOGUE = tuple(value for value in list(globals().values()) if isinstance(value, Metric))

OF_WEBHOOKS = (
    *(WEBHOOK_DELIVERED, WEBHOOK_FAILED, WEBHOOK_SECONDS),
    *(WEBHOOK_SUBSCRIPTIONS, WEBHOOK_BEHIND),
)
"""What is counted where webhooks are delivered."""

OF_CAPTURE = (
    *(RECEIVED_MESSAGES, RECEIVED_BYTES, RECEIVED_TRANSACTIONS, RECEIVED_CHANGES),
    *(LEFT_OUT_MESSAGES, FORGED_MESSAGES, CAPTURE_STREAMING, CAPTURE_BUFFERED),
    *(LOG_BYTES, UNCONFIRMED_BYTES),
)
"""What capture says of itself: once, however many destinations read its log."""

RUNNING = Metric(
    "penstock_destination_running",
    "gauge",
    "1 while the process of a destination runs, where the pipeline has several.",
    ("destination",),
)

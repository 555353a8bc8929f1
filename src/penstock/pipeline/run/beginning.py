"""Where a destination begins that has never been delivered to."""

from __future__ import annotations

import time

from penstock.changelog import chain
from penstock.changelog.changelog import ChangeLog, ReaderState
from penstock.config.models import PipelineConfig
from penstock.model.errors import LogError
from penstock.model.lsn import Frontier
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.run.held import held_by
from penstock.source.contract import Subscription

# Longer than capture takes to look at its readers, beside the pace of the storage.
_NOTICE_SECONDS = 0.5
_MOST_TRIES = 20


def begin_all(config: PipelineConfig, log: ChangeLog, subscription: Subscription) -> None:
    """Whoever made the subscription writes all destinations of the file down as readers at its
    beginning: whenever they come, they get what was written since. So does who finds it made and
    the log still empty: the other one may have died in between.
    """
    if not config.is_one_of_many:
        return
    if not subscription.is_new and log.list().frontier is not None:
        return
    start = Frontier(0, subscription.start_lsn)
    for name in config.deliveries.values():
        if log.reader(name) is None:
            log.set_reader(name, start, begin=start, durable=True)


def beginning(context: RunContext, subscription: Subscription) -> Frontier:
    """Where the destination stands if it does not know: where it began.

    The only destination began with the slot. One of several may have come later; then it takes its
    place at the end of the log, or with `from: log` at the beginning, and is written down as a
    reader before anything is delivered: from then on capture keeps what it needs. Raises LogError
    where `from: log` asks for more than the log has.
    """
    config, log = context.config, context.log
    begin_all(config, log, subscription)
    start = Frontier(0, subscription.start_lsn)
    if not config.is_one_of_many:
        return start
    recorded = log.reader(config.delivery)
    if recorded is not None and not _was_cut_off(context, recorded):
        return recorded.begin or start
    if recorded is None and (
        held_by(context.destination, log) is not None or context.store.get_table_states()
    ):
        # It was delivered to. What the log has lost of it must not be taken for a new beginning.
        return start
    for _ in range(_MOST_TRIES):
        begin = start if config.replays_log else log.list().frontier or start
        log.set_reader(
            config.delivery, begin, 0, context.session.seen().identity, begin, durable=True
        )
        # What others passed long ago may go at any moment, whatever the grace period.
        _let_capture_notice(log, 0.0 if config.replays_log else config.change_log.grace)
        if not chain.lacks(log.list().segments, begin):
            return begin
        if config.replays_log:
            break
    log.remove_reader(config.delivery)
    if config.replays_log:
        raise LogError(
            f"destination {config.destination_name} is to begin with the change log (from: log), "
            "but the log no longer reaches back to the pipeline's beginning: what others had "
            "taken is gone from it",
            remedy="leave `from: log` out: then the destination begins with a copy of the tables",
        )
    raise LogError(
        f"destination {config.destination_name} finds no place to begin: the change log is "
        "removed faster than a new reader is noticed",
        remedy="raise change_log.grace, and start capture and this destination again",
    )


def _was_cut_off(context: RunContext, recorded: ReaderState) -> bool:
    """Whether the run that wrote the reader down ended before it saw that the log lacks what it
    needs: nothing was delivered yet, so it may still begin elsewhere, or be refused.
    """
    return (
        recorded.frontier == recorded.begin
        and context.destination.committed() is None
        and not context.store.get_table_states()
        and chain.lacks(context.log.list().segments, recorded.frontier)
    )


def _let_capture_notice(log: ChangeLog, grace: float) -> None:
    """A capture that runs looks at its readers now and then. What it has not removed after that,
    it keeps; with a longer grace period it removes nothing so soon anyway.
    """
    notices = log.readers.pace.readers + _NOTICE_SECONDS
    if grace <= notices:
        time.sleep(notices)

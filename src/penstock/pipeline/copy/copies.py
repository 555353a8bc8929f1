"""A copy manager with everything that it needs."""

from __future__ import annotations

from penstock.config.models import CopyConfig
from penstock.pipeline.copy.copy_manager import CopyManager
from penstock.pipeline.copy.copy_settings import CopySettings
from penstock.pipeline.copy.copy_state import Positions
from penstock.pipeline.copy.copy_target import CopyTarget
from penstock.pipeline.copy.copy_work import CopiesEnd, CopyWork
from penstock.pipeline.copy.finish_copies import FinishAtOnce, FinishCopies
from penstock.pipeline.copy.replay import Replay
from penstock.pipeline.copy.schema_copy import schema_copy
from penstock.pipeline.run.batch_committer import BatchCommitter
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.run.joins import CurrentJoins
from penstock.pipeline.tables.registry import TableRegistry


def make_copies(
    context: RunContext, tables: TableRegistry, committer: BatchCommitter, joins: CurrentJoins
) -> CopyManager:
    """For a pipeline with a stream, beside which tables are copied."""
    end = CopiesEnd()
    source = context.source.copies(context.file, end.check)
    target = CopyTarget(context.destination, committer.lock)
    replay = Replay(context, target, committer, end.check)
    finish = FinishCopies(context.store, target, tables, replay, source, joins)
    schema = schema_copy(source, context.destination, followed=True)
    work = CopyWork(source, target, finish, end, schema, context.transform)
    return CopyManager(context, tables, committer, work, _settings(context))


def make_copies_only(
    context: RunContext, tables: TableRegistry, positions: Positions
) -> CopyManager:
    """For copies at one point, with no stream."""
    end = CopiesEnd()
    source = context.source.copies(context.file, end.check)
    target = CopyTarget(context.destination)
    finish = FinishAtOnce(target, context.store, tables.refuse)
    schema = schema_copy(source, context.destination, followed=False)
    work = CopyWork(source, target, finish, end, schema, context.transform)
    return CopyManager(context, tables, positions, work, _settings(context, one_snapshot=True))


def _settings(context: RunContext, *, one_snapshot: bool = False) -> CopySettings:
    copy = context.config.source.copy_rows or CopyConfig()
    return CopySettings(
        parallelism=copy.parallelism or context.engine.parallelism,
        leaves_room=copy.parallelism is None and not one_snapshot,
        unit_bytes=copy.chunk_bytes,
        one_snapshot=one_snapshot,
        keeps_foreign_rows=copy.existing_rows == "refuse",
        pause_over_budget=copy.on_max_wal == "pause",
    )

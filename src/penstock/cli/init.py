"""`penstock init`: publication, slot and triggers, made when all checks pass."""

from __future__ import annotations

from penstock.cli.pipeline_argument import PipelineFile, load_deliveries
from penstock.cli.terminal import say
from penstock.model.lsn import format_lsn


def init(file: PipelineFile) -> None:
    """Create the pipeline's publication and replication slot, and the triggers for schema changes.

    Runs all checks first and creates nothing when one fails. Running it again changes nothing.
    From now on the source keeps its WAL for this pipeline: start `penstock run` soon, or remove
    everything with `penstock destroy`.

    \b
    Example:
      penstock init shop.yaml
    """
    from penstock.changelog.changelog import ChangeLog
    from penstock.pipeline.run.beginning import begin_all
    from penstock.source.postgres.connect import connect
    from penstock.source.postgres.preflight.all_checks import require_passed
    from penstock.source.postgres.subscription.subscription import ensure_subscription
    from penstock.source.postgres.tracking.schema_tracking import ensure_tracking
    from penstock.source.registry import expect_postgres
    from penstock.spark.preflight import run_all_checks

    views = load_deliveries(file)
    config = views[0]
    expect_postgres(config, "init")
    results = run_all_checks(*views)
    require_passed(results)
    for result in results:
        if result.status == "warning":
            say(f"Warning: {result.name}: {result.detail}")
    with connect(config.source.url, application_name=f"penstock {config.name} init") as conn:
        # First of all: what the slot brings is told completely.
        is_tracked = config.schema_changes.track and ensure_tracking(conn)
        subscription = ensure_subscription(conn, config)
    log = ChangeLog.of(config.change_log)
    if config.is_one_of_many:
        log.root.make_private()
        begin_all(config, log, subscription)
    if is_tracked:
        say("Event triggers that tell of schema changes (docs/schema_changes.md).")
    say(f"Publication {subscription.publication} with {len(subscription.tables)} tables.")
    say(f"Replication slot {subscription.slot}, from {format_lsn(subscription.start_lsn)} on.")

"""`penstock capture`: the capture process alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.arrow_alone import keep_pandas_out
from penstock.cli.pipeline_argument import PipelineFile, load_deliveries
from penstock.model.errors import PenstockError

if TYPE_CHECKING:
    from penstock.config import PipelineConfig
    from penstock.model.watermarks import Watermarks


def capture(
    file: PipelineFile,
    supervised: Annotated[
        bool, typer.Option("--supervised", hidden=True, help="Stop when standard input ends.")
    ] = False,
    stand_by: Annotated[
        bool, typer.Option("--stand-by", hidden=True, help="Wait while another one captures.")
    ] = False,
) -> None:
    """Write changes from the replication slot into the change log, and nothing else.

    `penstock run` starts it by itself. Use it alone where capture runs on another machine than
    Spark, with the change log on shared storage, or to feed your own Spark jobs
    (`confirm: log`). It stops in order on Ctrl-C or SIGTERM.

    \b
    Example:
      penstock init shop.yaml
      penstock capture shop.yaml
    """
    keep_pandas_out()
    from penstock.changelog.changelog import ChangeLog
    from penstock.config.kafka_source import KafkaPipelineConfig
    from penstock.source.capture.sessions import report_failure
    from penstock.source.capture.stop import Stop
    from penstock.source.postgres.capture.process import run_capture

    stop = Stop(supervised=supervised)
    stop.install()
    views = {config.destination_name: config for config in load_deliveries(file)}
    config = next(iter(views.values()))
    log = ChangeLog.of(config.change_log)
    try:
        if isinstance(config, KafkaPipelineConfig):
            from penstock.source.registry import capture_topics

            capture_topics(config, stop, stands_by=stand_by)
            return
        # A supervisor has written it down beside the log: capture must be able to start while the
        # destination is away.
        held = None if supervised or config.is_one_of_many else _held(config)
        run_capture(config, held, stop, ask=lambda name: _held(views[name]), stands_by=stand_by)
    except PenstockError as error:
        report_failure(stop.link, log, error)
        if supervised:
            # The supervisor tells the person.
            raise typer.Exit(1) from None
        raise


def _held(config: PipelineConfig) -> Watermarks | None:
    """What the destination holds; None where it does not remember."""
    from penstock.destination.registry import make_destination

    destination = make_destination(
        config.destination_type, config.destination_options, config.delivery
    )
    try:
        return destination.committed()
    finally:
        destination.close()

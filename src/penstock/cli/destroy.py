"""`penstock destroy`: remove what the pipeline has in its source and its store, then its log."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.pipeline_argument import PipelineFile, load_pipeline
from penstock.cli.terminal import say
from penstock.model.errors import DestinationUnavailable, LogError

if TYPE_CHECKING:
    from penstock.config import PipelineConfig

# What a change log consists of. Anything else in its folder is somebody's, and stays.
_LOG_ENTRIES = {
    *("segments", "readers", "epochs", "snapshots", "runs"),
    *("log.json", "tables.json", "capture.json", "barrier.json"),
}


def destroy(
    file: PipelineFile,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove the pipeline's slot, publication, table states, position and change log.

    The destination keeps its data, dead letters included.

    Afterwards the source keeps no WAL for this pipeline, and a new start begins at that moment:
    changes in between are not delivered. Refused while the pipeline runs.

    \b
    Example:
      penstock destroy shop.yaml
      penstock destroy shop.yaml --yes
    """
    from penstock.source.postgres.connect import connect
    from penstock.source.postgres.pipeline_lock import PipelineLock
    from penstock.source.postgres.subscription.subscription import (
        destroy_subscription,
        has_pipelines,
    )
    from penstock.source.postgres.tracking.schema_tracking import remove_tracking

    config = load_pipeline(file)
    if not yes:
        typer.confirm(
            f"Remove slot and publication of pipeline {config.name} from {config.source.url}, its "
            f"table states{_store_place(config)}, and the change log {config.change_log.path}?",
            abort=True,
        )
    # The log goes last: without it, an interrupted destroy could not be told from a fresh start.
    with (
        connect(config.source.url, application_name=f"penstock {config.name} destroy") as conn,
        PipelineLock(conn, config.name),
    ):
        removed = destroy_subscription(conn, config.name)
        if not has_pipelines(conn):
            removed += remove_tracking(conn)
        removed += _forget_position(config)
        removed += _forget_tables(config)
        removed += remove_change_log(config)
    for what in removed:
        say(f"Removed {what}.")
    if not removed:
        say(f"There was nothing of pipeline {config.name} to remove.")


def _store_place(config: PipelineConfig) -> str:
    return f" from {config.store.url}" if config.store.url else ""


def _forget_position(config: PipelineConfig) -> list[str]:
    """Remove what the destination keeps about the pipeline; says what was removed."""
    from penstock.destination.registry import make_destination

    destination = make_destination(config.destination_type, config.destination_options, config.name)
    try:
        return list(destination.forget())
    except DestinationUnavailable as error:
        say(f"Warning: {error.message}. What it keeps about the pipeline was not removed.")
        return []
    finally:
        destination.close()


def _forget_tables(config: PipelineConfig) -> list[str]:
    """Remove what the store keeps of the pipeline's tables; says what was removed."""
    from penstock.store import pipeline_store

    with pipeline_store(config) as store:
        return [f"table states{_store_place(config)}"] if store.forget_pipeline() else []


def remove_change_log(config: PipelineConfig) -> list[str]:
    """Delete the change log; says what was removed.

    Raises LogError, with nothing removed, where its place holds anything but a change log.
    """
    from penstock.changelog.changelog import ChangeLog

    root = ChangeLog.of(config.change_log).root
    found = root.entries()
    if not found and (config.change_log.is_remote or not Path(root.path).is_dir()):
        return []
    if foreign := found - _LOG_ENTRIES:
        raise LogError(
            f"{root.path} holds more than a change log ({', '.join(sorted(foreign)[:5])}); it was "
            "not removed. Slot, publication and table states are gone.",
            remedy="Check change_log.path. If it is right, move the other files away and run the "
            "command again.",
        )
    root.destroy()
    if not config.change_log.is_remote:
        _remove_default_folders(Path(root.path), config.name)
    return [f"change log {root.path}"]


def _remove_default_folders(folder: Path, pipeline: str) -> None:
    """Those that the default path brought with it go too, once nothing is in them."""
    for parent, name in zip(folder.parents, (pipeline, ".penstock"), strict=False):
        if parent.name != name:
            break
        with suppress(OSError):
            parent.rmdir()

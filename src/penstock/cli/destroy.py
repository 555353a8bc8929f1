"""`penstock destroy`: remove what the pipeline has in its source and its store, then its log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.pipeline_argument import PipelineFile, load_deliveries
from penstock.cli.terminal import say
from penstock.model.errors import ConfigError, DestinationUnavailable, LogError

if TYPE_CHECKING:
    from penstock.changelog.storage.contract import Storage
    from penstock.config import PipelineConfig

# What a change log consists of. Anything else in its folder is somebody's, and stays.
_LOG_ENTRIES = {
    *("segments", "readers", "epochs", "snapshots", "runs"),
    *("log.json", "tables.json", "capture.json", "barrier.json"),
    *("kafka_source.json", "kafka_tables.json", "check"),
}
# What `penstock check` leaves there if it is killed, beside the folder of that name.
_PROBE = re.compile(r"check-[0-9a-f]{32}")


def destroy(
    file: PipelineFile,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            "--destination",
            metavar="NAME",
            help="Give up this destination alone; also one that the file names no longer.",
        ),
    ] = None,
) -> None:
    """Remove the pipeline's slot, publication, table states, position and change log.

    The destination keeps its data, dead letters included.

    Afterwards the source keeps no WAL for this pipeline, and a new start begins at that moment:
    changes in between are not delivered. Refused while the pipeline runs.

    With --only, one of several destinations is given up: its position, its table states and what
    the change log keeps for it. The others are not touched, and may run meanwhile.

    \b
    Example:
      penstock destroy shop.yaml
      penstock destroy shop.yaml --yes
      penstock destroy shop.yaml --only warehouse
    """
    views = load_deliveries(file)
    if only is None or (only == views[0].name and not views[0].is_one_of_many):
        _destroy_all(views, yes=yes)
    else:
        _destroy_one(views, only, yes=yes)


def _destroy_all(views: Sequence[PipelineConfig], *, yes: bool) -> None:
    from penstock.changelog.changelog import ChangeLog
    from penstock.config.kafka_source import KafkaPipelineConfig
    from penstock.source.postgres.connect import connect
    from penstock.source.postgres.pipeline_lock import PipelineLock
    from penstock.source.postgres.subscription.subscription import (
        destroy_subscription,
        has_pipelines,
    )
    from penstock.source.postgres.tracking.schema_tracking import remove_tracking
    from penstock.source.registry import forget_group

    config = views[0]
    # First: what comes before it is gone then.
    _require_no_more(ChangeLog.of(config.change_log).root, "nothing was removed")
    if not yes:
        typer.confirm(
            f"Remove slot and publication of pipeline {config.name} from {config.source.url}, its "
            f"table states{_store_place(config)}, and the change log {config.change_log.path}?",
            abort=True,
        )
    names = sorted({config.name, *_known(config)})
    # The log goes last: without it, an interrupted destroy could not be told from a fresh start.
    with (
        connect(config.source.url, application_name=f"penstock {config.name} destroy") as conn,
        ExitStack() as locks,
    ):
        if config.is_one_of_many:
            locks.enter_context(PipelineLock(conn, config.name, what="supervisor", beats=False))
        for name in names:
            locks.enter_context(PipelineLock(conn, name, beats=name == config.name))
        if isinstance(config, KafkaPipelineConfig):
            removed = forget_group(config)
        else:
            removed = destroy_subscription(conn, config.name)
            if not has_pipelines(conn):
                removed += remove_tracking(conn)
        for view in views:
            removed += _forget_position(view)
        for name in names:
            removed += _forget_tables(config, name)
        removed += remove_change_log(config)
    for what in dict.fromkeys(removed):
        say(f"Removed {what}.")
    if not removed:
        say(f"There was nothing of pipeline {config.name} to remove.")


def _destroy_one(views: Sequence[PipelineConfig], only: str, *, yes: bool) -> None:
    """Give up one destination: its position, its table states, and last its place in the log."""
    from penstock.changelog.changelog import ChangeLog
    from penstock.config.models import delivery_name
    from penstock.source.postgres.connect import connect
    from penstock.source.postgres.pipeline_lock import PipelineLock
    from penstock.source.postgres.snapshot.held_snapshots import forget_snapshots

    config = views[0]
    view = next((each for each in views if each.destination_name == only), None)
    delivery = delivery_name(config.name, only)
    if view is None and delivery not in (known := _known(config)):
        shown = sorted(name.removeprefix(f"{config.name}.") for name in known)
        raise ConfigError(
            f"Pipeline {config.name} has no destination {only}; nothing was removed.",
            remedy=f"It has {', '.join(shown)}.",
        )
    if not yes:
        typer.confirm(
            f"Give up destination {only} of pipeline {config.name}: its position, its table "
            f"states{_store_place(config)} and its place in the change log? The others go on.",
            abort=True,
        )
    log = ChangeLog.of(config.change_log)
    removed: list[str] = []
    with (
        connect(config.source.url, application_name=f"penstock {delivery} destroy") as conn,
        PipelineLock(conn, delivery),
    ):
        if view is not None:
            removed += _forget_position(view)
            forget_snapshots(view)
        removed += _forget_tables(config, delivery, with_rules=False)
        if log.reader(delivery) is not None:
            log.remove_reader(delivery)
            removed.append(f"its place in the change log {log.root.path}")
    for what in removed:
        say(f"Removed {what}.")
    if view is None:
        say(
            f"The file does not name {only}: what the destination itself keeps about the pipeline "
            "was not removed."
        )
    else:
        say(f"Take {only} out of the file before the next start: else it begins anew.")


def _known(config: PipelineConfig) -> set[str]:
    """All destinations of the pipeline: those of the file, and those that read the log once."""
    from penstock.changelog.changelog import ChangeLog

    readers = ChangeLog.of(config.change_log).all_readers()
    own = {name for name in readers if name.partition(".")[0] == config.name}
    return own | set(config.deliveries.values())


def _store_place(config: PipelineConfig) -> str:
    return f" from {config.store.url}" if config.store.url else ""


def _forget_position(config: PipelineConfig) -> list[str]:
    """Remove what the destination keeps about the pipeline; says what was removed."""
    from penstock.destination.registry import make_destination

    destination = make_destination(
        config.destination_type, config.destination_options, config.delivery
    )
    try:
        return list(destination.forget())
    except DestinationUnavailable as error:
        say(f"Warning: {error.message}. What it keeps about the pipeline was not removed.")
        return []
    finally:
        destination.close()


def _forget_tables(config: PipelineConfig, delivery: str, *, with_rules: bool = True) -> list[str]:
    """Remove what the store keeps of a destination's tables; says what was removed."""
    from penstock.store import pipeline_store

    with pipeline_store(config, delivery) as store:
        removed = store.forget_pipeline(with_rules=with_rules)
        return [f"table states{_store_place(config)}"] if removed else []


def remove_change_log(config: PipelineConfig) -> list[str]:
    """Delete the change log; says what was removed.

    Raises LogError, with nothing removed, where its place holds anything but a change log.
    """
    from penstock.changelog.changelog import ChangeLog

    root = ChangeLog.of(config.change_log).root
    found = _require_no_more(
        root, "it was not removed. Slot, publication and table states are gone"
    )
    if not found and (config.change_log.is_remote or not Path(root.path).is_dir()):
        return []
    root.destroy()
    if not config.change_log.is_remote:
        _remove_default_folders(Path(root.path), config.name)
    return [f"change log {root.path}"]


def _require_no_more(root: Storage, what_is_done: str) -> set[str]:
    """What is in the log's place. Raises LogError where some of it is none of a change log's."""
    found = root.entries()
    foreign = sorted(name for name in found - _LOG_ENTRIES if _PROBE.fullmatch(name) is None)
    if foreign:
        raise LogError(
            f"{root.path} holds more than a change log ({', '.join(foreign[:5])}); {what_is_done}.",
            remedy="Check change_log.path. If it is right, move the other files away and run the "
            "command again.",
        )
    return found


def _remove_default_folders(folder: Path, pipeline: str) -> None:
    """Those that the default path brought with it go too, once nothing is in them."""
    for parent, name in zip(folder.parents, (pipeline, ".penstock"), strict=False):
        if parent.name != name:
            break
        with suppress(OSError):
            parent.rmdir()

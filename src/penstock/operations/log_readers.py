"""Who reads a pipeline's change log without standing in its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.changelog.status import LogStatus
    from penstock.config import PipelineConfig


def unnamed_readers(config: PipelineConfig, log: LogStatus) -> list[str]:
    """Destinations that read the log once, and that the file does not name any more, as the file
    called them. The log is kept for them as for any other.
    """
    named = set(config.deliveries.values())
    return sorted(
        name.removeprefix(f"{config.name}.")
        for name in log.readers
        if name not in named and (name == config.name or name.startswith(f"{config.name}."))
    )

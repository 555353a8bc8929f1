"""What a worker on another machine has to see of a destination."""

from __future__ import annotations

from penstock.model.errors import ConfigError


def not_seen_here(destination: str, place: str) -> ConfigError:
    """Raised by ``ticket_writer``: what the driver left at a place is not there."""
    return ConfigError(
        f"destination {destination}: what the driver of the pipeline left at {place} is not there "
        "on this machine, so chunks that are written here would never reach it",
        remedy="let both machines see the same folder under this path (or a bucket), or start "
        "`penstock copy` where `penstock run` runs",
    )

"""Numbers and states as a person reads them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from penstock.model.quantity_text import bytes_text

UNKNOWN = "–"  # noqa: RUF001 (as in any printed table)

HEALTH_WORDS: Mapping[str, tuple[str, str]] = {
    "healthy": ("check_circle", "healthy"),
    "settling": ("hourglass_top", "settling"),
    "starting": ("rocket_launch", "starting"),
    "failing": ("error", "failing"),
    "stopped": ("stop_circle", "stopped"),
}
"""Icon and word of each health: nobody has to tell colours apart."""

PHASE_WORDS: Mapping[str, tuple[str, str]] = {
    "init": ("schedule", "waiting"),
    "data_sync": ("downloading", "copying"),
    "finished_copy": ("download_done", "copied"),
    "sync_wait": ("hourglass_top", "joining"),
    "catchup": ("fast_forward", "catching up"),
    "sync_done": ("done", "caught up"),
    "ready": ("check_circle", "ready"),
    "errored": ("error", "errored"),
}


def seconds_text(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if value < 10:
        return f"{value:.1f} s"
    if value < 120:
        return f"{value:.0f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h"


def size_text(value: float | None) -> str:
    return UNKNOWN if value is None else bytes_text(int(value))


def rate_text(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if value >= 1_000_000:
        return f"{value / 1e6:.1f} M/s"
    if value >= 10_000:
        return f"{value / 1e3:.0f} k/s"
    return f"{value:,.0f}/s" if value >= 10 or value == 0 else f"{value:.1f}/s"


def time_text(value: datetime | None) -> str:
    return UNKNOWN if value is None else f"{value.astimezone():%Y-%m-%d %H:%M:%S}"


def clock_text(iso: str) -> str:
    try:
        return f"{datetime.fromisoformat(iso).astimezone():%H:%M:%S}"
    except ValueError:
        return iso[:19]


def spark_points(values: Sequence[float], width: int = 120, height: int = 28) -> str:
    """The points of a line that fills a small picture; nothing for fewer than two values."""
    if len(values) < 2:
        return ""
    top = max(values) or 1.0
    step = width / (len(values) - 1)
    return " ".join(
        f"{index * step:.1f},{height - 1 - (height - 2) * value / top:.1f}"
        for index, value in enumerate(values)
    )

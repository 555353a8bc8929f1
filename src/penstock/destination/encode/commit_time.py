"""When a transaction was committed, which comes as microseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def committed_at(micros: int) -> datetime:
    """Exact, unlike what a float of seconds would give."""
    return _EPOCH + timedelta(microseconds=micros)


def commit_time_text(micros: int) -> str:
    """As docs/change_json.md says: UTC, six digits of microseconds, ``Z``."""
    return committed_at(micros).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"

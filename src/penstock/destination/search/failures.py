"""What the answers of a search server mean for a pipeline."""

from __future__ import annotations

from typing import Any

from penstock.model.errors import DestinationError, DestinationUnavailable

BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that may pass by themselves, of a request or of one document."""

_RIGHTS = "grant the user or key the privileges that docs/destinations/search.md lists"
_BLOCKS = (
    "see which block it is (`GET _cluster/settings`, `GET <index>/_settings`); a full disk is "
    "mostly why: make room, and the server lifts it"
)


def reason(body: Any) -> tuple[str, str]:
    """The type and the text of an error, as far as there are any."""
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        cause = error.get("caused_by") or {}
        text = str(error.get("reason", ""))
        if isinstance(cause, dict) and cause.get("reason"):
            text += f" ({cause['reason']})"
        return str(error.get("type", "")), text
    return "", str(error if error is not None else body)[:500]


def failure(url: str, doing: str, status: int, body: Any) -> DestinationError:
    """An answer that is no success, as an error of ours."""
    kind, text = reason(body)
    message = f"destination search: {doing} at {url} failed with status {status}: {text}"
    if "cluster_block" in kind:
        return DestinationUnavailable(message, remedy=_BLOCKS)
    if status in BUSY:
        return unavailable(message)
    if status in (401, 403):
        return DestinationError(message, remedy=_RIGHTS)
    return DestinationError(message, remedy="see the options of the destination")


def unavailable(message: str) -> DestinationUnavailable:
    return DestinationUnavailable(
        message, remedy="see whether the server can be reached, and what its log says"
    )

"""Quantities as people read them."""

from __future__ import annotations


def bytes_text(count: int | None) -> str:
    """A number of bytes as people read it."""
    if count is None:
        return "unknown"
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"

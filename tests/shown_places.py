"""What running processes show of themselves: their arguments, and the pages that they serve."""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from contextlib import suppress

import psutil


def shown_by(pid: int) -> dict[str, bytes]:
    """By place, of a process and all that it started. Fails where no page was found."""
    places: dict[str, bytes] = {}
    served = 0
    for process in [psutil.Process(pid), *psutil.Process(pid).children(True)]:
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            places[f"arguments of {process.pid}"] = " ".join(process.cmdline()).encode()
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    pages = _pages(connection.laddr.port)
                    served += len(pages)
                    places |= {page: _read(page) for page in pages}
    assert served > 3, "Spark's page and the metrics were looked at"
    return places


def _pages(port: int) -> list[str]:
    base = f"http://127.0.0.1:{port}"
    if not _read(f"{base}/health", seconds=2):
        return []  # a port of py4j, of Spark's own protocol, or of a worker
    paths = ("metrics", "health", "environment/", "executors/", "StreamingQuery/", "SQL/")
    found = [f"{base}/{path}" for path in paths if _read(f"{base}/{path}")]
    applications = _read(f"{base}/api/v1/applications").decode(errors="replace")
    for application in re.findall(r'"id"\s*:\s*"([^"]+)"', applications):
        found += [
            f"{base}/api/v1/applications/{application}/{part}"
            for part in ("environment", "sql?details=true", "jobs", "stages")
        ]
    return found


def _read(url: str, seconds: float = 20) -> bytes:
    """What stands there; nothing where no web server answers."""
    try:
        with urllib.request.urlopen(url, timeout=seconds) as answer:  # noqa: S310 (loopback)
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as error:
        return error.read()
    except (OSError, http.client.HTTPException):
        return b""

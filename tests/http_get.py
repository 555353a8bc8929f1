"""What a server answers to a GET, whatever the status."""

from __future__ import annotations

from http.client import HTTPConnection
from typing import NamedTuple
from urllib.parse import urlsplit


class Got(NamedTuple):
    status: int
    kind: str
    text: str


def http_get(url: str) -> Got:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=30)
    try:
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        return Got(answer.status, answer.headers["Content-Type"], answer.read().decode())
    finally:
        connection.close()

"""The Postgres JDBC driver, for `spark.read.jdbc`: from Maven Central, once."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from pathlib import Path

from bench.server import BenchError

_VERSION = "42.7.14"
_SHA256 = "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c"
_URL = (
    f"https://repo1.maven.org/maven2/org/postgresql/postgresql/{_VERSION}/postgresql-{_VERSION}.jar"
)
_CACHE = Path(__file__).resolve().parent.parent / ".cache" / "jdbc"
_PATIENCE_SECONDS = 60.0


def jdbc_driver(folder: Path = _CACHE, url: str = _URL) -> Path:
    """The driver's jar; downloaded where it is not there, or not what it should be."""
    jar = folder / f"postgresql-{_VERSION}.jar"
    if jar.is_file() and _is_genuine(jar.read_bytes()):
        return jar
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310 (ours)
            content = answer.read()
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise BenchError(
            f"The JDBC driver could not be fetched from {url}: {error}.",
            remedy="Make Maven Central reachable, or leave spark_jdbc out of SYSTEMS.",
        ) from None
    if not _is_genuine(content):
        raise BenchError(
            f"What came from {url} is not the JDBC driver {_VERSION}: its checksum differs.",
            remedy="See what answers in place of Maven Central; SYSTEMS without spark_jdbc "
            "needs no driver.",
        )
    folder.mkdir(parents=True, exist_ok=True)
    temporary = jar.with_suffix(".tmp")
    temporary.write_bytes(content)
    temporary.replace(jar)
    return jar


def _is_genuine(content: bytes) -> bool:
    return hashlib.sha256(content).hexdigest() == _SHA256

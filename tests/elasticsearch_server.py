"""Elasticsearch servers of one's own, for the tests.

Not all of its modules are published as jars: scripts and the analysers of languages are missing,
and no test uses them.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from tests.search_server import Module, Product, SearchServer

_FOLDER = Path(__file__).resolve().parent / "elasticsearch"
_NETTY_POLICY = """grant codeBase "${codebase.netty-common}" {
  permission java.io.FilePermission "/proc/sys/net/core/somaxconn", "read";
  permission java.net.SocketPermission "*", "accept,connect";
};
grant codeBase "${codebase.netty-transport}" {
  permission java.util.PropertyPermission "sun.nio.ch.bugLevel", "write";
};
"""


class Elasticsearch7Server(SearchServer):
    """One node of the version that tests/elasticsearch/7/pom.xml names."""

    product: ClassVar = Product(
        "Elasticsearch",
        _FOLDER / "7" / "pom.xml",
        "org.elasticsearch.bootstrap.Elasticsearch",
        "es",
        (
            Module(
                "transport-netty4",
                "org.elasticsearch.transport.Netty4Plugin",
                ("transport-netty4-client", "netty-"),
                policy=_NETTY_POLICY,
            ),
        ),
        {"bootstrap.system_call_filter": "false"},
    )


class Elasticsearch8Server(SearchServer):
    """One node of the version that tests/elasticsearch/8/pom.xml names, run by a main class of our
    own. Its answer to `GET /` is ours too; all else is the server's.
    """

    product: ClassVar = Product(
        "Elasticsearch",
        _FOLDER / "8" / "pom.xml",
        "OneNode",
        "es",
        (
            Module(
                "transport-netty4",
                "org.elasticsearch.transport.netty4.Netty4Plugin",
                ("transport-netty4", "netty-"),
            ),
            Module("rest-root", "RestRoot", ("RestRoot",)),
        ),
    )

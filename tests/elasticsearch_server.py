"""An Elasticsearch server of one's own, for the tests."""

from __future__ import annotations

from typing import ClassVar

from tests.search_server import Module, Product, SearchServer

_NETTY_POLICY = """grant codeBase "${codebase.netty-common}" {
  permission java.io.FilePermission "/proc/sys/net/core/somaxconn", "read";
  permission java.net.SocketPermission "*", "accept,connect";
};
grant codeBase "${codebase.netty-transport}" {
  permission java.util.PropertyPermission "sun.nio.ch.bugLevel", "write";
};
"""
# Scripts and the analysers of languages are not published as jars: no test uses them.
_MODULES = (
    Module(
        "transport-netty4",
        "org.elasticsearch.transport.Netty4Plugin",
        ("transport-netty4-client", "netty-"),
        policy=_NETTY_POLICY,
    ),
)


class ElasticsearchServer(SearchServer):
    """One node of the version that tests/elasticsearch/pom.xml names."""

    product: ClassVar = Product(
        "Elasticsearch", "org.elasticsearch.bootstrap.Elasticsearch", "es", _MODULES
    )

"""An OpenSearch server of one's own: for the tests and the bench."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from tests.search_server import Module, Product, SearchServer

_NETTY_POLICY = """grant codeBase "${codebase.netty-common}" {
  permission java.io.FilePermission "/proc/sys/net/core/somaxconn", "read";
  permission java.net.SocketPermission "*", "accept,connect";
  permission java.lang.RuntimePermission "*", "setContextClassLoader";
};
grant codeBase "${codebase.netty-transport}" {
  permission java.net.NetPermission "getNetworkInformation";
  permission java.lang.RuntimePermission "accessDeclaredMembers";
  permission java.lang.reflect.ReflectPermission "suppressAccessChecks";
};
"""
_PAINLESS_POLICY = """grant {
  permission java.lang.RuntimePermission "createClassLoader";
  permission java.lang.RuntimePermission "getClassLoader";
  permission org.opensearch.script.ClassPermission "<<STANDARD>>";
};
"""
_REINDEX_POLICY = """grant {
  permission java.net.SocketPermission "*", "connect";
};
grant codeBase "${codebase.opensearch-rest-client}" {
  permission java.net.NetPermission "getProxySelector";
};
grant codeBase "${codebase.httpasyncclient}" {
  permission java.net.NetPermission "getProxySelector";
};
"""
_MODULES = (
    Module(
        "transport-netty4",
        "org.opensearch.transport.Netty4Plugin",
        ("transport-netty4-client", "netty-"),
        policy=_NETTY_POLICY,
    ),
    Module(
        "lang-painless",
        "org.opensearch.painless.PainlessPlugin",
        ("lang-painless", "opensearch-scripting-painless-spi", "antlr4-runtime", "asm"),
        policy=_PAINLESS_POLICY,
    ),
    Module(
        "analysis-common",
        "org.opensearch.analysis.common.CommonAnalysisPlugin",
        ("analysis-common",),
        extended="lang-painless",
    ),
    Module(
        "mapper-extras",
        "org.opensearch.index.mapper.MapperExtrasPlugin",
        ("mapper-extras-client",),
    ),
    Module(
        "reindex",
        "org.opensearch.index.reindex.ReindexPlugin",
        (
            "reindex-client", "opensearch-rest-client", "http", "commons-codec",
            "commons-logging", "opensearch-ssl-config",
        ),
        policy=_REINDEX_POLICY,
    ),
)  # fmt: skip


class OpenSearchServer(SearchServer):
    """One node of the version that tests/opensearch/pom.xml names."""

    product: ClassVar = Product(
        "OpenSearch",
        Path(__file__).resolve().parent / "opensearch" / "pom.xml",
        "org.opensearch.bootstrap.OpenSearch",
        "opensearch",
        _MODULES,
        {"bootstrap.system_call_filter": "false"},
    )

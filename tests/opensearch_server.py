"""An OpenSearch server of one's own (one node), from its jars: for the tests and the bench."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import urllib3

from penstock.spark.java import java_home
from tests.loopback_server import free_ports
from tests.maven import fetching, maven

_ROOT = Path(__file__).resolve().parents[1]
_CACHE = _ROOT / ".cache" / "opensearch"
_POM = Path(__file__).resolve().parent / "opensearch" / "pom.xml"
_START_SECONDS = 180.0
_STOP_SECONDS = 30.0
_NOBODY = 65534
_MEMORY = Path("/dev/shm")  # noqa: S108 (made with mkdtemp)
_FOLDERS = ("config", "plugins", "extensions", "data", "logs", "tmp")
# Which jars belong to a module, and not to the server itself.
_MODULES = {
    "transport-netty4": (
        "org.opensearch.transport.Netty4Plugin", "", ("transport-netty4-client", "netty-"),
    ),
    "lang-painless": (
        "org.opensearch.painless.PainlessPlugin",
        "",
        ("lang-painless", "opensearch-scripting-painless-spi", "antlr4-runtime", "asm"),
    ),
    "analysis-common": (
        "org.opensearch.analysis.common.CommonAnalysisPlugin",
        "lang-painless",
        ("analysis-common",),
    ),
    "mapper-extras": (
        "org.opensearch.index.mapper.MapperExtrasPlugin", "", ("mapper-extras-client",),
    ),
    "reindex": (
        "org.opensearch.index.reindex.ReindexPlugin",
        "",
        (
            "reindex-client", "opensearch-rest-client", "http", "commons-codec",
            "commons-logging", "opensearch-ssl-config",
        ),
    ),
}  # fmt: skip
_POLICIES = {
    "lang-painless": """grant {
  permission java.lang.RuntimePermission "createClassLoader";
  permission java.lang.RuntimePermission "getClassLoader";
  permission org.opensearch.script.ClassPermission "<<STANDARD>>";
};
""",
    "transport-netty4": """grant codeBase "${codebase.netty-common}" {
  permission java.io.FilePermission "/proc/sys/net/core/somaxconn", "read";
  permission java.net.SocketPermission "*", "accept,connect";
  permission java.lang.RuntimePermission "*", "setContextClassLoader";
};
grant codeBase "${codebase.netty-transport}" {
  permission java.net.NetPermission "getNetworkInformation";
  permission java.lang.RuntimePermission "accessDeclaredMembers";
  permission java.lang.reflect.ReflectPermission "suppressAccessChecks";
};
""",
    "reindex": """grant {
  permission java.net.SocketPermission "*", "connect";
};
grant codeBase "${codebase.opensearch-rest-client}" {
  permission java.net.NetPermission "getProxySelector";
};
grant codeBase "${codebase.httpasyncclient}" {
  permission java.net.NetPermission "getProxySelector";
};
""",
}
_LOGGING = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{ISO8601}][%-5p][%-25c{1.}] %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class OpenSearchServer:
    """One node with its own temporary data folder, on a free port of 127.0.0.1.

    Inside ``with`` it runs; afterwards server and data are gone.
    """

    def __init__(self, *, memory: str = "512m", on_disk: bool = False) -> None:
        """``on_disk``: its data are not in memory, as with a server that is measured."""
        self._memory = memory
        self._on_disk = on_disk
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Where it answers; the same over every restart."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and return when it answers; no effect while it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        jars = _home()
        if self._folder is None:
            # It syncs its cluster's state with every index that is made; tests make hundreds.
            place = _MEMORY if _MEMORY.is_dir() and not self._on_disk else None
            self._folder = Path(tempfile.mkdtemp(prefix="penstock-opensearch-", dir=place))
            self._configure(jars)
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(jars),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._answers():
                return
            time.sleep(0.2)
        tail = (self._folder / "server.log").read_text(errors="replace")[-3000:]
        self.kill()
        raise RuntimeError(f"the OpenSearch server did not start; its log ends with:\n{tail}")

    def stop(self) -> None:
        """Stop it in order, and keep its data."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would, and keep its data."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Stop it and remove its data, which nobody reads again."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _configure(self, jars: Path) -> None:
        assert self._folder is not None
        self.port, transport = free_ports(2)
        for name in _FOLDERS:
            (self._folder / name).mkdir()
        for name in ("modules", "lib"):
            (self._folder / name).symlink_to(jars / name)
        settings = {
            "cluster.name": "penstock",
            "node.name": "one",
            "network.host": "127.0.0.1",
            "http.port": self.port,
            "transport.port": transport,
            "discovery.type": "single-node",
            "bootstrap.system_call_filter": "false",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            "action.auto_create_index": "false",
        }
        lines = [f"{name}: {value}\n" for name, value in settings.items()]
        (self._folder / "config" / "opensearch.yml").write_text("".join(lines))
        (self._folder / "config" / "log4j2.properties").write_text(_LOGGING)
        (self._folder / "config" / "jvm.options").touch()
        if os.geteuid() == 0:
            # It refuses to run as root.
            self._folder.chmod(0o755)
            for path in (self._folder, *self._folder.rglob("*")):
                if not path.is_symlink():
                    os.chown(path, _NOBODY, _NOBODY)

    def _command(self, jars: Path) -> list[str]:
        home = java_home()
        assert home is not None, "an OpenSearch server needs Java, as Spark does"
        assert self._folder is not None
        drop = []
        if os.geteuid() == 0:
            drop = [
                "setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups",
                "--no-new-privs",
            ]  # fmt: skip
        properties = {
            "java.security.manager": "allow",
            "java.io.tmpdir": self._folder / "tmp",
            "opensearch.path.home": self._folder,
            "opensearch.path.conf": self._folder / "config",
            "log4j.shutdownHookEnabled": "false",
            "log4j2.disable.jmx": "true",
            "jna.nosys": "true",
            "java.locale.providers": "SPI,COMPAT",
        }
        return [
            *drop, str(home / "bin" / "java"), f"-Xms{self._memory}", f"-Xmx{self._memory}",
            "-XX:TieredStopAtLevel=1",
            *(f"-D{name}={value}" for name, value in properties.items()),
            "-cp", f"{jars / 'lib'}/*", "org.opensearch.bootstrap.OpenSearch",
        ]  # fmt: skip

    def _answers(self) -> bool:
        try:
            answer = urllib3.request(
                "GET", f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=5s",
                timeout=10, retries=False,
            )  # fmt: skip
        except urllib3.exceptions.HTTPError:
            return False
        return answer.status == 200


def _home() -> Path:
    """The folder of the server's jars, fetched on first use: readable by everybody."""
    version = _version()
    folder = _CACHE / version
    with fetching(_CACHE):
        if not folder.is_dir():
            _fetch(folder, version)
    # Whoever runs the server need not be who may read this folder.
    shared = Path(tempfile.gettempdir()) / f"penstock-opensearch-{version}-{os.getuid()}"
    with fetching(_CACHE):
        if shared.is_dir():
            assert shared.stat().st_uid == os.getuid(), f"{shared} is somebody else's"
        else:
            copied = Path(tempfile.mkdtemp(prefix="penstock-opensearch-jars-"))
            shutil.copytree(folder, copied, dirs_exist_ok=True, copy_function=_linked)
            copied.chmod(0o755)
            copied.rename(shared)
    return shared


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _version() -> str:
    found = re.search(r"<opensearch.version>([^<]+)<", _POM.read_text())
    assert found is not None
    return found[1]


def _fetch(folder: Path, version: str) -> None:
    mvn = maven("an OpenSearch server")
    with tempfile.TemporaryDirectory(dir=_CACHE, prefix="fetch-") as text:
        fetched = Path(text) / "home"
        done = subprocess.run(
            [
                mvn, "-B", "-q", "-f", str(_POM), "dependency:copy-dependencies",
                f"-DoutputDirectory={fetched / 'lib'}", "-DincludeScope=runtime",
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"Maven could not fetch OpenSearch: {done.stdout[-2000:]}")
        _make_modules(fetched, version)
        # Renamed when complete, so that a broken download is never taken for a server.
        fetched.rename(folder)


def _make_modules(home: Path, version: str) -> None:
    for name, (main, extended, prefixes) in _MODULES.items():
        module = home / "modules" / name
        module.mkdir(parents=True)
        descriptor = {
            "name": name,
            "description": name,
            "version": version,
            "opensearch.version": version,
            "java.version": "11",
            "classname": main,
            "extended.plugins": extended,
            "has.native.controller": "false",
        }
        lines = [f"{key}={value}\n" for key, value in descriptor.items()]
        (module / "plugin-descriptor.properties").write_text("".join(lines))
        if name in _POLICIES:
            (module / "plugin-security.policy").write_text(_POLICIES[name])
        for jar in (home / "lib").iterdir():
            if jar.name.startswith(prefixes):
                jar.rename(module / jar.name)

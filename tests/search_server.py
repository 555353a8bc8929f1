"""A search server of one's own (one node), from its jars: what the products have in common."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import urllib3

from penstock.spark.java import java_home
from tests.loopback_server import free_ports
from tests.maven import fetching, maven
from tests.server_process import ServerProcess

_ROOT = Path(__file__).resolve().parents[1]
_COMPILER = "org.eclipse.jdt.internal.compiler.batch.Main"
_NOBODY = 65534
_FOLDERS = ("config", "plugins", "extensions", "data", "logs", "tmp")
_LOGGING = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{ISO8601}][%-5p][%-25c{1.}] %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


@dataclass(frozen=True)
class Module:
    """A part of a server that it loads by itself. ``jars`` are prefixes of the names of its jars,
    which are not the server's own.
    """

    name: str
    main: str
    jars: tuple[str, ...]
    extended: str = ""
    policy: str = ""


@dataclass(frozen=True)
class Product:
    """What differs between the servers. ``pom`` names the jars; Java files beside it are compiled.
    The name in small letters is that of folders, of the configuration and of the property of the
    pom that has the version.
    """

    name: str
    pom: Path
    main: str
    prefix: str
    """Of the properties that the server reads."""
    modules: tuple[Module, ...]
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def short(self) -> str:
        return self.name.lower()

    @property
    def cache(self) -> Path:
        return _ROOT / ".cache" / self.short

    @property
    def version(self) -> str:
        found = re.search(rf"<{self.short}.version>([^<]+)<", self.pom.read_text())
        assert found is not None
        return found[1]


class SearchServer(ServerProcess):
    """One node on a free port of 127.0.0.1."""

    product: ClassVar[Product]
    start_seconds = 180.0

    def __init__(self, *, memory: str = "512m", on_disk: bool = False) -> None:
        """In memory, unless it is measured: it syncs its cluster's state with every index that is
        made, and tests make hundreds.
        """
        super().__init__(on_disk=on_disk)
        self._memory = memory
        self.port = 0

    @property
    def title(self) -> str:
        return self.product.name

    @property
    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "LIBFFI_TMPDIR": str(self.folder / "tmp")}

    @property
    def url(self) -> str:
        """Where it answers; the same over every restart."""
        return f"http://127.0.0.1:{self.port}"

    def configure(self) -> None:
        jars = _home(self.product)
        self.port, transport = free_ports(2)
        for name in _FOLDERS:
            (self.folder / name).mkdir()
        for name in ("modules", "lib"):
            (self.folder / name).symlink_to(jars / name)
        settings = {
            "cluster.name": "penstock",
            "node.name": "one",
            "network.host": "127.0.0.1",
            "http.port": self.port,
            "transport.port": transport,
            "discovery.type": "single-node",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            "action.auto_create_index": "false",
            **self.product.settings,
        }
        lines = [f"{name}: {value}\n" for name, value in settings.items()]
        (self.folder / "config" / f"{self.product.short}.yml").write_text("".join(lines))
        (self.folder / "config" / "log4j2.properties").write_text(_LOGGING)
        (self.folder / "config" / "jvm.options").touch()
        if os.geteuid() == 0:
            # It refuses to run as root.
            self.folder.chmod(0o755)
            for path in (self.folder, *self.folder.rglob("*")):
                if not path.is_symlink():
                    os.chown(path, _NOBODY, _NOBODY)

    def command(self) -> list[str]:
        jars = _home(self.product)
        home = java_home()
        assert home is not None, "a search server needs Java, as Spark does"
        drop = []
        if os.geteuid() == 0:
            drop = [
                "setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups",
                "--no-new-privs",
            ]  # fmt: skip
        properties = {
            "java.security.manager": "allow",
            "java.io.tmpdir": self.folder / "tmp",
            f"{self.product.prefix}.path.home": self.folder,
            f"{self.product.prefix}.path.conf": self.folder / "config",
            "log4j.shutdownHookEnabled": "false",
            "log4j2.disable.jmx": "true",
            "jna.nosys": "true",
            "java.locale.providers": "SPI,COMPAT",
        }
        return [
            *drop, str(home / "bin" / "java"), f"-Xms{self._memory}", f"-Xmx{self._memory}",
            "-XX:TieredStopAtLevel=1",
            *(f"-D{name}={value}" for name, value in properties.items()),
            "-cp", f"{jars / 'lib'}/*", self.product.main,
        ]  # fmt: skip

    def answers(self) -> bool:
        try:
            answer = urllib3.request(
                "GET", f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=5s",
                timeout=10, retries=False,
            )  # fmt: skip
        except urllib3.exceptions.HTTPError:
            return False
        return answer.status == 200


def _home(product: Product) -> Path:
    """The folder of the server's jars, fetched on first use: readable by everybody."""
    version = product.version
    folder = product.cache / version
    with fetching(product.cache):
        if not folder.is_dir():
            _fetch(product, folder)
    # Whoever runs the server need not be who may read this folder.
    shared = Path(tempfile.gettempdir()) / f"penstock-{product.short}-{version}-{os.getuid()}"
    with fetching(product.cache):
        if shared.is_dir():
            assert shared.stat().st_uid == os.getuid(), f"{shared} is somebody else's"
        else:
            copied = Path(tempfile.mkdtemp(prefix=f"penstock-{product.short}-jars-"))
            shutil.copytree(folder, copied, dirs_exist_ok=True, copy_function=_linked)
            copied.chmod(0o755)
            copied.rename(shared)
    return shared


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _fetch(product: Product, folder: Path) -> None:
    mvn = maven(f"an {product.name} server")
    with tempfile.TemporaryDirectory(dir=product.cache, prefix="fetch-") as text:
        fetched = Path(text) / "home"
        done = subprocess.run(
            [
                mvn, "-B", "-q", "-f", str(product.pom), "dependency:copy-dependencies",
                f"-DoutputDirectory={fetched / 'lib'}", "-DincludeScope=runtime",
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"Maven could not fetch {product.name}: {done.stdout[-2000:]}")
        for source in product.pom.parent.glob("*.java"):
            _compile(source, fetched / "lib")
        for module in product.modules:
            _make_module(product, module, fetched)
        # Renamed when complete, so that a broken download is never taken for a server.
        fetched.rename(folder)


def _compile(source: Path, lib: Path) -> None:
    """Put a jar of its name beside the server's."""
    home = java_home()
    assert home is not None
    with tempfile.TemporaryDirectory() as classes:
        subprocess.run(
            [
                home / "bin" / "java", "-cp", f"{lib}/*", _COMPILER, "-nowarn", "-17",
                "-cp", ":".join(map(str, lib.glob("*.jar"))), "-d", classes, source,
            ],
            check=True,
        )  # fmt: skip
        shutil.make_archive(str(lib / source.stem), "zip", classes)
    (lib / f"{source.stem}.zip").rename(lib / f"{source.stem}.jar")


def _make_module(product: Product, module: Module, home: Path) -> None:
    folder = home / "modules" / module.name
    folder.mkdir(parents=True)
    descriptor = {
        "name": module.name,
        "description": module.name,
        "version": product.version,
        f"{product.short}.version": product.version,
        "java.version": "11",
        "classname": module.main,
        "extended.plugins": module.extended,
        "has.native.controller": "false",
    }
    lines = [f"{key}={value}\n" for key, value in descriptor.items()]
    (folder / "plugin-descriptor.properties").write_text("".join(lines))
    if module.policy:
        (folder / "plugin-security.policy").write_text(module.policy)
    for jar in (home / "lib").iterdir():
        if jar.name.startswith(module.jars):
            jar.rename(folder / jar.name)

"""A RabbitMQ of one's own, from Debian's packages, behind a proxy: for the tests and the bench."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pika
from pika.exceptions import AMQPError

from tests.debian import unpacked
from tests.loopback_server import free_ports
from tests.maven import fetching
from tests.own_certificate import write_certificate
from tests.tcp_proxy import TcpProxy

_CACHE = Path(__file__).resolve().parents[1] / ".cache" / "rabbitmq"
_ERLANG = (
    *("base", "asn1", "crypto", "eldap", "ftp", "inets", "mnesia", "os-mon", "parsetools"),
    *("public-key", "runtime-tools", "snmp", "ssl", "syntax-tools", "tftp", "tools", "xmerl"),
)
_PACKAGES = ("rabbitmq-server", *(f"erlang-{name}" for name in _ERLANG))
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_LOOK_SECONDS = 0.1
VHOST = "shop"
USERS = {"penstock": "p3nstock/s3cret", "stranger": "stranger-secret", "reader": "reader-secret"}
"""The first may do everything, the second is not let into the vhost, the third only reads."""


class RabbitServer:
    """On free ports of 127.0.0.1. Inside ``with`` it runs; afterwards it is gone, with its data."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-rabbit-"))
        self._root: Path | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._epmd: subprocess.Popen[bytes] | None = None
        self._proxy: TcpProxy | None = None
        self.port, self.tls_port, self._dist, self._names = free_ports(4)

    @property
    def proxy(self) -> TcpProxy:
        """What ``destination`` goes through."""
        assert self._proxy is not None
        return self._proxy

    @property
    def destination(self) -> dict[str, Any]:
        """What leads here, through the proxy."""
        return {"url": self.url(port=self.proxy.port), "password": USERS["penstock"]}

    @property
    def certificate(self) -> Path:
        """What the second port shows, as a PEM file."""
        return self._folder / "server.pem"

    def url(self, user: str = "penstock", *, port: int = 0, scheme: str = "amqp") -> str:
        """Without a password, past the proxy."""
        return f"{scheme}://{user}@127.0.0.1:{port or self.port}/{VHOST}"

    def connect(self) -> pika.BlockingConnection:
        """For tests that bind and read, past the proxy."""
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1",
                self.port,
                VHOST,
                pika.PlainCredentials("penstock", USERS["penstock"]),
                heartbeat=0,
            )
        )

    def start(self) -> None:
        """Start it, or start it again after ``kill``: what it has confirmed is there again."""
        if self._root is None:
            self._root = unpacked("RabbitMQ", _PACKAGES, _CACHE)
            self._move_erlang()
            self._configure()
        if self._epmd is None:
            self._epmd = self._run("epmd", str(self._erlang / "bin" / "epmd"))
        self._server = self._run("server", str(self._rabbit / "sbin" / "rabbitmq-server"))
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._server.poll() is not None or time.monotonic() > deadline:
                tail = (self._folder / "server.log").read_text(errors="replace")[-3000:]
                raise RuntimeError(f"RabbitMQ did not start; its log ends with:\n{tail}")
            time.sleep(_LOOK_SECONDS)

    def control(self, *arguments: str) -> str:
        """What rabbitmqctl says."""
        done = subprocess.run(
            [str(self._rabbit / "sbin" / "rabbitmqctl"), "-q", *arguments],
            env=self._environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def stop(self) -> None:
        """Stop it in order, and keep its data."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would, and keep its data."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        if self._proxy is not None:
            self._proxy.close()
        self.kill()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
            self._proxy = TcpProxy(self.port)
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

    @property
    def _erlang(self) -> Path:
        assert self._root is not None
        return self._root / "usr" / "lib" / "erlang"

    @property
    def _rabbit(self) -> Path:
        assert self._root is not None
        (found,) = (self._root / "usr" / "lib" / "rabbitmq" / "lib").glob("rabbitmq_server-*")
        return found

    def _environment(self) -> dict[str, str]:
        folder = self._folder
        return {
            **os.environ,
            "PATH": f"{self._erlang / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            # On machines whose cores disagree on the time, Erlang ends itself rather than bear it.
            "ERL_FLAGS": "+c false",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._names),
            "RABBITMQ_HOME": str(self._rabbit),
            "SYS_PREFIX": str(folder),
            "RABBITMQ_NODENAME": "tests@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._dist),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "env.conf"),
        }

    def _run(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                env=self._environment(),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _end(self, how: signal.Signals) -> None:
        process, self._server = self._server, None
        if process is None:
            return
        # A script and what it has started.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except (AMQPError, OSError):
            return False
        return True

    def _move_erlang(self) -> None:
        """Let it look for its parts where it was unpacked, not where it would be installed."""
        script = self._erlang / "bin" / "erl"
        with fetching(_CACHE):
            text = script.read_text()
            moved = text.replace("ROOTDIR=/usr/lib/erlang\n", f"ROOTDIR='{self._erlang}'\n")
            if moved != text:
                script.write_text(moved)

    def _configure(self) -> None:
        write_certificate(self.certificate, self._folder / "key.pem")
        known = {
            "users": [_user(name, password) for name, password in USERS.items()],
            "vhosts": [{"name": VHOST}, {"name": "/"}],
            "permissions": [_rights("penstock", ".*"), _rights("reader", "")],
        }
        (self._folder / "known.json").write_text(json.dumps(known))
        (self._folder / "plugins").write_text("[].\n")
        settings = {
            "load_definitions": self._folder / "known.json",
            "listeners.ssl.default": f"127.0.0.1:{self.tls_port}",
            "ssl_options.cacertfile": self.certificate,
            "ssl_options.certfile": self.certificate,
            "ssl_options.keyfile": self._folder / "key.pem",
            "log.file.level": "warning",
            # Tests run side by side: what others take is not this server's concern.
            "vm_memory_high_watermark.absolute": "1GB",
            "disk_free_limit.absolute": "50MB",
        }
        lines = [f"{name} = {value}\n" for name, value in settings.items()]
        (self._folder / "rabbitmq.conf").write_text("".join(lines))


def _user(name: str, password: str) -> dict[str, str]:
    salt = os.urandom(4)
    stored = base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()
    algorithm = "rabbit_password_hashing_sha256"
    return {"name": name, "password_hash": stored, "hashing_algorithm": algorithm, "tags": ""}


def _rights(user: str, pattern: str) -> dict[str, str]:
    return {"user": user, "vhost": VHOST, "configure": pattern, "write": pattern, "read": ".*"}

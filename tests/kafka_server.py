"""A Kafka broker of one's own (KRaft, one node), from its jars: for the tests and the bench."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from penstock.spark.java import java_home
from tests.loopback_server import free_ports
from tests.maven import fetched_jars, fetching
from tests.server_process import ServerProcess

_ROOT = Path(__file__).resolve().parents[1]
_CACHE = _ROOT / ".cache" / "kafka"
_POM = Path(__file__).resolve().parent / "kafka" / "pom.xml"
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
USERS = {"granted": "granted-secret", "stranger": "stranger-secret"}
"""Who is known at the second port of a secured broker."""

_STORE_PASSWORD = "of-the-key-store"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SECURED = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_ssl.plain.sasl.jaas.config": " ".join(
        (_LOGIN, *(f'user_{name}="{password}"' for name, password in USERS.items()))
    )
    + ";",
    "ssl.keystore.type": "PKCS12",
    "ssl.keystore.location": "server.p12",
    "ssl.keystore.password": _STORE_PASSWORD,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class KafkaServer(ServerProcess):
    """One broker on a free port of 127.0.0.1."""

    title = "Kafka"
    start_seconds = 120.0

    def __init__(self, settings: Mapping[str, str] | None = None, *, secured: bool = False) -> None:
        """``secured``: on a second port users show a password over TLS, and may do what they are
        granted. Those of the first may do everything.
        """
        super().__init__()
        self._settings = {**_SETTINGS, **(settings or {})}
        self._secured = secured
        self._port = self._secured_port = 0

    @property
    def brokers(self) -> str:
        """What clients call bootstrap.servers; the same over every restart."""
        return f"127.0.0.1:{self._port}"

    @property
    def secured_brokers(self) -> str:
        """The same of the second port."""
        return f"127.0.0.1:{self._secured_port}"

    @property
    def certificate(self) -> Path:
        """What the second port shows, as a PEM file."""
        return self.folder / "server.pem"

    def command(self) -> list[str]:
        return _java(_jars(), "kafka.Kafka", "server.properties")

    def configure(self) -> None:
        self._port, self._secured_port, controller = free_ports(3)
        listeners = {"PLAINTEXT": self._port}
        settings = {
            **self._settings,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": "data",
        }
        if self._secured:
            listeners["SASL_SSL"] = self._secured_port
            settings |= _SECURED
            self._make_certificate()
        settings["advertised.listeners"] = _addresses(listeners)
        settings["listeners"] = _addresses({**listeners, "CONTROLLER": controller})
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (self.folder / "server.properties").write_text("".join(lines))
        self._format()

    def _make_certificate(self) -> None:
        store = ("-keystore", "server.p12", "-storepass", _STORE_PASSWORD, "-alias", "server")
        self._keytool(
            *("-genkeypair", "-keyalg", "EC", "-dname", "CN=127.0.0.1", "-ext", "SAN=ip:127.0.0.1"),
            *("-storetype", "PKCS12", *store),
        )
        self._keytool("-exportcert", "-rfc", "-file", "server.pem", *store)

    def _keytool(self, *arguments: str) -> None:
        keytool = str(_java_home() / "bin" / "keytool")
        subprocess.run([keytool, *arguments], cwd=self.folder, capture_output=True, check=True)

    def _format(self) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = (
            *("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}"),
            *("--config", "server.properties"),
        )
        done = subprocess.run(
            _java(_jars(), *tool), cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"the broker's storage could not be formatted: {done.stderr}")

    def answers(self) -> bool:
        try:
            AdminClient(
                {"bootstrap.servers": self.brokers, "log_level": 0, "socket.timeout.ms": 2000}
            ).list_topics(timeout=1)
        except KafkaException:
            return False
        return True


def _jars() -> Path:
    """The folder of the broker's jars, fetched on first use."""
    name = _POM.read_text().split("<version>")[2].split("<")[0]
    folder = _CACHE / name
    with fetching(_CACHE):
        if not folder.is_dir():
            fetched_jars(_POM, folder, "a Kafka broker")
    return folder


def _addresses(listeners: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())


def _java_home() -> Path:
    home = java_home()
    assert home is not None, "a Kafka broker needs Java, as Spark does"
    return home


def _java(jars: Path, *arguments: str) -> list[str]:
    return [
        str(_java_home() / "bin" / "java"), "-Xms128m", "-Xmx512m", "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", str(jars / "*"), *arguments,
    ]  # fmt: skip

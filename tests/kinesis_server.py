"""A Kinesis of one's own: moto's server as a process, behind a proxy that lets records fail."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from types import TracebackType
from typing import IO, Any, Self

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from tests.kinesis_proxy import FaultyProxy
from tests.loopback_server import free_ports

REGION = "eu-central-1"
_START_SECONDS = 60.0
_LOOK_SECONDS = 0.05


def use_test_credentials() -> None:
    """For this process and those that it starts. Nothing that a test does can reach an account that
    the machine has credentials for.
    """
    os.environ["AWS_ACCESS_KEY_ID"] = os.environ["AWS_SECRET_ACCESS_KEY"] = "testing"
    os.environ.pop("AWS_SESSION_TOKEN", None)
    os.environ.pop("AWS_PROFILE", None)
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"


class KinesisServer:
    """On free ports of 127.0.0.1. Inside ``with`` it runs; afterwards it is gone, with its data."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._proxy: FaultyProxy | None = None
        self._log: IO[bytes] | None = None
        (self._port,) = free_ports(1)

    @property
    def proxy(self) -> FaultyProxy:
        assert self._proxy is not None
        return self._proxy

    @property
    def destination(self) -> dict[str, Any]:
        """The options that lead here, through the proxy."""
        return {"region": REGION, "endpoint_url": f"http://127.0.0.1:{self.proxy.port}"}

    def client(self) -> Any:
        """Past the proxy, for the tests themselves."""
        return boto3.client(
            "kinesis",
            region_name=REGION,
            endpoint_url=f"http://127.0.0.1:{self._port}",
            config=Config(retries={"total_max_attempts": 1}),
        )

    def close(self) -> None:
        if self._proxy is not None:
            self._proxy.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._log is not None:
            self._log.close()

    def __enter__(self) -> Self:
        try:
            self._start()
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

    def _start(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the server)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._log.seek(0)
                tail = self._log.read()[-3000:].decode(errors="replace")
                raise RuntimeError(f"moto's server did not start; its log ends with:\n{tail}")
            time.sleep(_LOOK_SECONDS)
        self._proxy = FaultyProxy(self._port)

    def _answers(self) -> bool:
        client = self.client()
        try:
            client.list_streams()
        except BotoCoreError:
            return False
        finally:
            client.close()
        return True

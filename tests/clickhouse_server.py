"""A ClickHouse engine (chdb) as a server of tests: tests/clickhouse_facade.py in a process."""

from __future__ import annotations

import sys
from pathlib import Path

import urllib3

from tests.loopback_server import free_ports
from tests.server_process import ServerProcess


class ClickHouseServer(ServerProcess):
    """On a free port of 127.0.0.1."""

    title = "ClickHouse"
    working_folder = Path(__file__).parent.parent

    def __init__(self, *, on_disk: bool = False) -> None:
        super().__init__(on_disk=on_disk)
        (self.port,) = free_ports(1)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def configure(self) -> None:
        """Its command says all."""

    def command(self) -> list[str]:
        data = str(self.folder / "data")
        return [sys.executable, "-m", "tests.clickhouse_facade", data, str(self.port)]

    def answers(self) -> bool:
        try:
            answer = urllib3.request("GET", f"{self.url}/ping", timeout=10, retries=False)
        except urllib3.exceptions.HTTPError:
            return False
        return answer.status == 200

"""A server in the tests' own process, on a pipeline whose store is in a real database."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from penstock.config import load_deliveries, load_pipeline
from penstock.model.table_definition import TableDefinition
from penstock.model.table_state import DataSync, Errored, Init, Ready, TableState
from penstock.operations.run_record import running
from penstock.serve.supervise.pipeline_process import send_signal
from penstock.store import PostgresStore, pipeline_store
from tests.fix_cli import CommandLine
from tests.fix_pipeline import PipelineUnderTest

if TYPE_CHECKING:
    # Loaded by those alone who ask for a server.
    from starlette.testclient import TestClient

    from penstock.serve.server import Parts

PORT = 8720
ORIGIN = f"http://127.0.0.1:{PORT}"
ORDERS, ITEMS, ODD = 16_385, 16_390, 16_400
HOSTILE = "<img src=x onerror=alert(1)>"


@dataclass
class Served:
    """``operator`` and ``reader`` send their tokens; ``stranger`` sends none."""

    parts: Parts
    name: str
    file: Path
    operator: TestClient
    reader: TestClient
    stranger: TestClient
    token: str

    @property
    def place(self) -> str:
        return f"/v1/pipelines/{self.name}"

    def audited(self) -> str:
        return _text(self.parts.service.folder.audit)

    def refused(self) -> str:
        return _text(self.parts.service.folder.refusals)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def client(parts: Parts, token: str | None = None) -> TestClient:
    from starlette.testclient import TestClient

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return TestClient(parts.guard, base_url=ORIGIN, headers=headers, raise_server_exceptions=False)


@pytest.fixture
def served(penstock: CommandLine, tmp_path: Path) -> Iterator[Served]:
    from penstock.serve.options import ServeOptions
    from penstock.serve.safety.tokens import Tokens
    from penstock.serve.server import make_parts
    from penstock.serve.state_folder import StateFolder

    state = tmp_path / "state"
    tokens = Tokens(StateFolder(state).tokens)
    operate, read = tokens.create("olga", "operate"), tokens.create("rita", "read")
    options = ServeOptions((penstock.file,), state, starts=False, page=False)
    parts = make_parts(options, PORT)
    parts.service.supervisor.turn()
    name = load_deliveries(penstock.file)[0].name
    yield Served(
        parts,
        name,
        penstock.file,
        client(parts, operate),
        client(parts, read),
        client(parts),
        operate,
    )
    parts.service.stop()


@pytest.fixture
def recorded(penstock: CommandLine) -> Iterator[PostgresStore]:
    """The pipeline's store, with three tables, one of them named as HTML that does harm."""
    with pipeline_store(load_pipeline(penstock.file)) as store:
        store.open()
        for oid, schema, name in (
            (ORDERS, "public", "orders"),
            (ITEMS, "shop", "items"),
            (ODD, "public", HOSTILE),
        ):
            store.store_table_schema(TableDefinition(oid, schema, name, "d", ()), 1)
            store.update_table_state(oid, Init())
        put(store, ITEMS, Ready())
        put(store, ORDERS, DataSync())
        put(store, ODD, Ready(), Errored("no room", "Make room."))
        yield store


def put(store: PostgresStore, table: int, *states: TableState) -> None:
    for state in states:
        store.update_table_state(table, state)


@pytest.fixture
def ended(pipeline: PipelineUnderTest) -> Iterator[None]:
    """A run outlives its server, also that of a test which failed."""
    yield
    record = running(pipeline.config)
    if record is not None:
        for process in psutil.Process(record.process.pid).children(recursive=True):
            process.kill()
        send_signal(record.process, signal.SIGKILL)

"""The API of `penstock serve`, on a store in a real database."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer.main

from penstock.cli.main import app as command_line
from penstock.operations.commands import COMMANDS
from penstock.operations.table_actions import TABLE_ACTIONS
from penstock.serve.api.replays import Replays
from penstock.serve.page.pipeline_page import TABS
from penstock.serve.supervise import supervisor
from penstock.serve.supervise.pipeline_process import start_detached
from penstock.store import PostgresStore
from tests.fix_cli import CommandLine
from tests.fix_pipeline import wait_until
from tests.fix_serve import HOSTILE, ITEMS, ODD, ORDERS, Served


def lines_of(command: Any, before: str = "") -> set[str]:
    parts = getattr(command, "commands", None)
    if parts is None:
        return {before}
    return {line for name, part in parts.items() for line in lines_of(part, f"{before} {name}")}


class TestParity:
    def test_every_command_is_in_the_table(self) -> None:
        lines = lines_of(typer.main.get_command(command_line))
        assert sorted(line.strip() for line in lines) == sorted(c.line for c in COMMANDS)

    def test_the_api_has_what_the_table_says(self, served: Served) -> None:
        paths = served.operator.get("/openapi.json").json()["paths"]
        offered = {f"{method.upper()} {path}" for path, item in paths.items() for method in item}
        for command in COMMANDS:
            assert (command.request in offered) != bool(command.why_not), command
            assert (command.page[0] in TABS) != bool(command.why_not), command

    @pytest.mark.parametrize("action", sorted(set(TABLE_ACTIONS) - {"add", "remove"}))
    def test_what_the_command_line_does_the_api_does(
        self, penstock: CommandLine, served: Served, recorded: PostgresStore, action: str
    ) -> None:
        """First by the command line, then, from the same state, by the API."""
        table = {"retry": f'public."{HOSTILE}"'}.get(action, "public.orders")
        if action == "resume":
            recorded.set_wish(ORDERS, "paused")
        before = kept(recorded)
        code, text, _ = penstock("tables", action, tables=(table,))
        assert code == 0
        by_command = kept(recorded)
        restore(recorded, before)
        answer = served.operator.post(f"{served.place}/tables/{action}", json={"tables": [table]})
        assert answer.status_code == 200, answer.text
        assert kept(recorded) == by_command
        outcome = answer.json()
        said = [f"{entry['table']}: {entry['outcome']}" for entry in outcome["tables"]]
        assert text.splitlines() == [*said, outcome["note"]]

    def test_refusals_have_the_words_of_the_command_line(
        self, penstock: CommandLine, served: Served, recorded: PostgresStore
    ) -> None:
        code, _, err = penstock("tables", "pause", tables=("shop.items",))
        answer = served.operator.post(
            f"{served.place}/tables/pause", json={"tables": ["shop.items"]}
        )
        assert (code, answer.status_code) == (1, 409)
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        shown = " ".join(err.split())
        assert " ".join(problem["detail"].split()) in shown
        assert " ".join(problem["remedy"].split()) in shown
        assert recorded.load_wishes() == {}


def kept(store: PostgresStore) -> tuple[Any, Any]:
    store.load_table_states()
    return store.get_table_states(), store.load_wishes()


def restore(store: PostgresStore, before: tuple[Any, Any]) -> None:
    states, wishes = before
    store.set_wishes({table: wishes.get(table) for table in (ORDERS, ITEMS, ODD)})
    for table, state in states.items():
        if store.get_table_state(table) != state:
            store.update_table_state(table, state)


class TestReads:
    def test_the_list_of_pipelines(self, served: Served) -> None:
        (found,) = served.reader.get("/v1/pipelines").json()["pipelines"]
        assert found["name"] == served.name
        assert found["process"]["state"] == found["health"] == "stopped"
        (destination,) = found["destinations"]
        assert (destination["name"], destination["type"]) == (served.name, "discard")

    def test_the_status_of_one(self, served: Served, recorded: PostgresStore) -> None:
        found = served.reader.get(served.place).json()
        assert found["problems"] == []
        assert found["source"]["state"] == "not initialised"
        assert found["tables"] == {"data_sync": 1, "ready": 1, "errored": 1}

    def test_tables_page_by_page(self, served: Served, recorded: PostgresStore) -> None:
        names, cursor = [], None
        for _ in range(3):
            page = served.reader.get(
                f"{served.place}/tables",
                params={"limit": 1, **({"cursor": cursor} if cursor else {})},
            ).json()
            names += [table["table"] for table in page["tables"]]
            cursor = page["next"]
        assert cursor is None
        assert names == [f'public."{HOSTILE}"', "public.orders", "shop.items"]
        assert page["matching"] == 3

    def test_tables_by_name_and_state(self, served: Served, recorded: PostgresStore) -> None:
        found = served.reader.get(f"{served.place}/tables", params={"search": "ITEM"}).json()
        assert [table["table"] for table in found["tables"]] == ["shop.items"]
        found = served.reader.get(f"{served.place}/tables", params={"phase": "errored"}).json()
        (errored,) = found["tables"]
        assert (errored["reason"], errored["solution"]) == ("no room", "Make room.")

    def test_one_table_and_its_history(self, served: Served, recorded: PostgresStore) -> None:
        name = f'public."{HOSTILE}"'
        assert (
            served.reader.get(f"{served.place}/table", params={"name": name}).json()["oid"] == ODD
        )
        found = served.reader.get(f"{served.place}/schema-history", params={"table": name}).json()
        assert [version["lsn"] for version in found["versions"]] == ["0/1"]
        for path in ("table?name=nobody", "schema-history?table=nobody"):
            assert served.reader.get(f"{served.place}/{path}").status_code == 404

    def test_unknown_things(self, served: Served) -> None:
        for path in ("/v1/pipelines/nobody", f"{served.place}/jobs/{'0' * 32}"):
            answer = served.reader.get(path)
            assert answer.status_code == 404
            assert answer.json()["remedy"]

    def test_the_configuration_hides_secrets(self, served: Served) -> None:
        text = served.reader.get(f"{served.place}/configuration").text
        assert "hunter2" not in text
        found = json.loads(text)["configuration"]
        assert found["source"]["url"] == "${SHOP_URL}"
        assert found["destination"] == {"type": "discard"} | found["destination"]

    def test_secrets_that_stand_in_the_file(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        served.file.write_text(
            f"name: {served.name}\n"
            "source: {url: 'postgresql://me:hunter2@db/shop'}\n"
            "destination: {type: kafka, brokers: b, client: {sasl.password: hunter2,\n"
            "  ssl.ca.pem: fine}}\n"
            "spark: {conf: {spark.hadoop.fs.s3a.secret.key: hunter2}}\n"
        )
        served.parts.service.catalogue.refresh()
        text = served.reader.get(f"{served.place}/configuration").text
        assert "hunter2" not in text
        assert json.loads(text)["configuration"]["destination"]["client"]["ssl.ca.pem"] == "fine"

    def test_a_file_that_is_wrong(self, served: Served) -> None:
        served.file.write_text("name: [")
        served.parts.service.catalogue.refresh()
        (found,) = served.reader.get("/v1/pipelines").json()["pipelines"]
        assert (found["process"]["state"], found["health"]) == ("invalid", "failing")
        answer = served.operator.post(f"/v1/pipelines/{found['name']}/start")
        assert answer.status_code == 422

    def test_events_and_metrics(self, served: Served) -> None:
        events = served.parts.service.events
        events.add(served.name, {"message": "said", "level": "info", "table": "t"})
        (found,) = served.reader.get(f"{served.place}/events").json()["events"]
        assert (found["message"], found["fields"]) == ("said", {"table": "t"})
        assert served.reader.get(f"{served.place}/metrics").json() == {"points": []}

    def test_a_source_that_is_away(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SHOP_URL", "postgresql://localhost:1/nowhere")
        served.file.write_text(served.file.read_text() + "\n")
        served.parts.service.catalogue.refresh()
        answer = served.reader.get(f"{served.place}/tables")
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        status = served.reader.get(served.place)
        assert status.status_code == 200
        assert status.json()["problems"]


class TestCommands:
    def test_a_key_makes_a_command_happen_once(
        self, served: Served, recorded: PostgresStore
    ) -> None:
        recorded.set_wish(ORDERS, None)
        before = len(chain(recorded, ITEMS))
        headers = {"Idempotency-Key": "one"}
        body = {"tables": ["shop.items"]}
        first, second = (
            served.operator.post(f"{served.place}/tables/rollback", json=body, headers=headers)
            for _ in range(2)
        )
        assert first.json() == second.json()
        assert len(chain(recorded, ITEMS)) == before - 1
        other = served.operator.post(
            f"{served.place}/tables/rollback", json={"tables": ["orders"]}, headers=headers
        )
        assert other.status_code == 422

    def test_a_key_is_known_to_the_next_server(
        self, served: Served, recorded: PostgresStore
    ) -> None:
        headers, body = {"Idempotency-Key": "one"}, {"tables": ["shop.items"]}
        path = f"{served.place}/tables/rollback"
        first = served.operator.post(path, json=body, headers=headers)
        assert first.status_code == 200
        left = len(chain(recorded, ITEMS))
        service = served.parts.service
        served.parts.application.state.replays = Replays(service.folder.replays)
        second = served.operator.post(path, json=body, headers=headers)
        assert (second.status_code, second.json()) == (200, first.json())
        assert len(chain(recorded, ITEMS)) == left

    def test_what_is_begun_is_written_down_before_it_is_done(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A server that dies in the middle of a command leaves who began it."""
        seen: list[str] = []

        def look(*_: object, **__: object) -> None:
            seen.append(served.audited())
            raise RuntimeError("it dies")

        monkeypatch.setattr(served.parts.service.supervisor, "stop_pipeline", look)
        served.operator.post(f"{served.place}/stop")
        entry = json.loads(seen[0])
        assert (entry["who"], entry["action"], entry["outcome"]) == ("olga", "stop", "begun")

    def test_who_did_what_is_written_down(self, served: Served, recorded: PostgresStore) -> None:
        served.operator.post(f"{served.place}/tables/pause", json={"tables": ["orders"]})
        served.operator.post(f"{served.place}/tables/pause", json={"tables": ["shop.items"]})
        entries = [json.loads(line) for line in served.audited().splitlines()]
        assert [(e["who"], e["action"], e["tables"]) for e in entries] == [
            *[("olga", "tables pause", ["orders"])] * 2,
            *[("olga", "tables pause", ["shop.items"])] * 2,
        ]
        outcomes = [entry["outcome"] for entry in entries]
        assert outcomes[:3] == ["begun", "done", "begun"]
        assert outcomes[3].startswith("refused: No copy")
        commands = [entry["command"] for entry in entries]
        assert commands[0] == commands[1] != commands[2] == commands[3]

    def test_destroying_takes_the_name(self, served: Served) -> None:
        for confirm in ({}, {"confirm": "other"}):
            answer = served.operator.post(
                f"{served.place}/jobs", json={"kind": "destroy", **confirm}
            )
            assert answer.status_code == 422
        assert served.parts.service.jobs.of(served.name) == []

    def test_what_is_destroyed_is_not_started_again(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One that failed waits for its next start, which would make slot and copies anew."""
        started: list[Path] = []

        def fail(_views: object, _file: Path, log: Path) -> subprocess.Popen[bytes]:
            started.append(log)
            return start_detached([sys.executable, "-c", "raise SystemExit(1)"], log, log)

        monkeypatch.setattr(supervisor, "start_run", fail)
        service = served.parts.service
        served.operator.post(f"{served.place}/start")

        def waits() -> bool:
            service.supervisor.turn()
            file = service.pipeline(served.name)
            return service.supervisor.view(file).state == "waiting"

        wait_until(waits, "the run has failed")
        body = {"kind": "destroy", "confirm": served.name}
        job = served.operator.post(f"{served.place}/jobs", json=body).json()
        assert served.operator.post(f"{served.place}/start").status_code == 409

        def ended() -> bool:
            answer = served.operator.get(f"{served.place}/jobs/{job['id']}").json()
            service.supervisor.turn()
            return bool(answer["state"] != "running")

        wait_until(ended, "the pipeline is destroyed")
        monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: math.inf))
        begun = len(started)
        service.supervisor.turn()
        assert len(started) == begun
        assert served.reader.get(served.place).json()["process"]["wanted"] == "stopped"

    def test_what_runs_is_not_destroyed(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def play(_views: object, _file: Path, log: Path) -> subprocess.Popen[bytes]:
            return start_detached(["sleep", "600"], log, log)

        monkeypatch.setattr(supervisor, "start_run", play)
        process = served.operator.post(f"{served.place}/start").json()
        body = {"kind": "destroy", "confirm": served.name}
        answer = served.operator.post(f"{served.place}/jobs", json=body)
        assert answer.status_code == 409
        assert "Stop it first" in answer.json()["remedy"]
        now = served.reader.get(served.place).json()["process"]
        assert (now["state"], now["wanted"], now["pid"]) == ("running", "running", process["pid"])
        served.operator.post(f"{served.place}/stop")
        service = served.parts.service

        def stopped() -> bool:
            service.supervisor.turn()
            return service.supervisor.view(service.pipeline(served.name)).state == "stopped"

        wait_until(stopped, "it has stopped")


def chain(store: PostgresStore, table: int) -> list[Any]:
    with store._transaction("test") as conn:
        return conn.execute(
            "SELECT step FROM penstock.table_state WHERE pipeline = %s AND table_oid = %s",
            [store.pipeline, table],
        ).fetchall()

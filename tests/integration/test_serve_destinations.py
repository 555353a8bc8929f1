"""Pipelines with several destinations, as `penstock serve` shows and steers them: by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.config import load_pipeline
from penstock.metrics.of_many import NOT_BEGUN
from penstock.model.table_definition import TableDefinition
from penstock.model.table_state import DataSync, Errored, Init, Ready
from penstock.operations.process_identity import ProcessIdentity
from penstock.serve.observe.sampler import _NUMBERS
from penstock.serve.supervise.jobs import _arguments
from penstock.store import PostgresStore, pipeline_store
from tests.fix_cli import CommandLine
from tests.fix_serve import ORDERS, Served, put

FILE = """
name: {name}
source: {{url: '${{SHOP_URL}}'}}
batch: {{max_age: 3s}}
destinations:
  warehouse: {{type: postgres, url: '${{SHOP_URL}}', batch: {{max_age: 9s}}}}
  events: {{type: kafka, brokers: b, client: {{sasl.password: hunter2}}, copy: false}}
"""


@dataclass
class Many:
    served: Served
    warehouse: PostgresStore
    events: PostgresStore

    def get(self, path: str, **query: str) -> Any:
        answer = self.served.reader.get(f"{self.served.place}{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **body: Any) -> Any:
        return self.served.operator.post(f"{self.served.place}{path}", json=body)


@pytest.fixture
def many(penstock: CommandLine, request: pytest.FixtureRequest) -> Iterator[Many]:
    """Two destinations that have the same table, each in a state of its own."""
    name = load_pipeline(penstock.file).name
    penstock.file.write_text(FILE.format(name=name))
    with (
        pipeline_store(load_pipeline(penstock.file, only="warehouse")) as warehouse,
        pipeline_store(load_pipeline(penstock.file, only="events")) as events,
    ):
        for store in (warehouse, events):
            store.open()
            store.store_table_schema(TableDefinition(ORDERS, "public", "orders", "d", ()), 1)
            put(store, ORDERS, Init())
        put(warehouse, ORDERS, DataSync())
        put(events, ORDERS, Ready(), Errored("no topic", "Make one."))
        yield Many(request.getfixturevalue("served"), warehouse, events)


class TestReads:
    def test_each_has_its_own_tables(self, many: Many) -> None:
        listed = many.get("/tables")
        assert [(table["destination"], table["phase"]) for table in listed["tables"]] == [
            ("events", "errored"),
            ("warehouse", "data_sync"),
        ]
        page = many.get("/tables", limit="1")
        after = many.get("/tables", limit="1", cursor=page["next"])
        assert page["tables"] + after["tables"] == listed["tables"]
        assert after["next"] is None
        (only,) = many.get("/tables", destination="events")["tables"]
        assert only["reason"] == "no topic"
        assert many.get("/table", name="orders", destination="warehouse")["phase"] == "data_sync"

    def test_status_and_overview(self, many: Many) -> None:
        status = many.get("")
        assert [
            (each["name"], each["type"], each["tables"]) for each in status["destinations"]
        ] == [
            ("warehouse", "postgres", {"data_sync": 1}),
            ("events", "kafka", {"errored": 1}),
        ]
        assert status["tables"] == {"data_sync": 1, "errored": 1}
        assert status["dead_letters"] == {"warehouse": {}, "events": {}}
        assert status["unnamed_readers"] == []

    def test_the_configuration(self, many: Many) -> None:
        found = many.get("/configuration")["configuration"]
        assert "hunter2" not in str(found)
        assert found["source"]["url"] == "${SHOP_URL}"
        assert "copy" not in found["source"]
        assert "batch" not in found
        warehouse, events = found["destinations"]["warehouse"], found["destinations"]["events"]
        assert (warehouse["url"], warehouse["type"]) == ("${SHOP_URL}", "postgres")
        assert warehouse["batch"]["max_age"] != events["batch"]["max_age"]
        assert (warehouse["from"], events["copy"]) == ("source", False)
        assert events["client"] == {"sasl.password": "(hidden)"}

    @pytest.mark.parametrize(
        "path", ["/table?name=orders", "/schema-history?table=orders", "/dead-letters"]
    )
    def test_it_has_to_be_said_which(self, many: Many, path: str) -> None:
        answer = many.served.operator.get(f"{many.served.place}{path}")
        assert answer.status_code == 422
        problem = answer.json()
        assert "has 2 destinations" in problem["detail"]
        assert problem["remedy"] == "Say which: destination warehouse (or events)."
        sign = "&" if "?" in path else "?"
        for name, status in (("warehouse", 200), ("nobody", 422), ("../x", 422)):
            place = f"{many.served.place}{path}{sign}destination={name}"
            assert many.served.operator.get(place).status_code == status

    def test_metrics_of_one(self, many: Many) -> None:
        assert many.get("/metrics", destination="events") == {"points": []}


class TestCommands:
    def test_one_destination_alone_is_steered(self, many: Many, penstock: CommandLine) -> None:
        refused = many.post("/tables/pause", tables=["orders"])
        assert refused.status_code == 422
        assert many.warehouse.load_wishes() == {}
        done = many.post("/tables/pause", tables=["orders"], destination="warehouse")
        assert done.status_code == 200, done.text
        assert many.warehouse.load_wishes() == {ORDERS: "paused"}
        assert many.events.load_wishes() == {}
        assert '"destination":"warehouse"' in many.served.audited().replace(": ", ":")
        # The command line does the same to the other one.
        code, said, _ = penstock("tables", "retry", "--only=events", tables=("orders",))
        many.events.load_table_states()
        many.events.update_table_state(ORDERS, Errored("no topic", "Make one."))
        answer = many.post("/tables/retry", tables=["orders"], destination="events").json()
        shown = [f"{entry['table']}: {entry['outcome']}" for entry in answer["tables"]]
        assert (code, said.splitlines()) == (0, [*shown, answer["note"]])

    def test_which_tables_are_followed_is_the_affair_of_all(self, many: Many) -> None:
        answer = many.post("/tables/remove", tables=["orders"], destination="warehouse")
        assert answer.status_code == 422
        answer = many.post("/tables/remove", tables=["public.nobody"])
        assert answer.status_code == 409
        assert "The source has no table" in answer.json()["detail"]

    def test_giving_one_up_takes_its_name(self, many: Many) -> None:
        for confirm in (None, many.served.name, "warehouse"):
            answer = many.post("/jobs", kind="destroy", destination="events", confirm=confirm)
            assert answer.status_code == 422
        for body in ({"kind": "snapshot"}, {"kind": "init", "destination": "events"}):
            assert many.post("/jobs", **body).status_code == 422
        assert many.served.parts.service.jobs.of(many.served.name) == []

    def test_operations_are_about_the_one_that_is_named(self, many: Many) -> None:
        file = many.served.parts.service.pipeline(many.served.name)
        assert "--only" not in _arguments("check", file, {})
        assert _arguments("verify", file.only("warehouse"), {"show": 2})[-5:] == [
            *("--only", "warehouse", "--json", "--show", "2")
        ]


def test_what_runs_is_told_by_destination(many: Many) -> None:
    """Of a destination without a process the pipeline says why."""
    service = many.served.parts.service
    numbers = dict.fromkeys(_NUMBERS, 0.0)
    healthy = {"status": "healthy", "reasons": []}
    own = {**numbers, "lag_seconds": 3.0, "tables": {"ready": 2}, "health": healthy}
    said = {"events": {"status": "not running", "reasons": [NOT_BEGUN]}, "warehouse": healthy}
    reasons = [f"destination events: {NOT_BEGUN}"]
    whole = {
        **numbers,
        "received": 7.0,
        "tables": {"ready": 2},
        "health": {"status": "healthy", "reasons": reasons, "destinations": said},
        "ready": {"status": "not ready", "reasons": reasons},
        "destinations": {"warehouse": {**own, "ready": healthy}},
    }
    file = service.pipeline(many.served.name)
    service.supervisor._kept[file.name].process = ProcessIdentity.own()
    service.sampler._summaries[file.name] = whole
    view = service.overview(file)
    warehouse, events = view.destinations
    assert (view.health, warehouse.health, events.health) == ("starting", "healthy", "starting")
    assert (warehouse.lag_seconds, events.lag_seconds) == (3.0, None)
    assert events.reasons == (NOT_BEGUN,)
    one = service.sampler.summary(file.name, "warehouse")
    assert one is not None
    assert (one["received"], one["tables"]) == (7.0, {"ready": 2})
    service.supervisor._kept[file.name].process = None

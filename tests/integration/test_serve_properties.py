"""Whatever the OpenAPI document allows is answered as it declares, and never with a failure."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from penstock.serve.supervise import jobs, supervisor
from penstock.serve.supervise.pipeline_process import start_detached
from penstock.store import PostgresStore
from tests.fix_serve import Served

# They do not end by themselves: test_streams_end_with_who_listens is about them.
STREAMS = {"stream_events", "stream_all_events"}

ODD_TEXT = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["", "public.orders", "orders", '"', "a.b.c", "\x00", "%", "../..", "'; --"]),
)


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs and operations are played by processes that do nothing, and end when they are told."""
    started: list[subprocess.Popen[bytes]] = []

    def play(
        _line: object, out: Path, err: Path, *, stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        started.append(start_detached(["sleep", "600"], out, err, stdin=stdin))
        return started[-1]

    monkeypatch.setattr(supervisor, "start_run", lambda _views, _file, log: play((), log, log))
    monkeypatch.setattr(jobs, "start_detached", play)
    yield
    for process in started:
        process.kill()
        process.wait()


class Api:
    """The document, and who asks."""

    def __init__(self, served: Served) -> None:
        self.client: TestClient = served.operator
        self.name = served.name
        self.document: dict[str, Any] = self.client.get("/openapi.json").json()

    def operations(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for path, item in self.document["paths"].items():
            for method, operation in item.items():
                if operation["operationId"] not in STREAMS:
                    yield method, path, operation

    def resolved(self, schema: Any) -> Any:
        if isinstance(schema, dict):
            if "$ref" in schema:
                name = schema["$ref"].rpartition("/")[2]
                return self.resolved(self.document["components"]["schemas"][name])
            return {key: self.resolved(value) for key, value in schema.items()}
        return [self.resolved(value) for value in schema] if isinstance(schema, list) else schema


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema allows, mostly; now and then others."""
    kinds: list[st.SearchStrategy[Any]] = [ODD_TEXT]
    for choice in schema.get("anyOf", [schema]):
        if "enum" in choice:
            kinds.append(st.sampled_from(choice["enum"]))
        elif choice.get("type") == "integer":
            low, high = choice.get("minimum", -5), choice.get("maximum", 2**70)
            kinds += [st.integers(low, min(high, low + 1000)), st.integers(-(2**70), 2**70)]
        elif choice.get("type") == "number":
            kinds.append(st.floats(allow_nan=False))
        elif choice.get("type") == "boolean":
            kinds.append(st.booleans())
        elif choice.get("type") == "array":
            kinds.append(st.lists(values(choice["items"]), max_size=4))
        elif choice.get("type") == "object":
            parts = {key: values(part) for key, part in choice.get("properties", {}).items()}
            kinds += [st.fixed_dictionaries({}, optional=parts)] * 3
        elif choice.get("type") == "null":
            kinds.append(st.none())
    return st.one_of(kinds)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.data())
def test_every_answer_is_declared(
    served: Served, recorded: PostgresStore, data: st.DataObject
) -> None:
    api = Api(served)
    method, path, operation = data.draw(st.sampled_from(list(api.operations())), "operation")
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "path":
            right = api.name if parameter["name"] == "pipeline" else "0" * 32
            value = data.draw(st.sampled_from([right, right, right, "nobody", "7"]), "path")
            path = path.replace(f"{{{parameter['name']}}}", value)
    query = {
        parameter["name"]: data.draw(values(api.resolved(parameter["schema"])), parameter["name"])
        for parameter in operation.get("parameters", [])
        if parameter["in"] == "query" and data.draw(st.booleans())
    }
    content = None
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        content = json.dumps(data.draw(values(api.resolved(schema)), "body")).encode()
    answer = api.client.request(
        method.upper(),
        path,
        params={key: str(value) for key, value in query.items()},
        content=content,
        headers={"Content-Type": "application/json"} if content else {},
    )
    assert answer.status_code < 500, answer.text
    declared = operation["responses"].get(str(answer.status_code))
    assert declared is not None, (answer.status_code, answer.text)
    kind = answer.headers["content-type"].partition(";")[0]
    assert kind in declared["content"]
    schema = api.resolved(declared["content"][kind]["schema"])
    jsonschema.validate(answer.json(), schema)
    assert "hunter2" not in answer.text


@pytest.mark.parametrize("path", ["/v1/events/stream", "{place}/events/stream"])
@pytest.mark.parametrize("last", ["", "0", "1", "-1", "x", "9" * 400, "é"])
def test_streams_answer_whatever_was_seen_last(served: Served, path: str, last: str) -> None:
    """Whatever a client says of where it stopped, the stream begins, or says what is wrong."""
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": path.format(place=served.place),
        "query_string": b"",
        "headers": [
            (b"host", b"127.0.0.1:8720"),
            (b"authorization", f"Bearer {served.token}".encode()),
            *([(b"last-event-id", last.encode("latin-1"))] if last else []),
        ],
    }
    begun: list[int] = []

    async def ask() -> None:
        hung_up = asyncio.Event()
        asked = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> dict[str, Any]:
            for message in asked:
                return message
            await hung_up.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                begun.append(message["status"])
            hung_up.set()

        await asyncio.wait_for(served.parts.guard(scope, receive, send), 60)

    asyncio.run(ask())
    assert begun in ([200], [422])


def test_the_document(served: Served) -> None:
    document = served.operator.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    ids = [op["operationId"] for item in document["paths"].values() for op in item.values()]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-z_]+", name) for name in ids)
    for path, item in document["paths"].items():
        for operation in item.values():
            assert operation.get("description") or operation["summary"]
            problems = [
                code for code, answer in operation["responses"].items() if int(code) >= 400
                and "application/problem+json" not in answer["content"]
            ]  # fmt: skip
            assert not problems, path


@pytest.mark.release
def test_by_schemathesis(served: Served, recorded: PostgresStore) -> None:
    """The same with a tool that others wrote."""
    import schemathesis
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    schema = schemathesis.openapi.from_dict(served.operator.get("/openapi.json").json())
    checks = [content_type_conformance, response_schema_conformance, status_code_conformance]
    for result in schema.get_all_operations():
        found: Any = result
        operation = found.ok()
        if operation.definition.raw["operationId"] in STREAMS:
            continue

        @settings(max_examples=15, suppress_health_check=list(HealthCheck), deadline=None)
        @given(case=operation.as_strategy())
        def asks(case: Any) -> None:
            case.path_parameters["pipeline"] = served.name
            token = {"Authorization": f"Bearer {served.token}"}
            asked = case.as_transport_kwargs(base_url="http://127.0.0.1:8720", headers=token)
            known = {"method", "url", "headers", "params", "json", "data"}
            asked = {key: value for key, value in asked.items() if key in known}
            if isinstance(asked.get("data"), bytes):
                asked["content"] = asked.pop("data")
            answer = served.operator.request(**asked)
            assert answer.status_code < 500
            case.validate_response(answer, checks=checks)

        asks()

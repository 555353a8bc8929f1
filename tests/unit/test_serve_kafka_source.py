"""A pipeline that reads topics, as the server shows it: by the source's own contract."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.model.topic_status import TopicStatus
from penstock.serve.options import ServeOptions
from penstock.serve.safety.tokens import Tokens
from penstock.serve.server import make_parts
from penstock.serve.state_folder import StateFolder
from penstock.source.kafka import topic_status
from tests.fix_serve import PORT, client

FILE = """name: events
source: {type: kafka, brokers: 'broker:9092', topics: [orders], format: debezium}
store: {url: 'postgresql://me:${STORE_PASSWORD}@localhost:1/states'}
destination: {type: discard}
"""


def test_the_source_is_what_the_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "events.yaml"
    file.write_text(FILE)
    monkeypatch.setenv("STORE_PASSWORD", "hunter2")
    found = TopicStatus("broker:9092", "penstock_events", {"orders": 7})
    monkeypatch.setattr(topic_status, "read_topic_status", lambda _config: found)
    token = Tokens(StateFolder(tmp_path / "state").tokens).create("olga", "operate")
    options = ServeOptions((file,), tmp_path / "state", starts=False, page=False)
    parts = make_parts(options, PORT)
    try:
        operator = client(parts, token)
        answer = operator.get("/v1/pipelines/events").json()
        configured = operator.get("/v1/pipelines/events/configuration").text
    finally:
        parts.service.stop()
    assert answer["source"] == {**found.to_json(), "lag_messages": 7}
    assert answer["lag_bytes"] is None
    assert any("localhost" in problem for problem in answer["problems"]), "the store is away"
    assert "url" not in json.loads(configured)["configuration"]["source"]
    assert "hunter2" not in configured

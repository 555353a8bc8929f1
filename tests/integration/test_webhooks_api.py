"""Subscriptions by HTTP and by command line."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.destination.webhooks.delivery.service import WebhookService
from tests.webhook_receiver import Receiver, Reply, wait_until
from tests.webhook_shop import KEY, PIPELINE, Shop

TOKEN = "a token of some length"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


class Client:
    """``base`` is the API's address."""

    def __init__(self, base: str) -> None:
        self.base = base

    def __call__(
        self, method: str, path: str, body: object = None, token: str | None = TOKEN
    ) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else None
        if body is not None and data is None:
            data = json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, method=method)  # noqa: S310
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@pytest.fixture
def shop(database: str, tmp_path: Path, receiver: Receiver) -> Iterator[Shop]:
    shop = Shop(
        database, tmp_path / "outbox", receiver, api={"token": TOKEN, "listen": "127.0.0.1:0"}
    )
    yield shop
    shop.close()


@pytest.fixture
def client(shop: Shop) -> Client:
    service = shop.start()._service
    assert isinstance(service, WebhookService)
    assert service.api_url.startswith("http://127.0.0.1:")
    return Client(service.api_url)


def test_a_subscription_from_its_beginning_to_its_end(
    shop: Shop, client: Client, receiver: Receiver
) -> None:
    status, made = client("POST", "/v1/subscriptions", {"url": receiver.url("/hook")})
    assert status == 201
    assert made["secret"].startswith("whsec_")
    # The receiver was asked first.
    assert json.loads(receiver.received[0].body)["type"] == "penstock.test"
    receiver.secrets["/hook"] = made["secret"]
    one = f"/v1/subscriptions/{made['id']}"
    shop.insert(0, 5)
    wait_until(lambda: len(receiver.received) == 6)
    status, shown = client("GET", one)
    assert (status, shown["state"]) == (200, "active")
    assert made["secret"] not in json.dumps(client("GET", "/v1/subscriptions"))
    assert client("POST", f"{one}/pause")[1]["state"] == "paused"
    assert client("POST", f"{one}/resume")[1]["state"] == "active"
    assert client("POST", f"{one}/test")[1] == {"delivered": True, "why": ""}
    status, rotated = client("POST", f"{one}/rotate", {"keep_seconds": 60})
    assert (status, rotated["secrets"]) == (200, 2)
    assert rotated["secret"] != made["secret"]
    assert client("DELETE", one)[0] == 204
    assert client("GET", one)[0] == 404
    assert client("GET", "/v1/subscriptions")[1] == {"subscriptions": []}


def test_bad_input_is_refused_and_changes_nothing(
    shop: Shop, client: Client, receiver: Receiver
) -> None:
    fine = {"url": receiver.url("/hook"), "verify": False}
    for token in (None, "", "wrong", TOKEN + "x", "\xe9"):
        assert client("GET", "/v1/subscriptions", token=token)[0] == 401
        assert client("POST", "/v1/subscriptions", fine, "wrong")[0] == 401
    receiver.decide["/no"] = lambda _: Reply(500)
    for body, expected in (
        (b"not json", 422),
        (b"[" * 30_000, 422),
        (b"[]", 422),
        ({}, 422),
        ({**fine, "tables": ["public.unknown"]}, 422),
        ({**fine, "filter": {"public.unknown": "a = 1"}}, 422),
        ({**fine, "filter": {"public.orders": "total > 1 AND lower(no_such) = 'a'"}}, 422),
        ({**fine, "filter": {"public.orders": "no_such = 'a\x00'"}}, 422),
        ({**fine, "tables": ["public.o*", "public.\x00*"]}, 422),
        ({**fine, "description": "a\x00b"}, 422),
        ({**fine, "description": "a\ud800b"}, 422),
        ({**fine, "description": "x" * 70_000}, 413),
        ({**fine, "url": receiver.url("/no"), "verify": True}, 409),
        ({**fine, "url": "http://10.0.0.1/", "verify": True}, 409),
        ({**fine, "url": "nonsense"}, 422),
    ):
        status, answer = client("POST", "/v1/subscriptions", body)
        assert (status, set(answer)) == (expected, {"error", "remedy"}), body
    assert client("GET", "/v1/subscriptions/sub_none")[0] == 404
    assert client("POST", "/v1/subscriptions/sub_none/pause")[0] == 404
    assert client("POST", "/v1/subscriptions/sub_none/resume", {"other": 1})[0] == 422
    one = shop.add("/hook")
    for secret in ("whsec_c2hvcnQ=", "env:HOME", 5, ["x"]):
        status, answer = client("POST", f"/v1/subscriptions/{one}/rotate", {"secret": secret})
        assert (status, set(answer)) == (422, {"error", "remedy"}), secret
        assert "c2hvcnQ" not in answer["error"]
    shop.subscriptions.remove(one)
    assert client("GET", "/nowhere")[0] == 404
    assert client("PUT", "/v1/subscriptions")[0] == 405
    assert shop.subscriptions.all() == []
    assert not receiver.received


def test_the_api_describes_itself(client: Client) -> None:
    status, found = client("GET", "/openapi.json", token=None)
    assert (status, found["openapi"]) == (200, "3.1.0")
    assert "/v1/subscriptions/{id}/rotate" in found["paths"]
    assert "url" in found["components"]["schemas"]["NewSubscription"]["properties"]


def test_the_same_by_command_line(shop: Shop, receiver: Receiver, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    document = {
        "name": PIPELINE,
        "source": {"url": "postgresql://localhost/nowhere"},
        "destination": {
            "type": "webhooks",
            "url": shop.options.url.reveal(),
            "path": str(tmp_path / "outbox"),
            "secret_key": KEY,
            "allow": ["127.0.0.0/8"],
            "http": True,
        },
    }
    file.write_text(yaml.safe_dump(document))

    def run(command: str, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "webhooks", command, str(file), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    made = run("add", receiver.url("/hook"), "--table", "public.*", "--where", "public.orders=id>1")
    name = made.split()[0]
    assert "whsec_" in made
    assert name in run("list")
    assert "paused" in run("pause", name)
    assert "active" in run("resume", name)
    assert "delivered" in run("test", name)
    assert "whsec_" in run("rotate", name)
    refused = run("rotate", name, "--secret", "whsec_c2hvcnQ=", code=2)
    assert "secret: Input should be whsec_" in refused
    assert "c2hvcnQ" not in refused
    assert "deliver: serve" in run("serve", code=2)
    assert "no subscription" in run("pause", "sub_none", code=1)
    assert "removed" in run("remove", name)

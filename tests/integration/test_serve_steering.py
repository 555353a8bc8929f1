"""Dead letters, rules and receivers by the API, as the command line has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.config import load_pipeline
from penstock.destination.postgres.own_tables import ensure_own_tables
from penstock.destination.webhooks.kept_secrets import KeptSecrets
from penstock.destination.webhooks.signing import new_secret
from penstock.destination.webhooks.subscription import WebhookSubscription
from penstock.operations.webhook_subscriptions import opened_subscriptions
from penstock.store import PostgresStore
from tests.fix_cli import CommandLine
from tests.fix_serve import ITEMS, ORDERS, Served
from tests.webhook_receiver import Receiver
from tests.webhook_shop import KEY


def rewrite(penstock: CommandLine, served: Served, **parts: Any) -> None:
    """The pipeline file with other parts."""
    config = {"name": served.name, "source": {"url": "${SHOP_URL}"}, **parts}
    penstock.file.write_text(json.dumps(config))
    served.parts.service.catalogue.refresh()


@pytest.fixture
def letters(
    penstock: CommandLine, served: Served, recorded: PostgresStore, database: str
) -> list[int]:
    """Two refused rows of orders and one of items."""
    keeping = {"type": "postgres", "url": "${SHOP_URL}", "dead_letter": True}
    rewrite(penstock, served, destination=keeping)
    with psycopg.connect(database) as conn:
        ensure_own_tables(conn)
        rows = conn.execute(
            "INSERT INTO penstock.dead_letter (pipeline, source_table, op, commit_lsn, ordinal,"
            " row_values, sqlstate, cause) SELECT %s, t, 'I', '0/1', 1, '{\"id\": \"7\"}', '22001',"
            " 'too long' FROM unnest(%s::text[]) t RETURNING id",
            [served.name, ["public.orders", "public.orders", "shop.items"]],
        ).fetchall()
    return [row[0] for row in rows]


class TestDeadLetters:
    def left(self, served: Served) -> list[int]:
        answer = served.operator.get(f"{served.place}/dead-letters").json()
        return [letter["id"] for letter in answer["letters"]]

    def test_they_are_brought_again_by_a_new_copy(
        self, served: Served, recorded: PostgresStore, letters: list[int]
    ) -> None:
        body = {"ids": [letters[0], 10**6]}
        answer = served.operator.post(f"{served.place}/dead-letters/retry", json=body)
        assert answer.status_code == 200, answer.text
        (outcome,) = answer.json()["tables"]
        assert outcome == {"table": "public.orders", "outcome": "is to be copied anew"}
        assert recorded.load_wishes() == {ORDERS: "resync"}
        assert self.left(served) == letters[1:]
        assert '"dead-letters retry"' in served.audited()
        again = served.operator.post(f"{served.place}/dead-letters/retry", json=body)
        assert again.status_code == 404

    def test_so_they_are_on_the_command_line(
        self, penstock: CommandLine, served: Served, recorded: PostgresStore, letters: list[int]
    ) -> None:
        code, text, _ = penstock("dead-letters", "retry", tables=(str(letters[2]),))
        assert code == 0
        assert "shop.items: is to be copied anew" in text
        assert recorded.load_wishes() == {ITEMS: "resync"}
        assert self.left(served) == letters[:2]

    def test_where_rows_are_not_copied_nothing_changes(
        self, penstock: CommandLine, served: Served, recorded: PostgresStore, letters: list[int]
    ) -> None:
        keeping = {"type": "postgres", "url": "${SHOP_URL}", "dead_letter": True}
        source = {"url": "${SHOP_URL}", "copy": False}
        rewrite(penstock, served, destination=keeping, source=source)
        answer = served.operator.post(f"{served.place}/dead-letters/retry", json={"ids": letters})
        assert answer.status_code == 422
        assert self.left(served) == letters
        assert recorded.load_wishes() == {}


class TestRules:
    def test_the_check_says_what_the_command_line_says(
        self, penstock: CommandLine, served: Served, database: str
    ) -> None:
        with psycopg.connect(database) as conn:
            conn.execute("CREATE TABLE users (id int PRIMARY KEY, mail text, age int)")
        rules = {"rules": [{"table": "users", "columns": {"mail": "redact", "age": "redact"}}]}
        rewrite(penstock, served, destination={"type": "discard"}, transform=rules)
        code, text, _ = penstock("transform", "check")
        found = served.reader.get(f"{served.place}/transform/check").json()
        # No number is redacted.
        assert (code, found["passed"]) == (1, False)
        assert {finding["status"] for finding in found["findings"]} >= {"failed"}
        for finding in found["findings"]:
            assert finding["text"] in text

    def test_without_rules(self, served: Served, recorded: PostgresStore) -> None:
        answer = served.reader.get(f"{served.place}/transform/check")
        assert answer.status_code == 422
        assert "no part transform" in answer.json()["detail"]
        accepted = served.operator.post(f"{served.place}/transform/accept", json={})
        assert accepted.json() == {"tables": []}
        assert served.reader.post(f"{served.place}/transform/accept", json={}).status_code == 403


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


class TestReceivers:
    @pytest.fixture
    def subscription(
        self, penstock: CommandLine, served: Served, receiver: Receiver, tmp_path: Path
    ) -> str:
        options = {"url": "${SHOP_URL}", "path": str(tmp_path / "outbox"), "secret_key": KEY}
        reach = {"allow": ["127.0.0.0/8"], "http": True}
        rewrite(penstock, served, destination={"type": "webhooks", **options, **reach})
        with opened_subscriptions([load_pipeline(penstock.file)], penstock.file) as (made, found):
            secret = new_secret()
            receiver.secrets["/hook"] = secret
            entry, _ = KeptSecrets(made.secret_key).made(secret)
            wanted = WebhookSubscription.model_validate({"url": receiver.url("/hook")})
            return found.add(wanted, entry)

    def test_they_are_seen_and_steered(
        self, penstock: CommandLine, served: Served, subscription: str, receiver: Receiver
    ) -> None:
        def post(action: str, **more: Any) -> Any:
            body = {"subscription": subscription, **more}
            return served.operator.post(f"{served.place}/webhooks/{action}", json=body)

        assert served.reader.get(f"{served.place}/webhooks").status_code == 403
        (found,) = served.operator.get(f"{served.place}/webhooks").json()["subscriptions"]
        _, text, _ = penstock("webhooks", "list", "--json")
        assert [found] == json.loads(text)
        assert receiver.secrets["/hook"] not in json.dumps(found)
        assert post("pause").json()["state"] == "paused"
        assert post("resume").json()["state"] == "active"
        assert post("test").json() == {"delivered": True, "why": ""}
        assert [got.path for got in receiver.received] == ["/hook"]
        assert post("remove").json() == {"subscriptions": []}
        assert post("pause").status_code == 404
        assert '"webhooks remove"' in served.audited()

    def test_another_destination_has_none(self, served: Served) -> None:
        answer = served.operator.get(f"{served.place}/webhooks")
        assert answer.status_code == 422
        assert "webhooks" in answer.json()["remedy"]

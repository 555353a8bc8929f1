"""Which addresses are sent to, which URLs and secrets are taken, and how events are signed."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from standardwebhooks import Webhook, WebhookVerificationError

from penstock.destination.webhooks import managing
from penstock.destination.webhooks.delivery.request import EndpointAnswer, Request, Requests
from penstock.destination.webhooks.guard import AddressGuard, AddressRefused
from penstock.destination.webhooks.kept_secrets import KeptSecrets
from penstock.destination.webhooks.options import WebhooksOptions
from penstock.destination.webhooks.signing import key_of, new_secret, signed_headers
from penstock.destination.webhooks.subscription import (
    Kept,
    NewSubscription,
    OutboxPlace,
    WebhookSubscription,
    parse_subscription,
)
from penstock.model.errors import ConfigError
from tests.webhook_receiver import Receiver
from tests.webhook_shop import KEY, options_for

ANY = "0.0.0.0"  # noqa: S104 (sent to, not listened on)
PRIVATE = (
    *("127.0.0.1", "127.8.9.1", ANY, "10.0.0.1", "172.16.5.4", "192.168.1.1"),
    *("169.254.169.254", "100.64.0.1", "198.18.0.1", "192.0.0.8", "224.0.0.1", "240.0.0.1"),
    *("255.255.255.255", "203.0.113.5", "::", "::1", "fe80::1", "fe80::1%eth0", "fd00::1"),
    *("fec0::1", "ff02::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
    *("::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1"),
    *("64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2002:7f00:1::", "2002:a00:1::1"),
    *("2002:a9fe:a9fe::", "2001:0:53aa:64c:0:0:80ff:fffe", "100::1", "3fff::1"),
)
PUBLIC = ("8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8")


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_refused(address: str) -> None:
    assert not AddressGuard([]).permits(address)
    found = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, 80))
    with pytest.raises(AddressRefused, match=r"destination\.allow"):
        AddressGuard(["192.0.2.0/24"]).socket(found)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_not(address: str) -> None:
    assert AddressGuard([]).permits(address)


def test_networks_can_be_allowed_in_either_spelling() -> None:
    guard = AddressGuard(["10.1.0.0/16", "fd00:1::/32"])
    allowed = ("10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203", "fd00:1::5")
    assert all(map(guard.permits, allowed))
    assert not any(map(guard.permits, ("10.2.0.1", "fd00:2::1", "127.0.0.1")))


def _sent(options: WebhooksOptions, url: str) -> EndpointAnswer:
    async def send() -> EndpointAnswer:
        requests = Requests(options)
        try:
            return await requests.send(Request(url, "penstock", "msg_1", b"{}", [b"k" * 24]))
        finally:
            await requests.close()

    return asyncio.run(send())


def test_no_spelling_of_loopback_is_connected_to(tmp_path: Path) -> None:
    options = options_for("postgresql://localhost/x", tmp_path, allow=[])
    with Receiver() as receiver:
        for host in (
            *("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1"),
            *(ANY, "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::]"),
        ):
            answer = _sent(options, f"http://{host}:{receiver.port}/hook")
            assert answer.verdict in ("refused", "away"), host
            if answer.verdict == "refused":
                assert "private or local" in answer.why or "URL cannot" in answer.why, host
        assert not receiver.attempts
        allowed = options_for("postgresql://localhost/x", tmp_path)
        assert _sent(allowed, receiver.url("/hook")).verdict == "delivered"
        plain = options_for("postgresql://localhost/x", tmp_path, http=False)
        assert "https" in _sent(plain, receiver.url("/hook")).why


def test_a_name_that_means_a_private_address_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with DNS rebinding: whatever a check of the name would have said before."""
    real = socket.getaddrinfo

    def rebound(host: Any, port: Any, *args: Any, **more: Any) -> Any:
        return real("127.0.0.1" if host == "public.example" else host, port, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", rebound)
    options = options_for("postgresql://localhost/x", tmp_path, allow=[])
    with Receiver() as receiver:
        answer = _sent(options, f"http://public.example:{receiver.port}/hook")
        assert (answer.verdict, receiver.attempts) == ("refused", {})
        assert "127.0.0.1 is a private" in answer.why


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({}, "url"),
        ({"url": "ftp://example.com"}, "url"),
        ({"url": "https://"}, "url"),
        ({"url": "https://user:pw@example.com/"}, "without user"),
        ({"url": "https://example.com:99999/"}, "url"),
        ({"url": "https://example.com/a b"}, "url"),
        ({"url": "https://example.com\\@10.0.0.1/"}, "url"),
        ({"url": "https://exa\nmple.com/"}, "url"),
        ({"url": "https://example.com/#x"}, "fragment"),
        ({"url": "https://example.com/" + "x" * 3000}, "2000"),
        ({"url": 5}, "url"),
        ({"url": "https://example.com", "tables": []}, "tables"),
        ({"url": "https://example.com", "tables": ["a.b.c"]}, "tables"),
        ({"url": "https://example.com", "operations": ["explode"]}, "operations"),
        ({"url": "https://example.com", "filter": {"public.*": "a = 1"}}, "filter"),
        ({"url": "https://example.com", "filter": {"public.a": "sleep(5)"}}, "filter"),
        ({"url": "https://example.com", "format": "xml"}, "format"),
        ({"url": "https://example.com", "concurrency": 0}, "concurrency"),
        ({"url": "https://example.com", "secret": "whsec_short"}, "secret"),
        ({"url": "https://example.com", "secret": "env:PATH"}, "secret"),
        ({"url": "https://example.com", "surprise": 1}, "surprise"),
        ([], "subscription"),
    ],
)
def test_a_wrong_subscription_is_explained(wanted: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_subscription(wanted)


def test_signatures_are_those_of_the_standard() -> None:
    one, two = new_secret(), new_secret()
    now = int(datetime.now(UTC).timestamp())
    headers = signed_headers("msg_1", now, b'{"a":1}', [key_of(one), key_of(two)])
    assert _takes(one, headers)
    assert _takes(two, headers)
    assert not _takes(new_secret(), headers)


def _takes(secret: str, headers: dict[str, str]) -> bool:
    """Whether a receiver with this secret takes the event for ours."""
    try:
        return bool(Webhook(secret).verify('{"a":1}', headers) == {"a": 1})
    except WebhookVerificationError:
        return False


def test_secrets_are_sealed_and_keys_can_change(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = WebhooksOptions.model_validate(
        {"url": "postgresql://localhost/x", "path": "/x", "secret_key": KEY}
    ).secret_key
    keeping = KeptSecrets(keys)
    entry, told = keeping.made(None)
    assert told is not None
    assert told.removeprefix("whsec_") not in str(entry)
    assert keeping.keys([entry]) == [key_of(told)]
    with pytest.raises(ConfigError, match="secret_key"):
        KeptSecrets(None).made(None)
    named, _ = KeptSecrets(None).made("env:PENSTOCK_WEBHOOK_ONE")
    with pytest.raises(ConfigError, match="PENSTOCK_WEBHOOK_ONE is not set"):
        keeping.keys([named])
    monkeypatch.setenv("PENSTOCK_WEBHOOK_ONE", told)
    assert keeping.keys([named]) == [key_of(told)]
    rotated = keeping.rotated([entry, named], named, 60)
    assert len(keeping.keys(rotated)) == 2
    assert len(keeping.keys([{**part, "until": 1} for part in rotated[1:]])) == 0


@pytest.mark.parametrize(
    "more",
    [
        {"path": "ftp://host/x"},
        {"path_options": {"region": "eu-central-1"}},
        {"secret_key": "short"},
        {"api": {"token": "short"}},
        {"allow": ["10.0.0.1/8"]},
        {"order": "chaos"},
    ],
)
def test_wrong_options_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        WebhooksOptions.model_validate({"url": "postgresql://localhost/x", "path": "/x", **more})


@pytest.mark.parametrize("secret", ["whsec_c2hvcnQ=", "env:HOME", 5, ["c2hvcnQ"]])
def test_a_secret_that_is_none_is_refused_and_not_repeated(secret: object) -> None:
    wanted = WebhookSubscription(url="https://example.com/")
    kept = Kept("sub_1", wanted, (), "active", "", OutboxPlace(1), 0)
    nobody: Any = None
    with pytest.raises(ConfigError, match="secret: Input should be") as caught:
        managing.rotate(nobody, nobody, kept, secret, 60.0)
    assert "c2hvcnQ" not in caught.value.message
    with pytest.raises(ValidationError) as plain:
        NewSubscription.model_validate({"url": "https://example.com/", "secret": secret})
    assert "c2hvcnQ" not in str(plain.value)

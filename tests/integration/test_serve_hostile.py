"""Requests that nobody should send: refused, written down, nothing changed."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from penstock.model.errors import ConfigError
from penstock.serve.options import ServeOptions
from penstock.serve.safety import audit
from penstock.serve.safety.exchange import MOST_BODY
from penstock.serve.safety.failures import MOST_FAILURES, Failures
from penstock.serve.safety.identity import Identity
from penstock.serve.safety.origins import Origins
from penstock.serve.safety.sessions import SESSION_SECONDS, OneTimeToken, Sessions
from penstock.serve.safety.tokens import Tokens
from penstock.serve.server import make_parts
from penstock.serve.state_folder import StateFolder
from penstock.store import PostgresStore
from tests.fix_cli import CommandLine
from tests.fix_serve import ORIGIN, PORT, Served, client

PAUSE = {"tables": ["public.orders"]}


class TestRefusals:
    @pytest.fixture(autouse=True)
    def _nothing_is_changed(self, served: Served, recorded: PostgresStore) -> Iterator[None]:
        """Whatever a test sends, it is refused and written down, and nothing comes of it."""
        yield
        assert recorded.load_wishes() == {}
        entries = [json.loads(line) for line in served.refused().splitlines()]
        assert entries
        assert all(entry["kind"] == "refused" for entry in entries)
        assert served.token not in served.refused()
        done = [json.loads(line)["action"] for line in served.audited().splitlines()]
        assert set(done) <= {"sign in"}

    def pause(self, sender: TestClient, served: Served, **headers: str) -> int:
        answer = sender.post(f"{served.place}/tables/pause", json=PAUSE, headers=headers)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == answer.status_code
        return answer.status_code

    def test_no_token(self, served: Served) -> None:
        assert self.pause(served.stranger, served) == 401
        assert served.stranger.get("/v1/pipelines").status_code == 401
        assert served.stranger.get("/openapi.json").status_code == 401

    def test_a_wrong_token(self, served: Served) -> None:
        for text in ["", "x", "pst_", "pst_x_y", "pst__", "Basic eDp5", "\xff\xfe", "a" * 7000]:
            value = text if text.startswith("Basic") else f"Bearer {text}"
            headers = {b"authorization": value.encode("latin-1")}
            answer = served.stranger.get("/v1/pipelines", headers=headers)
            assert answer.status_code == 401

    def test_the_right_id_with_another_secret(self, served: Served) -> None:
        wrong = served.token[:-1] + ("A" if served.token[-1] != "A" else "B")
        assert self.pause(client(served.parts, wrong), served) == 401

    def test_who_may_only_look(self, served: Served) -> None:
        assert self.pause(served.reader, served) == 403
        for path in ("start", "stop", "jobs", "dead-letters/discard"):
            assert served.reader.post(f"{served.place}/{path}", json={}).status_code == 403

    def test_values_of_rows_are_not_for_who_may_only_look(self, served: Served) -> None:
        for path in ("dead-letters", "dead-letters/1"):
            answer = served.reader.get(f"{served.place}/{path}")
            assert answer.status_code == 403
            assert answer.json()["remedy"]
        assert served.operator.get(f"{served.place}/dead-letters").status_code == 200
        assert '"who": "rita"' in served.refused()

    def test_another_host(self, served: Served) -> None:
        for host in ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil:8720", "", "[::1"]:
            assert self.pause(served.operator, served, Host=host) == 421

    def test_another_origin(self, served: Served) -> None:
        for origin in [
            "https://evil.example",
            "null",
            "http://127.0.0.1:1",
            "https://127.0.0.1:80",
        ]:
            assert self.pause(served.operator, served, Origin=origin) == 403

    def test_a_page_elsewhere_without_an_origin(self, served: Served) -> None:
        assert self.pause(served.operator, served, **{"Sec-Fetch-Site": "cross-site"}) == 403

    def test_a_cookie_without_an_origin(self, served: Served) -> None:
        assert self.pause(signed_in(served), served) == 403

    def test_a_large_body(self, served: Served) -> None:
        for size in [MOST_BODY + 1, 50 * MOST_BODY]:
            answer = served.operator.post(f"{served.place}/tables/pause", content=b"x" * size)
            assert answer.status_code == 413

    def test_a_large_body_that_does_not_say_so(self, served: Served) -> None:
        def chunks() -> Iterator[bytes]:
            for _ in range(20):
                yield b" " * (MOST_BODY // 10)

        answer = served.operator.post(f"{served.place}/tables/pause", content=chunks())
        assert answer.status_code == 413

    def test_a_long_address(self, served: Served) -> None:
        assert served.operator.get(f"/v1/pipelines?{'x' * 9000}").status_code == 414

    def test_a_web_socket(self, served: Served) -> None:
        for headers in (
            {},
            {"Origin": "https://evil.example", "Authorization": f"Bearer {served.token}"},
            {"Host": "evil.example", "Authorization": f"Bearer {served.token}"},
            {"Origin": ORIGIN},
        ):
            with (
                pytest.raises(WebSocketDisconnect),
                served.stranger.websocket_connect("/_nicegui_ws/socket.io", headers=headers),
            ):
                pass

    def test_guessing_gets_slow(self, served: Served) -> None:
        guesses = [
            client(served.parts, f"pst_{n}_guess").get("/v1/pipelines").status_code
            for n in range(MOST_FAILURES)
        ]
        assert set(guesses) == {401}
        answer = client(served.parts, served.token).get("/v1/pipelines")
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) > 0


def test_a_flood_of_refusals_pushes_no_command_out(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_MOST_BYTES", 10_000)
    monkeypatch.setattr(audit, "_MOST_REFUSALS", 10**6)
    served.operator.post(f"{served.place}/stop")
    path = "/v1/" + 400 * "\xe9"
    for _ in range(50):
        assert served.stranger.get(path).status_code == 401
    assert '"action": "stop"' in served.audited()
    assert len(served.refused()) < 20_000


class TestMalformed:
    @pytest.fixture(autouse=True)
    def _all_is_written_down(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(audit, "_MOST_REFUSALS", 10**6)

    def noted(self, served: Served) -> int:
        return len(served.refused().splitlines())

    def test_path_tricks(self, served: Served) -> None:
        for path in [
            "/v1/pipelines/../../etc/passwd",
            "/v1/pipelines/..%2f..%2fetc%2fpasswd",
            "/v1/pipelines/%00",
            "/v1//pipelines",
            "/v1/pipelines/SHOP",
            "/v1/pipelines/a/jobs/..%2f..%2fkey",
            "//v1/pipelines/nobody",
            "/%2e%2e/state/tokens.json",
        ]:
            before = self.noted(served)
            answer = served.operator.get(path)
            assert answer.status_code in (404, 422), answer.text
            assert "root:" not in answer.text
            assert self.noted(served) == before + 1, path

    def test_bodies(self, served: Served, recorded: PostgresStore) -> None:
        for body in [
            b"",
            b"{",
            b"[]",
            b"null",
            b'{"tables": []}',
            b'{"tables": [1]}',
            b'{"tables": "x"}',
            b'{"tables": ["x"], "more": 1}',
            b'{"tables": ["a.b.c.d"]}',
            b"\xff\xfe",
            b'{"tables": ["' + b"x" * 5000 + b'"]}',
            b"[" * 50_000,
        ]:
            before = self.noted(served)
            answer = served.operator.post(
                f"{served.place}/tables/pause",
                content=body,
                headers={"Content-Type": "application/json"},
            )
            assert answer.status_code in (400, 422), answer.text
            assert self.noted(served) == before + 1, body[:50]
            assert answer.headers["content-type"] == "application/problem+json"
            assert recorded.load_wishes() == {}

    def test_cursors(self, served: Served, recorded: PostgresStore) -> None:
        for cursor in ["x", "%%%", "é", "////"]:
            answer = served.operator.get(f"{served.place}/tables", params={"cursor": cursor})
            assert answer.status_code == 422

    def test_headers_of_every_answer(self, served: Served) -> None:
        for answer in (
            served.stranger.get("/v1/health"),
            served.stranger.get("/v1/pipelines"),
            served.operator.get("/v1/pipelines"),
            served.stranger.get("/signin"),
        ):
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert "access-control-allow-origin" not in answer.headers


def signed_in(served: Served) -> TestClient:
    browser = client(served.parts)
    answer = browser.get(served.parts.url.removeprefix(ORIGIN), follow_redirects=False)
    assert answer.status_code == 303
    return browser


class TestSigningIn:
    def test_the_printed_address_works_once(self, served: Served) -> None:
        path = served.parts.url.removeprefix(ORIGIN)
        browser = client(served.parts)
        answer = browser.get(path, follow_redirects=False)
        cookie = answer.headers["set-cookie"]
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert served.stranger.get(path).status_code == 401
        assert browser.get("/v1/pipelines").status_code == 200
        answer = browser.post(f"{served.place}/stop", headers={"Origin": ORIGIN})
        assert answer.status_code == 200
        assert '"who": "local"' in served.audited()

    def test_by_token(self, served: Served) -> None:
        browser = client(served.parts)
        headers = {"Origin": ORIGIN}
        wrong = browser.post("/signin", data={"token": "wrong"}, headers=headers)
        assert wrong.status_code == 401
        right = browser.post(
            "/signin", data={"token": served.token}, headers=headers, follow_redirects=False
        )
        assert right.status_code == 303
        assert browser.get("/v1/pipelines").status_code == 200
        (token,) = [t for t in tokens_of(served).all() if t.name == "olga"]
        tokens_of(served).revoke(token.id)
        assert browser.get("/v1/pipelines").status_code == 401

    def test_a_person_is_led_to_the_form(self, served: Served) -> None:
        answer = served.stranger.get("/", headers={"Accept": "text/html"}, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/signin")

    def test_a_session_outlives_the_server_and_not_its_time(self) -> None:
        now = [1000.0]
        cookie = Sessions(b"k" * 32, lambda: now[0]).cookie(Identity("a", "read"))
        again = Sessions(b"k" * 32, lambda: now[0])
        assert again.identify(cookie) == Identity("a", "read")
        assert Sessions(b"x" * 32, lambda: now[0]).identify(cookie) is None
        assert again.identify(cookie[:-1] + "0") is None or cookie.endswith("0")
        now[0] += SESSION_SECONDS + 1
        assert again.identify(cookie) is None

    def test_the_one_time_token_has_an_end(self) -> None:
        now = [0.0]
        token = OneTimeToken(lambda: now[0])
        now[0] = 3601
        assert not token.use(token.text)


def tokens_of(served: Served) -> Tokens:
    return Tokens(served.parts.service.folder.tokens)


class TestKept:
    def test_tokens_are_kept_as_hashes_for_the_owner_alone(self, tmp_path: Path) -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        text = tokens.create("a", "read")
        kept = (tmp_path / "tokens.json").read_text()
        assert text.rpartition("_")[2] not in kept
        assert stat.S_IMODE((tmp_path / "tokens.json").stat().st_mode) == 0o600
        assert tokens.identify(text) == Identity("a", "read", tokens.all()[0].id)

    def test_a_file_that_cannot_be_read_lets_nobody_in(self, tmp_path: Path) -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        text = tokens.create("a", "read")
        (tmp_path / "tokens.json").write_text('[{"id": "x"}]')
        assert tokens.identify(text) is None

    def test_failures_are_forgotten(self) -> None:
        now = [0.0]
        failures = Failures(lambda: now[0])
        for _ in range(MOST_FAILURES):
            failures.add("a")
        assert failures.wait_seconds("a") == 60
        assert failures.wait_seconds("b") == 0
        now[0] = 61.0
        assert failures.wait_seconds("a") == 0

    def test_names_that_a_server_answers_to(self) -> None:
        local = Origins.of("127.0.0.1", 8720, tls=False)
        assert local.is_host("LOCALHOST:8720")
        assert not local.is_host("localhost")
        proxied = Origins.of("10.0.0.1", 8720, tls=False, names=["p.example"]).behind_proxy()
        assert proxied.is_host("p.example")
        assert proxied.is_origin("https://p.example")


class TestPlaces:
    @pytest.mark.parametrize(
        ("options", "has_tokens", "said"),
        [
            ({"host": "0.0.0.0"}, True, "nothing would be encrypted"),  # noqa: S104
            ({"host": "::", "tls": True}, False, "it has no tokens"),
            ({"proxy_header": "X-User"}, True, "declared proxy"),
            ({"certificate": Path("x")}, True, "belong together"),
        ],
    )
    def test_what_is_not_safe_does_not_start(
        self, tmp_path: Path, options: dict[str, Any], has_tokens: bool, said: str
    ) -> None:
        if options.pop("tls", False):
            file = tmp_path / "pem"
            file.touch()
            options |= {"certificate": file, "key": file}
        made = ServeOptions((tmp_path,), tmp_path, **options)
        with pytest.raises(ConfigError, match=said) as caught:
            made.require_safe(has_tokens=has_tokens)
        assert caught.value.remedy

    def test_behind_a_proxy_that_names_users(self, penstock: CommandLine, tmp_path: Path) -> None:
        options = ServeOptions(
            (penstock.file,),
            tmp_path / "state",
            host="0.0.0.0",  # noqa: S104
            names=("penstock.example",),
            proxies=frozenset({"10.0.0.9"}),
            proxy_header="X-Forwarded-User",
            starts=False,
            page=False,
        )
        parts = make_parts(options, PORT)
        assert parts.url == "https://penstock.example/signin"
        headers = {"X-Forwarded-User": "paula"}
        base = "http://penstock.example"
        proxy = TestClient(parts.guard, base_url=base, client=("10.0.0.9", 1))
        other = TestClient(parts.guard, base_url=base, client=("10.0.0.8", 1))
        assert proxy.get("/v1/pipelines", headers=headers).status_code == 200
        assert proxy.get("/v1/pipelines").status_code == 401
        assert other.get("/v1/pipelines", headers=headers).status_code == 403
        parts.service.stop()

    def test_who_guesses_behind_a_proxy_keeps_nobody_else_out(
        self, penstock: CommandLine, tmp_path: Path
    ) -> None:
        state = tmp_path / "state"
        token = Tokens(StateFolder(state).tokens).create("olga", "operate")
        options = ServeOptions(
            (penstock.file,),
            state,
            names=("penstock.example",),
            proxies=frozenset({"10.0.0.9"}),
            starts=False,
            page=False,
        )
        parts = make_parts(options, PORT)
        proxy = TestClient(parts.guard, base_url="http://penstock.example", client=("10.0.0.9", 1))

        def ask(text: str, *addresses: str) -> int:
            headers = {"Authorization": f"Bearer {text}", "X-Forwarded-For": ", ".join(addresses)}
            return proxy.get("/v1/pipelines", headers=headers).status_code

        # What stands before the last one is what the client says of itself.
        guesses = [ask("pst_x_y", f"10.1.1.{n}", "192.0.2.7") for n in range(MOST_FAILURES)]
        assert set(guesses) == {401}
        assert ask(token, "192.0.2.8", "192.0.2.7") == 429
        assert ask(token, "192.0.2.7", "192.0.2.8") == 200
        assert '"from": "192.0.2.7"' in parts.service.folder.refusals.read_text()
        parts.service.stop()

    def test_two_servers_on_one_folder(self, served: Served, tmp_path: Path) -> None:
        options = ServeOptions((served.file,), tmp_path / "state", page=False)
        with pytest.raises(ConfigError, match="Another `penstock serve` uses the folder"):
            make_parts(options, PORT)

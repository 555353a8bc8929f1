"""What reaches the store of the options of a pipeline file, and of AWS's own configuration."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock.changelog.changelog import ChangeLog
from penstock.objects.bucket import opened


class Store(ThreadingHTTPServer):
    """Takes everything, and remembers the headers of the last request."""

    daemon_threads = True
    headers: dict[str, str]

    @property
    def options(self) -> dict[str, str]:
        return {"endpoint": f"http://127.0.0.1:{self.server_port}", "region": "eu-central-1"}


class Handler(BaseHTTPRequestHandler):
    server: Store
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.headers = {name.lower(): value for name, value in self.headers.items()}
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def store() -> Iterator[Store]:
    server = Store(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.05])
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    opened.cache_clear()
    yield
    opened.cache_clear()


def written(store: Store, **options: str) -> dict[str, str]:
    """The headers of a segment that is written."""
    log = ChangeLog("s3://shop/log", {**store.options, **options})
    log.segments.write("a", b"rows", durable=True)
    return store.headers


KEYS = {"access_key_id": "ours", "secret_access_key": "x"}


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"server_side_encryption": "AES256"}, {"server-side-encryption": "AES256"}),
        (
            {"server_side_encryption": "aws:kms", "sse_kms_key_id": "alias/shop"},
            {
                "server-side-encryption": "aws:kms",
                "server-side-encryption-aws-kms-key-id": "alias/shop",
            },
        ),
        (
            {"server_side_encryption": "sse-c", "sse_customer_key_base64": "MDEy" * 10 + "MDE="},
            {
                "server-side-encryption-customer-algorithm": "AES256",
                "server-side-encryption-customer-key": "MDEy" * 10 + "MDE=",
            },
        ),
    ],
    ids=["AES256", "aws:kms", "sse-c"],
)
def test_encryption_at_rest_is_asked_for(
    store: Store, options: dict[str, str], sent: dict[str, str]
) -> None:
    headers = written(store, **KEYS, **options)
    assert {name: headers.get(f"x-amz-{name}") for name in sent} == sent
    assert not [name for name in written(store, **KEYS) if "encryption" in name]


def test_a_profile_signs(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credentials"
    file.write_text("[shop]\naws_access_key_id = of-the-profile\naws_secret_access_key = y\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_PROFILE", "shop")
    assert "Credential=of-the-profile/" in written(store)["authorization"]
    # Whoever says more says it for this pipeline.
    opened.cache_clear()
    assert "Credential=ours/" in written(store, **KEYS)["authorization"]

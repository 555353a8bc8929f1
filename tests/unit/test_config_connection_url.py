"""Connection URLs keep their secrets to themselves."""

from __future__ import annotations

import pickle

import pytest

from penstock.config import ConnectionUrl


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://penstock:t0psecret@db:6543/shop",
        "postgresql://db:6543/shop?user=penstock&password=t0psecret",
        "host=db port=6543 user=penstock password=t0psecret dbname=shop",
        "postgresql://penstock@db:6543/shop?sslpassword=t0psecret",
    ],
)
def test_shows_where_but_no_secret(text: str) -> None:
    url = ConnectionUrl(text)
    assert str(url) == "postgresql://penstock@db:6543/shop"
    assert "t0psecret" not in f"{url!r} {url}"
    assert url.reveal() == text
    assert url.secrets == ("t0psecret",)
    assert (url.host, url.port, url.user, url.database) == ("db", "6543", "penstock", "shop")


def test_defaults_of_libpq() -> None:
    url = ConnectionUrl("postgresql://penstock@/")
    assert (url.host, url.port, url.database) == ("local socket", "5432", "penstock")


@pytest.mark.parametrize(
    "text",
    [
        "t0psecret",
        "postgresql://u@h/db?nonsense=t0p",
        # The password holds a character that ends it too early.
        "postgresql://u:t0p/secret@h/db",
        "postgresql://u:1234/t0psecret@h/db",
        "postgresql://u:x@t0psecret@h/db",
    ],
)
def test_bad_text_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match="not a Postgres connection URL") as caught:
        ConnectionUrl(text)
    assert "t0p" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_escaped_characters_and_sockets_are_fine() -> None:
    url = ConnectionUrl("postgresql://u:a%2Fb%40c@h/d%40b?options=-cx%3D@")
    assert url.secrets == ("a/b@c",)
    assert url.database == "d@b"
    assert ConnectionUrl("host=/var/run/postgresql dbname=shop").host == "/var/run/postgresql"
    assert ConnectionUrl("postgresql://u@a:1,b:2/shop").port == "1,2"


def test_pickles_for_other_processes() -> None:
    url = ConnectionUrl("postgresql://u:t0psecret@h/db")
    copy = pickle.loads(pickle.dumps(url))  # noqa: S301 (our own bytes)
    assert copy == url
    assert copy.reveal() == url.reveal()

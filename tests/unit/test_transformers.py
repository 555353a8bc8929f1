"""Every shipped transformer, over values that Hypothesis finds."""

from __future__ import annotations

import pickle
import uuid
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.transform.transformers.column_facts import ColumnFacts
from penstock.transform.transformers.constants import why_unfit
from penstock.transform.transformers.contract import (
    Inputs,
    Transformer,
    UnfitError,
    ValueRefusedError,
)
from penstock.transform.transformers.keys import Keys
from penstock.transform.transformers.registry import shipped_names, transformer_class
from tests.transformer_cases import (
    ARRAY,
    ASKING,
    CASES,
    DATE,
    HSTORE,
    INET,
    INT4,
    INT8,
    JSON,
    MONEY,
    SHORT,
    TEXT,
    UUID,
    Case,
)

cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def applied(
    transformer: Transformer, values: list[str], others: list[str] | None = None
) -> list[Any]:
    other = pa.array(others or [f"family {len(text)}" for text in values], pa.string())
    inputs = Inputs(
        dict.fromkeys(transformer.raw_inputs, other), dict.fromkeys(transformer.made_inputs, other)
    )
    found: list[Any] = transformer.apply(pa.array(values, pa.string()), inputs).to_pylist()
    return found


def test_every_shipped_one_is_tried() -> None:
    assert {case.use for case in CASES} == set(shipped_names()) - ASKING


@cases
@settings(max_examples=settings().max_examples // 10)
@given(data=st.data())
def test_properties(case: Case, data: st.DataObject) -> None:
    """As many as came; the same for the same, whatever stands beside it; what fits the column; and
    what is promised of uniqueness.
    """
    values = data.draw(st.lists(case.values, max_size=12))
    made = case.made()
    found = applied(made, values)
    assert len(found) == len(values)
    for text in found:
        assert text is None or why_unfit(text, case.facts) is None
    if made.is_random:
        return
    again = pickle.loads(pickle.dumps(made))  # noqa: S301
    assert applied(again, values[::-1]) == found[::-1]
    assert [applied(made, [value])[0] for value in values] == found
    if made.uniqueness != "lost":
        assert len(set(found)) == len(set(values))
    if made.uniqueness == "kept":
        assert made.undo(pa.array(found, pa.string())).to_pylist() == values


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c.use in ("hash", "email", "uuid", "integer_key", "token", "encrypt")],
    ids=lambda case: case.name,
)
def test_domains_and_keys(case: Case) -> None:
    """Another domain, and another key, gives other values."""
    made = case.made()
    values = {
        "uuid": [str(uuid.UUID(int=number)) for number in range(50)],
        "integer": [str(number) for number in range(50)],
    }.get(case.facts.family, [f"+49 030 1234{number:04}" for number in range(50)])
    if case.facts.family == "bytea":
        values = [f"\\x{number:08x}" for number in range(50)]
    assert set(applied(made, values)).isdisjoint(applied(case.made("another"), values))
    kind = transformer_class(case.use)
    other = kind(made.options, Keys(b"another key, of as many characters as it needs"), case.facts)
    assert set(applied(made, values)).isdisjoint(applied(other, values))


def test_cmac_is_that_of_the_library() -> None:
    """The vectorised CMAC against cryptography's, at every length around a block."""
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.cmac import CMAC

    from penstock.transform.transformers.draws import Draws

    key = bytes(range(48))
    values = ["é" * (n // 2) + "x" * (n % 2) for n in range(129)]
    drawn = Draws(key).of(pa.array(values))
    for number, text in enumerate(values):
        cmac = CMAC(AES(key[:16]))
        cmac.update(text.encode())
        assert drawn[number].tobytes() == cmac.finalize()


def test_ff1_of_the_standard() -> None:
    """Samples 1 and 4 of NIST's FF1samples.pdf: the tweak is empty in the first."""
    import numpy as np

    from penstock.transform.transformers.ff1 import Ff1

    key = bytes.fromhex("2B7E151628AED2A6ABF7158809CF4F3C")
    cipher = Ff1(key, 10, 10)
    made = cipher.encrypt(np.array([1234], np.uint64), np.array([56789], np.uint64))
    assert [int(half[0]) for half in made] == [24334, 77484]
    assert [int(half[0]) for half in cipher.decrypt(*made)] == [1234, 56789]


@given(st.integers(7, 36), st.data())
def test_ff1_can_be_undone_at_every_length(digits: int, data: st.DataObject) -> None:
    import numpy as np

    from penstock.transform.transformers.ff1 import Ff1

    cipher = Ff1(bytes(16), 10, digits)
    left = data.draw(st.lists(st.integers(0, 10**cipher.left - 1), min_size=1, max_size=5))
    right = [data.draw(st.integers(0, 10**cipher.right - 1)) for _ in left]
    halves = np.array(left, np.uint64), np.array(right, np.uint64)
    back = cipher.decrypt(*cipher.encrypt(*halves))
    assert [half.tolist() for half in back] == [left, right]


def test_an_integer_refers_to_a_bigint() -> None:
    """What refers from one type to the other still does."""
    values = [str(n) for n in (0, 1, 2**31 - 1, -1, -(2**31))]
    assert applied(Case("integer_key", INT4).made(), values) == applied(
        Case("integer_key", INT8).made(), values
    )


def test_a_shift_keeps_order_and_intervals_of_a_family() -> None:
    from datetime import date

    made = Case("shift", DATE, options={"by": "family", "days": 100}).made()
    values = ["2020-01-01", "2020-01-05", "2021-01-01"]
    found = [date.fromisoformat(text) for text in applied(made, values, ["anna"] * 3)]
    assert [(b - a).days for a, b in pairwise(found)] == [4, 362]
    assert str(found[0]) != values[0]


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (Case("integer_key", ColumnFacts("c", "integer", "smallint", bits=15)), "too few values"),
        (Case("encrypt", SHORT), "takes 64 characters"),
        (Case("hash", replace(TEXT, length=10)), "do not fit"),
        (Case("literal", INT4, options={"value": "one"}), "is no integer"),
        (Case("choice", replace(TEXT, length=1), options={"choices": ["ab"]}), "longer than"),
        (Case("integer", INT4, options={"max": 2**40}), "do not fit"),
        (Case("shift", DATE, options={"by": "c"}), "another column"),
        (Case("first_name", options={"locale": "xx"}), "no locale"),
        (Case("template", options={"template": "{a"}), "no partner"),
        (Case("template", options={"template": "{a|shout}"}), "no function"),
        (Case("json", JSON, options={"transform": {"a": {"use": "shift", "by": "x"}}}), "other"),
        (Case("json", JSON, options={"delete": ["a..b"]}), "no path"),
        (Case("mask", options={"kind": "name", "keep_first": 1}), "not several"),
        (Case("mask", options={"pattern": "("}), "no regular expression"),
    ],
    ids=lambda found: found.name if isinstance(found, Case) else "",
)  # fmt: skip
def test_what_does_not_suit_is_said_before(case: Case, why: str) -> None:
    with pytest.raises(UnfitError, match=why):
        case.made()


@pytest.mark.parametrize(
    ("case", "value"),
    [
        (Case("token"), "12"),
        (Case("shift", DATE, options={"by": "family"}), "0044-03-15 BC"),
        (Case("noise", MONEY, options={"ratio": 0.1}), "secret"),
        (Case("json", JSON, options={"delete": ["a"]}), "{secret"),
        (Case("hstore", HSTORE), "secret"),
        (Case("array", ARRAY, options={"each": {"use": "hash"}}), "{secret"),
        (Case("uuid", UUID), "secret"),
        (Case("truncate_ip", INET), "secret"),
        (Case("bucket", TEXT, options={"width": 10}), "NaN"),
        (Case("bucket", TEXT, options={"width": 10}), "Infinity"),
    ],
    ids=lambda found: found.name if isinstance(found, Case) else "",
)
def test_a_value_that_is_refused_is_not_shown(case: Case, value: str) -> None:
    with pytest.raises(ValueRefusedError) as refused:
        applied(case.made(), [value])
    assert value not in refused.value.why


@pytest.mark.parametrize(
    ("options", "before", "after"),
    [
        ({"kind": "email"}, "anna@shop.de", "a******@shop.de"),
        ({"kind": "email"}, "anna", "******"),
        ({"kind": "email"}, "meet me @ Hauptstr. 5, call 0301234567", "******"),
        ({"kind": "email"}, "anna@shop.de 0301234567", "******"),
        ({"kind": "email"}, "anna@shop.de\n0301234567", "******"),
        ({"kind": "email"}, "anna@bob@shop.de", "******"),
        ({"kind": "card"}, "1234-5678-9012-3456", "****-****-****-3456"),
        ({"kind": "card"}, "1234", "******"),
        ({"kind": "url"}, "https://me@shop.de/anna?x=1", "https://shop.de/******"),
        ({"kind": "url"}, "http://Anna, 030 1234567", "http://Anna,/******"),
        ({"kind": "phone"}, "+49 30 123456", "******456"),
        ({"kind": "name"}, "Anna", "A******"),
        ({"keep_first": 2, "keep_last": 2}, "abcdefgh", "ab******gh"),
        ({"keep_first": 2, "keep_last": 2}, "abc", "******"),
        ({"pattern": "[0-9]"}, "a1", "a******"),
    ],
)
def test_masks(options: dict[str, Any], before: str, after: str) -> None:
    assert applied(Case("mask", options=options).made(), [before]) == [after]


def test_numbers_in_json_stay_what_they_were() -> None:
    made = Case(
        "json",
        JSON,
        options={"set": {"name": "x"}, "transform": {"i": {"use": "integer", "max": 5}}},
    )
    before = '{"name": "anna", "big": 123456789012345678901234567890, "f": 1.10, "i": 7}'
    (after,) = applied(made.made(), [before])
    assert '"big":123456789012345678901234567890' in after
    assert '"f":1.10' in after
    assert '"name":"x"' in after
    assert "anna" not in after


def leaf(rule: Any, before: str, path: str = "a") -> str:
    """One document whose leaf ``a`` goes through a rule."""
    made = Case("json", JSON, options={"transform": {path: rule}}).made()
    (after,) = applied(made, [f'{{"a":{before}}}'])
    return str(after).removeprefix('{"a":')[:-1]


def test_leaves_are_of_the_type_that_they_look_like() -> None:
    """So a key inside a document is what it is in its column."""
    (key,) = applied(Case("integer_key", INT4).made(), ["42"])
    (wide,) = applied(Case("integer_key", INT8).made(), [str(2**63 - 1)])
    assert leaf({"use": "integer_key"}, "42") == key
    assert leaf({"use": "integer_key"}, '"42"') == f'"{key}"'
    assert leaf({"use": "integer_key"}, str(2**63 - 1)) == wide
    assert leaf({"use": "integer_key"}, '[42,"42",null]', "a[*]") == f'[{key},"{key}",null]'
    (other,) = applied(Case("uuid", UUID).made(), ["00000000-0000-0000-0000-000000000001"])
    uuid = '"00000000-0000-0000-0000-000000000001"'
    assert leaf({"use": "uuid", "type": "uuid"}, uuid) == f'"{other}"'
    assert leaf({"use": "uuid"}, uuid) != f'"{other}"'
    assert leaf({"use": "round", "to": 10}, "52") == "50"
    assert leaf({"use": "round", "to": 0.5}, "1.26") == "1.5"
    assert leaf({"use": "round", "to": 10}, '"52"') == '"50"'
    assert leaf({"use": "boolean", "share": 1.0}, "false") == "true"
    year = {"use": "truncate_time", "to": "year"}
    assert leaf(year, '"1980-02-03"') == '"1980-01-01"'
    assert leaf(year, '"1980-02-03 04:05:06"') == '"1980-01-01 00:00:00"'
    assert leaf(year, '"1980-02-03T04:05:06.789Z"') == '"1980-01-01T00:00:00Z"'
    assert leaf(year, '"1980-01-01T00:30:00+02:00"') == '"1979-01-01T00:00:00Z"'
    assert leaf({"use": "integer", "min": 5, "max": 5}, "1.50") == "5"
    assert leaf({"use": "literal", "value": "5"}, '{"b":1}') == '"5"'
    noisy = float(leaf({"use": "noise", "ratio": 0.1}, "1000.5"))
    assert 900 < noisy < 1101
    assert noisy != 1000.5
    hstore = Case("hstore", HSTORE, options={"transform": {"a": {"use": "integer_key"}}}).made()
    assert applied(hstore, ['"a"=>"42", "b"=>NULL']) == [f'"a"=>"{key}", "b"=>NULL']


@pytest.mark.parametrize("value", ['"secret"', "1.5", '{"b": 1}', "true", '"1980-02-03"'])
def test_a_leaf_of_another_type_does_not_leave(value: str) -> None:
    with pytest.raises(ValueRefusedError) as refused:
        leaf({"use": "integer_key"}, value)
    assert value not in refused.value.why
    with pytest.raises(ValueRefusedError):
        leaf({"use": "uuid", "type": "uuid"}, value)
    with pytest.raises(UnfitError, match="type is one of"):
        leaf({"use": "hash", "type": "money"}, value)


def test_json_paths() -> None:
    options = {
        "transform": {"items[*].to": {"use": "literal", "value": "X"}, '"a.b"': {"use": "hash"}},
        "delete": ["address.*.phone"],
        "others": "delete",
    }
    before = (
        '{"items":[{"to":"anna"},{"to":"bob"},{}],"a.b":"s",'
        '"address":{"home":{"phone":1,"city":"B"}},"z":1}'
    )
    (after,) = applied(Case("json", JSON, options=options).made(), [before])
    assert after.startswith('{"items":[{"to":"X"},{"to":"X"},{}],"a.b":"')
    assert after.endswith('"address":{"home":{"city":"B"}}}')
    assert '"z"' not in after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "call +49 30 1234567 or anna@shop.de, card 4111 1111 1111 1111, 10.0.0.1",
            "call # or #, card #, #",
        ),
        ("from fe80::1 and 2001:db8::8a2e:370:7334.", "from # and #."),
        ("2001:0db8:85a3:0000:0000:8a2e:0370:7334, fe80::1%eth0, fe80::", "#, #, #"),
        ("[::1]:8080 ::ffff:10.2.3.4 1:2:3:4:5:6:10.2.3.4", "[#]:8080 # #"),
        ("www.shop.de/anna, WWW.Shop.de; www2.shop.de", "# # #"),
        ("see shop.de/anna?x=1 and münchen.de:8080/anna", "see # and #"),
        (
            "at 12:30:45 std::array and/or e.g./i.e. 3.5/4",
            "at 12:30:45 std::array and/or e.g./i.e. 3.5/4",
        ),
    ],
)
def test_redact(before: str, after: str) -> None:
    assert applied(Case("redact").made(), [before]) == [after.replace("#", "[redacted]")]


def test_a_host_of_ones_own_is_no_domain() -> None:
    """What stands behind the @ is `host`: `domain` is the rule's, and would leave it as it was."""
    (made,) = applied(Case("email", options={"host": "acme.test"}).made(), ["anna@shop.de"])
    assert made.endswith("@acme.test")
    with pytest.raises(UnfitError, match="behind the @: that is host"):
        Case("email").made("acme.test")
    with pytest.raises(UnfitError, match="that is host"):
        leaf({"use": "email", "domain": "acme.test"}, "1")


def test_another_version_within_a_rule_is_another_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what an earlier version made of leaves is copied anew."""
    case = Case("array", ARRAY, options={"each": {"use": "redact"}})
    before = case.made().vocabulary
    monkeypatch.setattr(transformer_class("redact"), "version", 99)
    assert case.made().vocabulary != before

"""Every shipped transformer, with columns that it suits and values that Hypothesis finds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from penstock.transform.transformers.column_facts import ColumnFacts
from penstock.transform.transformers.contract import Transformer
from penstock.transform.transformers.keys import Keys
from penstock.transform.transformers.registry import transformer_class

ASKING = {"anonymizer"}
"""Those that need a database: tests/integration/test_anonymizer.py has them."""
KEYS = Keys(b"a key of the tests, of which nobody makes use")
TEXT = ColumnFacts("c", "text", "text")
SHORT = replace(TEXT, length=64, type_name="character varying")
INT4 = ColumnFacts("c", "integer", "integer", bits=31)
INT8 = ColumnFacts("c", "integer", "bigint", bits=63)
MONEY = ColumnFacts("c", "numeric", "numeric", whole=10, scale=2)
FLOAT = ColumnFacts("c", "float", "double precision")
DATE = ColumnFacts("c", "date", "date")
STAMP = ColumnFacts("c", "timestamp", "timestamp")
ZONED = replace(STAMP, zoned=True)
UUID = ColumnFacts("c", "uuid", "uuid")
JSON = ColumnFacts("c", "json", "jsonb")
BYTEA = ColumnFacts("c", "bytea", "bytea")
INET = ColumnFacts("c", "ip", "inet")
POINT = ColumnFacts("c", "point", "point")
HSTORE = ColumnFacts("c", "hstore", "hstore")
ARRAY = ColumnFacts("c", "array", "text[]", element=TEXT)
BOOLEAN = ColumnFacts("c", "boolean", "boolean")

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
emails = st.from_regex(r"\A[a-z0-9.]{1,12}@[a-z]{1,8}\.(de|com)\Z")
small = st.integers(-(2**31), 2**31 - 1).map(str)
large = st.integers(-(2**63), 2**63 - 1).map(str)
decimals = st.decimals(-(10**9), 10**9, places=2).map(str)
dates = st.dates().map(str) | st.sampled_from(["infinity", "-infinity"])
stamps = st.datetimes().map(lambda d: str(d).rstrip("0") if d.microsecond else str(d))
zoned = stamps.map(lambda text: f"{text}+00")
uuids = st.uuids().map(str)
phones = st.from_regex(r"\A\+[0-9]{2} [0-9]{4,10}/[0-9]{2,6}\Z")
documents = st.dictionaries(texts, texts | st.integers() | st.none(), max_size=4).map(
    lambda d: __import__("json").dumps({**d, "email": "someone@example.org", "n": 1.50})
)
points = st.tuples(st.integers(-180, 180), st.integers(-80, 80)).map("({0[0]},{0[1]})".format)
addresses = st.ip_addresses().map(str)
pairs = st.just('"a"=>"1", "b\\"c"=>NULL')


@dataclass(frozen=True)
class Case:
    """A transformer with options, a column that it suits, and values of it."""

    use: str
    facts: ColumnFacts = TEXT
    values: st.SearchStrategy[str] = field(default=texts)
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def column_type(self) -> str:
        """As CREATE TABLE takes it."""
        facts = self.facts
        if facts.length is not None:
            return f"varchar({facts.length})"
        if facts.whole is not None and facts.scale is not None:
            return f"numeric({facts.whole + facts.scale}, {facts.scale})"
        return "timestamptz" if facts.zoned else facts.type_name

    @property
    def name(self) -> str:
        return f"{self.use} {self.facts.type_name} {self.options or ''}".strip()

    def made(self, domain: str = "") -> Transformer:
        kind = transformer_class(self.use)
        options = kind.options_model.model_validate(self.options)
        made = kind(options, Keys(KEYS.master, domain), self.facts)
        made.check()
        return made


CASES = [
    Case("literal", options={"value": "x"}),
    Case("null"),
    Case("choice", options={"choices": ["a", "b"]}),
    Case("choice", INT4, small, {"choices": [1, 2], "weights": [1, 3]}),
    Case("boolean", BOOLEAN, st.sampled_from(["t", "f"])),
    Case("string", SHORT),
    Case("string", options={"keep_length": True}),
    Case("string", options={"random": True}),
    *(
        Case("mask", SHORT, texts | emails | phones, {"kind": kind})
        for kind in ("all", "password", "name", "address", "email", "phone", "card", "url", "id")
    ),
    Case("mask", SHORT, options={"keep_first": 2, "keep_last": 1}),
    Case("mask", SHORT, options={"pattern": "[a-z]+", "character": "#"}),
    Case("redact", values=texts | emails),
    *(
        Case(use, SHORT)
        for use in ("first_name", "last_name", "person_name", "city", "state", "country",
                    "company", "address", "postal_code", "phone_number")
    ),
    Case("first_name", options={"locale": "de", "gender": "female"}),
    Case("phone_number", options={"format": "+49 ### ####"}),
    Case("email", values=emails | texts),
    Case("email", replace(TEXT, length=60), emails, {"keep_domain": True}),
    Case("integer", INT4, small, {"min": -5, "max": 5}),
    Case("integer", INT8, large, {"min": -(2**63), "max": 2**63 - 1}),
    Case("float", FLOAT, st.floats(allow_nan=False).map(repr), {"max": 9.5, "precision": 2}),
    Case("noise", MONEY, decimals, {"ratio": 0.1}),
    Case("noise", INT8, large, {"amount": 10}),
    Case("round", INT4, small, {"to": 10}),
    Case("round", INT8, large, {"to": 1000, "way": "up"}),
    Case("round", MONEY, decimals, {"to": 0.5, "way": "down"}),
    Case("bucket", TEXT, small, {"width": 10}),
    Case("bucket", INT4, small, {"bounds": [0, 18, 65]}),
    Case("date", DATE, dates),
    Case("date", STAMP, stamps),
    Case("timestamp", ZONED, zoned, {"truncate": "hour"}),
    Case("unix_timestamp", INT8, large, {"unit": "milliseconds"}),
    Case("shift", DATE, dates, {"by": "family"}),
    Case("shift", STAMP, stamps, {"by": "family"}),
    Case("shift", ZONED, zoned, {"by": "family", "days": 3}),
    Case("time_noise", DATE, dates, {"days": 3}),
    Case("time_noise", ZONED, zoned, {"seconds": 90}),
    Case("truncate_time", DATE, dates, {"to": "month"}),
    Case("truncate_time", ZONED, zoned, {"to": "hour"}),
    Case("hash"),
    Case("hash", BYTEA, st.binary().map(lambda b: "\\x" + b.hex())),
    Case("uuid", UUID, uuids),
    Case("uuid", UUID, uuids, {"version_4": True}),
    Case("uuid", TEXT, texts),
    Case("integer_key", INT4, small),
    Case("integer_key", INT8, large),
    Case("token", SHORT, phones),
    Case("token", SHORT, texts, {"short": "hash"}),
    Case("token", SHORT, phones, {"alphabet": "alphanumeric"}),
    Case("encrypt"),
    Case("encrypt", BYTEA, st.binary().map(lambda b: "\\x" + b.hex())),
    Case("truncate_ip", INET, addresses),
    Case("truncate_ip", TEXT, addresses, {"keep_v4": 16}),
    Case("geo_noise", FLOAT, decimals),
    Case("geo_noise", POINT, points),
    Case("json", JSON, documents, {"transform": {"email": {"use": "email"}}}),
    Case("json", JSON, documents, {"set": {"email": None}, "delete": ["n"]}),
    Case("hstore", HSTORE, pairs, {"transform": {"a": {"use": "hash"}}}),
    Case("array", ARRAY, st.just('{a,"b \\"c\\"",NULL}'), {"each": {"use": "hash"}}),
    Case("template", options={"template": "{other|upper}-{value|hash:8}", "missing": ""}),
    Case("cut", options={"length": 3}),
]  # fmt: skip

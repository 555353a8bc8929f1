"""The suite for transformers of one's own, on shipped ones."""

from __future__ import annotations

from random import Random
from typing import ClassVar
from uuid import UUID

from penstock.testing.transformer_suite import TransformerTests
from penstock.transform.transformers.column_facts import ColumnFacts
from penstock.transform.transformers.people import Email
from penstock.transform.transformers.pseudonyms import Encrypt, IntegerKey, Token, Uuid
from penstock.transform.transformers.times import Shift


class TestEmail(TransformerTests):
    transformer = Email
    options: ClassVar = {"keep_domain": True}

    def values(self, random: Random, count: int) -> list[str]:
        return [f"{random.randrange(10**9)}@shop.de" for _ in range(count)]


class TestIntegerKey(TransformerTests):
    transformer = IntegerKey
    facts = ColumnFacts("id", "integer", "bigint", bits=63)

    def values(self, random: Random, count: int) -> list[str]:
        return [str(random.randrange(-(2**40), 2**40)) for _ in range(count)]


class TestShift(TransformerTests):
    transformer = Shift
    options: ClassVar = {"by": "patient"}
    facts = ColumnFacts("born", "date", "date")

    def values(self, random: Random, count: int) -> list[str]:
        return [f"19{random.randrange(10, 99)}-07-{random.randrange(10, 28)}" for _ in range(count)]


class TestToken(TransformerTests):
    transformer = Token

    def values(self, random: Random, count: int) -> list[str]:
        return [f"AB-{random.randrange(10**9):09}" for _ in range(count)]


class TestEncrypt(TransformerTests):
    transformer = Encrypt

    def values(self, random: Random, count: int) -> list[str]:
        return [f"Anna {random.randrange(10**6)}" for _ in range(count)]


class TestUuid(TransformerTests):
    transformer = Uuid
    facts = ColumnFacts("id", "uuid", "uuid")

    def values(self, random: Random, count: int) -> list[str]:
        return [str(UUID(int=random.getrandbits(128))) for _ in range(count)]

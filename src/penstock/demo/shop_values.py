"""The values of the demo's shop, made up from its seed."""

from __future__ import annotations

import json
import random
import uuid
from typing import Any

# Values that go wrong wherever text is built by hand: quotes, backslashes, line ends, braces,
# commas, the word NULL, other scripts, nothing at all.
_WORDS = (
    "plain", "it's", 'say "hi"', "back\\slash", "two\nlines", "tab\there", "{a,b}", "NULL",
    "", "naïve", "東京", "Ωmega", "🚰", "\\N", "a,b;c", "  padded  ",
)  # fmt: skip


def money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


class ShopValues:
    """One value after the other; the same source of chance makes the same ones."""

    def __init__(self, source: random.Random) -> None:
        self._random = source

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def maybe(self, value: Any) -> Any:
        return None if self.chance(0.2) else value

    def word(self) -> str:
        return self._random.choice(_WORDS)

    def words(self) -> list[str | None]:
        return [self.maybe(self.word()) for _ in range(self._random.randrange(4))]

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def price(self) -> str:
        return f"{self._random.randrange(10**6)}.{self._random.randrange(10**6):0>6}"

    def document(self) -> str:
        return json.dumps(
            {
                "word": self.word(),
                "list": [self._random.randrange(100), None, 1.5, {}],
                "deep": {"empty": [], "exact": self._random.randrange(10**15) * 1000 + 7},
            }
        )

    def long_text(self) -> str:
        """Too long for its page, so that Postgres stores it out of line."""
        return f"{self.word()} {self._random.randbytes(1500).hex()}"

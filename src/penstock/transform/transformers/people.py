"""Names, addresses, companies, emails and phone numbers of people that nobody is."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from penstock.transform.transformers.contract import (
    DrawOptions,
    Inputs,
    Transformer,
    UnfitError,
    Uniqueness,
)
from penstock.transform.transformers.drawing import (
    below,
    hexadecimal,
    joined,
    spread,
    texts_of,
    words,
)
from penstock.transform.transformers.draws import Drawn
from penstock.transform.transformers.vocabulary import digest, formats, vocabulary

Gender = Literal["female", "male"]


class WordOptions(DrawOptions):
    """``locale`` says of which country and language."""

    locale: str = "en"


class NameOptions(WordOptions):
    """``gender``: names of one alone."""

    gender: Gender | None = None


class _Words(Transformer):
    """Words of a vocabulary."""

    options_model = WordOptions
    takes_nulls = True
    kind: str = ""

    def check(self) -> None:
        longest = pc.max(pc.utf8_length(self._vocabulary)).as_py()
        if self.facts.length is not None and self.facts.length < min(longest, 8):
            raise UnfitError(f"the column has {self.facts.length} characters, too few for words")

    @property
    def _vocabulary(self) -> pa.Array:
        gender = getattr(self.options, "gender", None)
        return vocabulary(self.kind, self.options.locale, gender)

    @property
    def vocabulary(self) -> str:
        return digest(self._vocabulary)

    @property
    def limit(self) -> int | None:
        length = self.facts.length
        longest = pc.max(pc.utf8_length(self._vocabulary)).as_py()
        return None if length is None or longest <= length else length

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        return self.cut(words(self.drawn(values), self._vocabulary))


class FirstName(_Words):
    """A first name."""

    options_model = NameOptions
    kind = "first_name"


class LastName(_Words):
    """A surname."""

    options_model = NameOptions
    kind = "last_name"


class City(_Words):
    """A city."""

    kind = "city"


class State(_Words):
    """A state or province."""

    kind = "state"


class Country(_Words):
    """A country."""

    kind = "country"


class Company(_Words):
    """A company."""

    kind = "company"


class FullName(Transformer):
    """First name and surname."""

    options_model = NameOptions
    takes_nulls = True

    @property
    def _both(self) -> tuple[pa.Array, pa.Array]:
        locale, gender = self.options.locale, self.options.gender
        return vocabulary("first_name", locale, gender), vocabulary("last_name", locale, gender)

    @property
    def vocabulary(self) -> str:
        return digest(*self._both)

    def check(self) -> None:
        first, _last = self._both
        if self.facts.length is not None and self.facts.length < min(len(first), 12):
            raise UnfitError(f"the column has {self.facts.length} characters, too few for names")

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        drawn = self.drawn(values)
        first, last = self._both
        return self.cut(joined(words(drawn, first, 0), " ", words(drawn, last, 1)))


class Address(Transformer):
    """House number and street; ``street`` alone without a number."""

    options_model = WordOptions
    takes_nulls = True

    @property
    def _parts(self) -> tuple[pa.Array, ...]:
        locale = self.options.locale
        names = vocabulary("street", locale)
        try:
            return names, vocabulary("street_kind", locale)
        except UnfitError:
            return (names,)

    @property
    def vocabulary(self) -> str:
        return digest(*self._parts)

    def check(self) -> None:
        if self._parts and self.facts.length is not None and self.facts.length < 12:
            raise UnfitError(f"the column has {self.facts.length} characters, too few for streets")

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        drawn = self.drawn(values)
        number = pa.array(1 + below(drawn, 999, 2)).cast(pa.string())
        parts: list[Any] = [number]
        for place, known in enumerate(self._parts):
            parts += [" ", words(drawn, known, place)]
        return self.cut(joined(*parts))


class PatternOptions(WordOptions):
    """``format``: ``#`` stands for a digit, ``@`` for a letter; the locale's own without it."""

    format: str | None = Field(default=None, min_length=1, max_length=64)


class _Formatted(Transformer):
    """Digits and letters in a format."""

    options_model = PatternOptions
    takes_nulls = True
    kind: str = ""

    @cached_property
    def _formats(self) -> tuple[str, ...]:
        given = self.options.format
        known = (given,) if given is not None else formats(self.kind, self.options.locale)
        # One width alone, so that all rows are made at once; which one, the order tells.
        return tuple(form for form in sorted(known, key=len) if form.isascii())[-1:]

    @property
    def vocabulary(self) -> str:
        return "".join(self._formats)

    def check(self) -> None:
        if not self._formats:
            raise UnfitError(f"locale {self.options.locale} has no format; write format")
        if self.facts.length is not None and len(self._formats[0]) > self.facts.length:
            raise UnfitError(
                f"{self._formats[0]!r} has more than the column's {self.facts.length} characters; "
                "write format"
            )

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        return written(self.drawn(values), self._formats[0])


def written(drawn: Drawn, form: str) -> pa.Array:
    """A format with digits for ``#`` and letters for ``@``."""
    columns = np.tile(np.frombuffer(form.encode(), np.uint8), (len(drawn), 1))
    bits = spread(drawn, 0)
    for number, place in enumerate(p for p, c in enumerate(form) if c in "#@"):
        if number % 8 == 0:
            bits = spread(drawn, number // 8)
        part = (bits >> np.uint64(8 * (number % 8))) & np.uint64(255)
        first, count = (ord("0"), 10) if form[place] == "#" else (ord("A"), 26)
        columns[:, place] = first + part * np.uint64(count) // np.uint64(256)
    return texts_of(columns, np.full(len(drawn), len(form), np.int64))


class PostalCode(_Formatted):
    """A postal code as its country writes it."""

    kind = "postal_code"


class PhoneNumber(_Formatted):
    """A phone number as its country writes it."""

    kind = "phone"


class EmailOptions(WordOptions):
    """``keep_domain``: what stands behind the @ stays, else it is ``host``. ``name``: names of a
    vocabulary with digits behind, or letters that mean nothing.
    """

    keep_domain: bool = False
    # Not ``domain``: that is a word of every rule, for columns that share their output.
    host: str = Field(default="example.com", min_length=3, pattern=r"^[^\s@]+$")
    name: Literal["person", "letters"] = "person"


class Email(Transformer):
    """An email address. 64 bits of what is drawn are in it, so two hardly ever meet."""

    options_model = EmailOptions
    takes_nulls = True
    is_folding = True

    @property
    def uniqueness(self) -> Uniqueness:
        length = self.facts.length
        room = max(60, 17 + len(self.options.host))
        return "not promised" if length is None or length >= room else "lost"

    @property
    def limit(self) -> int | None:
        length = self.facts.length
        if length is None or self.options.keep_domain:
            return length
        name = 0
        if self.options.name == "person":
            names = _plain_names(self.options.locale)
            name = pc.max(pc.utf8_length(names)).as_py() + 1
        return None if name + 17 + len(self.options.host) <= length else length

    @property
    def vocabulary(self) -> str:
        if self.options.name == "letters":
            return ""
        return digest(vocabulary("first_name", self.options.locale, None))

    def check(self) -> None:
        if "." in self._keys.domain or "@" in self._keys.domain:
            raise UnfitError(
                f"domain: {self._keys.domain} says which columns share their output, not what "
                "stands behind the @: that is host. Write host, or a domain without a dot"
            )
        size = 13 + 1 + (0 if self.options.keep_domain else len(self.options.host))
        if self.facts.length is not None and self.facts.length < size + 8:
            raise UnfitError(f"the column has {self.facts.length} characters, too few for emails")

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        if self.folds_case:
            values = pc.utf8_lower(values)
        drawn = self.drawn(values)
        bits = hexadecimal(np.ascontiguousarray(drawn[:, 1:]).view(np.uint8).reshape(-1, 8))
        if self.options.name == "person":
            names = words(drawn, _plain_names(self.options.locale))
            room = self.facts.length
            if room is not None and not self.options.keep_domain:
                left = room - len(bits[0].as_py() if len(bits) else "") - 2
                names = pc.utf8_slice_codeunits(names, 0, max(left - len(self.options.host), 1))
            local = joined(names, ".", bits)
        else:
            local = bits
        if not self.options.keep_domain:
            return self.cut(joined(local, "@", self.options.host))
        # What has no domain gets ours: it may be anything.
        has_one = pc.match_substring_regex(values, r"^[^@]+@[A-Za-z0-9.-]+$")
        domain = pc.if_else(
            has_one, pc.replace_substring_regex(values, "^.*@", "@"), "@" + self.options.host
        )
        made = joined(local, domain)
        if self.facts.length is None:
            return made
        # 64 bits where they have room.
        kept = 16 if self.facts.length > 16 + len(self.options.host) else 12
        short = joined(pc.utf8_slice_codeunits(bits, 0, kept), "@", self.options.host)
        fits = pc.less_equal(pc.utf8_length(made), self.facts.length)
        return self.cut(pc.if_else(fits, made, short))


def _plain_names(locale: str) -> pa.Array:
    """First names as addresses take them."""
    names = pc.utf8_lower(vocabulary("first_name", locale, None))
    plain = names.filter(pc.match_substring_regex(names, "^[a-z]+$"))
    return plain if len(plain) else pa.array(["user"])

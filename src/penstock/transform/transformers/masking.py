"""Masks: a part of the text stays, the rest is stars. Nothing is drawn, so no key is needed."""

from __future__ import annotations

import re
from typing import Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from penstock.transform.transformers.contract import (
    Inputs,
    NoOptions,
    Transformer,
    UnfitError,
)
from penstock.transform.transformers.drawing import Ints, joined
from penstock.transform.transformers.draws import text_parts

Marks = npt.NDArray[np.bool_]
Kind = Literal["all", "password", "name", "address", "email", "phone", "card", "url", "id"]


class MaskOptions(NoOptions):
    """``kind`` is what the text is, and says what stays of it; or ``keep_first`` and ``keep_last``
    do, or ``pattern``: what a regular expression (RE2) matches is masked.
    """

    kind: Kind | None = None
    keep_first: int | None = Field(default=None, ge=0)
    keep_last: int | None = Field(default=None, ge=0)
    pattern: str | None = None
    character: str = Field(default="*", pattern=r"^[!-~]$")


# What stays of each kind; "@" is told apart below. The length of what goes is not told either.
_ENDS = {"all": (0, 0), "address": (3, 0), "phone": (0, 3), "id": (0, 3), "name": (1, 0)}
_STARS = 6


class Mask(Transformer):
    """A text of which a part is left to be seen. What is shorter than twice the visible part is
    masked whole.
    """

    options_model = MaskOptions
    is_keyed = False
    version = 2

    def check(self) -> None:
        options = self.options
        ends = options.keep_first is not None or options.keep_last is not None
        if (options.kind is not None) + ends + (options.pattern is not None) > 1:
            raise UnfitError("write kind, or keep_first and keep_last, or pattern, not several")
        if options.pattern is not None:
            try:
                re.compile(options.pattern)
                pc.match_substring_regex(pa.array([""]), options.pattern)
            except (re.error, pa.ArrowInvalid):
                raise UnfitError("pattern is no regular expression that RE2 takes") from None
        if self.facts.length is not None and self.facts.length < _STARS:
            raise UnfitError(f"the column has no room for {_STARS} characters")

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        options = self.options
        stars = cast(str, options.character) * _STARS
        if options.pattern is not None:
            # In a replacement a backslash means a group.
            plain = stars.replace("\\", "\\\\")
            return self.cut(pc.replace_substring_regex(values, options.pattern, plain))
        match options.kind:
            case "password":
                return pa.repeat(pa.scalar(stars), len(values))
            case "email":
                return self.cut(self._email(values, stars))
            case "url":
                return self.cut(_url(values, stars))
            case "card":
                return self.cut(self._card(values))
        ends = (options.keep_first or 0, options.keep_last or 0)
        if options.kind is not None:
            ends = _ENDS[options.kind]
        return self.cut(_ends(values, *ends, stars))

    def _email(self, values: pa.Array, stars: str) -> pa.Array:
        """First letter and domain stay; what is no address is masked whole: it may be anything."""
        has_one = pc.match_substring_regex(values, r"\A[^@\s]+@[A-Za-z0-9.-]+\z")
        # Something behind each text, so that every one has two parts.
        parts = pc.split_pattern(joined(values, "@"), "@", max_splits=1)
        first = _ends(pc.utf8_slice_codeunits(values, 0, 2), 1, 0, stars)
        domain = pc.utf8_slice_codeunits(pc.list_element(parts, 1), 0, -1)
        return pc.if_else(has_one, joined(first, "@", domain), stars)

    def _card(self, values: pa.Array) -> pa.Array:
        """Of twelve digits or more the last four stay, and so do blanks and dashes."""
        data, starts, lengths = text_parts(values)
        end = int(starts[-1] + lengths[-1]) if len(starts) else 0
        data = data[:end]
        is_digit = (data >= ord("0")) & (data <= ord("9"))
        other = ~is_digit & (data != ord(" ")) & (data != ord("-"))
        digits, others = _counted(is_digit, starts, lengths), _counted(other, starts, lengths)
        # How many digits stand up to each byte, and how many its text has before the last four.
        row = np.repeat(np.arange(len(values)), lengths)
        before = np.concatenate([[0], np.cumsum(is_digit)])
        hidden = is_digit & (before[1:] <= before[starts][row] + digits[row] - 4)
        data[hidden] = ord(self.options.character)
        masked = pa.LargeStringArray.from_buffers(
            len(values), pa.py_buffer(np.append(starts, end)), pa.py_buffer(data)
        ).cast(pa.string())
        shown = (digits >= 12) & (others == 0)
        stars = self.options.character * _STARS
        return masked if shown.all() else pc.if_else(pa.array(shown), masked, stars)


def _counted(marks: Marks, starts: Ints, lengths: Ints) -> Ints:
    """How many bytes of each text are marked."""
    upto = np.concatenate([[0], np.cumsum(marks)])
    counted: Ints = upto[starts + lengths] - upto[starts]
    return counted


def _ends(values: pa.Array, first: int, last: int, stars: str) -> pa.Array:
    if not first and not last:
        return pa.repeat(pa.scalar(stars), len(values))
    parts: list[pa.Array | str] = [stars]
    if first:
        parts.insert(0, pc.utf8_slice_codeunits(values, 0, first))
    if last:
        parts.append(pc.utf8_slice_codeunits(values, -last))
    shown = np.asarray(pc.utf8_length(values)) >= 2 * (first + last)
    masked = joined(*parts)
    return masked if shown.all() else pc.if_else(pa.array(shown), masked, stars)


def _url(values: pa.Array, stars: str) -> pa.Array:
    """Scheme and host stay; what is no URL is masked whole."""
    form = r"(?s)^([A-Za-z][A-Za-z0-9+.-]*://)(?:[^/?#@]*@)?([^/?#@\s]+).*$"
    masked = pc.replace_substring_regex(values, form, r"\1\2/" + stars.replace("\\", "\\\\"))
    return pc.if_else(pc.match_substring_regex(values, form), masked, stars)


class RedactOptions(NoOptions):
    """What is taken out of free text: the patterns of these names, and others of one's own."""

    kinds: tuple[Literal["email", "phone", "card", "iban", "ip", "url", "number"], ...] = (
        "email",
        "phone",
        "card",
        "iban",
        "ip",
        "url",
    )
    patterns: tuple[str, ...] = ()
    replacement: str = "[redacted]"


# Eight groups, or fewer with `::` in the place of the rest; the last two may be written as IPv4.
_HEX = "[0-9A-Fa-f]{1,4}"
_V4_TAIL = r"(?:(?:\.[0-9]{1,3}){3})?"
_IP = "|".join(
    (
        r"\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b",
        rf"\b(?:{_HEX}:){{1,7}}(?::{_HEX})+{_V4_TAIL}(?:%\w+)?\b",
        rf"\b(?:{_HEX}:){{3,7}}[0-9A-Fa-f:]*\b{_V4_TAIL}",
        rf"\b(?:{_HEX}:){{1,7}}:",
        rf"::(?:{_HEX}:)*{_HEX}\b{_V4_TAIL}",
    )
)
# With a scheme, with www, or a host with a path behind it.
_URL = (
    r"[A-Za-z][A-Za-z0-9+.-]*://[^\s<>\"']+"
    r"|(?i:\bwww[0-9]?\.)[^\s<>\"']+"
    r"|\b(?:[\pL0-9-]+\.)+\pL{2,}(?::[0-9]+)?[/?][^\s<>\"']+"
)
_PATTERNS = {
    "url": _URL,
    "email": r"[^\s@<>\"',;:()\[\]]+@[^\s@<>\"',;:()\[\]]+",
    "iban": r"\b[A-Z]{2}[0-9]{2}(?:[ ]?[A-Z0-9]){11,30}\b",
    "card": r"\b(?:[0-9][ -]?){12,18}[0-9]\b",
    "phone": r"\+?\(?[0-9](?:[ ()./-]?[0-9]){6,14}",
    "ip": _IP,
    "number": r"[0-9]+",
}


class Redact(Transformer):
    """Free text in which everything that looks like something of a person is replaced."""

    options_model = RedactOptions
    is_keyed = False
    version = 2

    def check(self) -> None:
        for pattern in self.options.patterns:
            try:
                pc.match_substring_regex(pa.array([""]), pattern)
            except pa.ArrowInvalid:
                raise UnfitError("a pattern is no regular expression that RE2 takes") from None

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        plain = self.options.replacement.replace("\\", "\\\\")
        # In the table's order: an address holds what would pass for a number.
        named = [form for kind, form in _PATTERNS.items() if kind in self.options.kinds]
        for pattern in (*self.options.patterns, *named):
            values = pc.replace_substring_regex(values, pattern, plain)
        return self.cut(values)

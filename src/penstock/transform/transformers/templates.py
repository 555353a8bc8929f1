"""Texts made of other columns of the row: ``{first_name|lower}.{last_name|lower}@example.com``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from penstock.transform.transformers.contract import (
    Inputs,
    NoOptions,
    Transformer,
    UnfitError,
)
from penstock.transform.transformers.drawing import hexadecimal, joined
from penstock.transform.transformers.draws import Draws


class TemplateOptions(NoOptions):
    """``{column}`` is another column as it leaves, ``{value}`` this one as it came; functions
    follow behind ``|``. ``missing`` stands for nulls.
    """

    template: str = Field(min_length=1)
    missing: str | None = None


@dataclass(frozen=True)
class _Piece:
    column: str
    functions: tuple[tuple[str, str], ...]


_HOLE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_Function = Callable[[pa.Array, str], pa.Array]


def _number(text: str) -> int:
    if not re.fullmatch(r"\d{1,4}", text):
        raise UnfitError(f"{text!r} is no number of characters")
    return int(text)


_FUNCTIONS: dict[str, _Function] = {
    "upper": lambda a, _: pc.utf8_upper(a),
    "lower": lambda a, _: pc.utf8_lower(a),
    "title": lambda a, _: pc.utf8_title(a),
    "trim": lambda a, _: pc.utf8_trim_whitespace(a),
    "first": lambda a, n: pc.utf8_slice_codeunits(a, 0, _number(n)),
    "last": lambda a, n: pc.utf8_slice_codeunits(a, -max(_number(n), 1)),
    "digits": lambda a, _: pc.replace_substring_regex(a, "[^0-9]", ""),
    "slug": lambda a, _: pc.replace_substring_regex(pc.ascii_lower(a), "[^a-z0-9]+", "-"),
    "default": pc.fill_null,
    "reverse": lambda a, _: pc.utf8_reverse(a),
}
_NEEDS_NUMBER = ("first", "last")


class Template(Transformer):
    """A text with values of the row in it."""

    options_model = TemplateOptions
    is_keyed = False
    takes_nulls = True

    @cached_property
    def _pieces(self) -> tuple[str | _Piece, ...]:
        pieces: list[str | _Piece] = []
        text, at = self.options.template, 0
        for hole in _HOLE.finditer(text):
            pieces.append(text[at : hole.start()])
            at = hole.end()
            if hole[0] in ("{{", "}}"):
                pieces.append(hole[0][0])
            elif hole[1] is None or not hole[1].strip():
                raise UnfitError("a brace has no partner, or names no column; write {{ for {")
            else:
                pieces.append(_piece(hole[1]))
        pieces.append(text[at:])
        return tuple(piece for piece in pieces if piece != "")

    @property
    def made_inputs(self) -> tuple[str, ...]:
        named = [piece.column for piece in self._pieces if isinstance(piece, _Piece)]
        return tuple(dict.fromkeys(name for name in named if name != "value"))

    def check(self) -> None:
        for piece in self._pieces:
            for name, argument in _functions(piece):
                if name != "hash" and name not in _FUNCTIONS:
                    known = ", ".join(sorted((*_FUNCTIONS, "hash")))
                    raise UnfitError(f"there is no function {name}; there are {known}")
                if name in _NEEDS_NUMBER:
                    _number(argument)
                if name == "hash":
                    self._keys.subkey("template hash", 48)
        if self.facts.name in self.made_inputs:
            raise UnfitError("a column cannot be made of itself; {value} is what came")

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        parts = [
            piece if isinstance(piece, str) else self._made(piece, values, inputs)
            for piece in self._pieces
        ]
        if all(isinstance(part, str) for part in parts):
            return self.cut(pa.repeat(pa.scalar("".join(map(str, parts))), len(values)))
        return self.cut(joined(*parts))

    def _made(self, piece: _Piece, values: pa.Array, inputs: Inputs) -> pa.Array:
        column = values if piece.column == "value" else inputs.made[piece.column]
        for name, argument in piece.functions:
            column = (
                self._hashed(column, argument)
                if name == "hash"
                else (_FUNCTIONS[name](column, argument))
            )
        if self.options.missing is not None:
            column = column.fill_null(self.options.missing)
        return column

    def _hashed(self, column: pa.Array, argument: str) -> pa.Array:
        length = _number(argument) if argument else 16
        drawn = Draws(self._keys.subkey("template hash", 48)).of(column.fill_null(""))
        digits = hexadecimal(np.ascontiguousarray(drawn).view(np.uint8).reshape(-1, 16))
        made = pc.utf8_slice_codeunits(digits, 0, min(length, 32))
        return pc.if_else(column.is_valid(), made, pa.scalar(None, pa.string()))


def _functions(piece: Any) -> tuple[tuple[str, str], ...]:
    return piece.functions if isinstance(piece, _Piece) else ()


def _piece(text: str) -> _Piece:
    column, *functions = (part.strip() for part in text.split("|"))
    calls = (function.partition(":") for function in functions)
    return _Piece(column, tuple((name.strip(), argument) for name, _, argument in calls))


class CutOptions(NoOptions):
    """``length`` characters stay, of the beginning or the end."""

    length: int = Field(ge=1)
    side: Literal["first", "last"] = "first"


class CutOff(Transformer):
    """Texts cut off, so that many rows share one: the first digits of a postal code, say."""

    options_model = CutOptions
    is_keyed = False

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        if self.options.side == "first":
            return pc.utf8_slice_codeunits(values, 0, self.options.length)
        return pc.utf8_slice_codeunits(values, -self.options.length)

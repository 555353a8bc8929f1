"""Postgres's texts as the Arrow columns that an engine's tables have, and what they cannot hold.

What a type of the engine does not hold is *unfit*: it refuses the table, or becomes null or the
nearest value, as the pipeline file says, and is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.typed import arrow_type, decode_text
from penstock.destination.families.staged_merge.unfit_policy import Unfit
from penstock.destination.families.target import Target
from penstock.model.errors import TableRefused
from penstock.model.lsn import Position
from penstock.model.plain_type import TEXT, plain_pg_type

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NO_COLUMNS = "_row"
"""The column of a table that has none, where the engine wants one."""

_SHOWN = 60
_DATES = ("date", "timestamp", "timestamptz")
# Numbers that stand for infinity in DuckDB; all that is finite lies between them.
_ENDLESS = {"date": 2**31 - 1, "timestamp": 2**63 - 1, "timestamptz": 2**63 - 1}
_DAY = 86_400_000_000
_YEAR_1, _YEAR_9999 = -719_162, 2_932_896


@dataclass(frozen=True)
class EngineTypes:
    """What the types of an engine hold.

    ``has_time``: times of day, of which 24:00:00 is one. ``has_uuid``: uuids; else they are texts.
    ``has_unsigned``: integers without a sign. ``is_endless``: dates of all years, and infinity;
    else ``days`` since 1970, by default years 1 to 9999. ``has_small``: integers of 16 bits.
    ``most_digits``: of a decimal.
    """

    has_time: bool
    has_uuid: bool
    has_unsigned: bool
    is_endless: bool
    has_small: bool = True
    days: tuple[int, int] = (_YEAR_1, _YEAR_9999)
    most_digits: int = 38

    def arrow(self, plain: str) -> pa.DataType:
        """The Arrow type of a column whose type comes down to ``plain`` (plain_type.py)."""
        return _arrow(self, plain)

    def shown(self, plain: str) -> str:
        """The same for people."""
        return str(self.arrow(plain))

    def fit(self, text: pa.Array, plain: str, *, nearest: bool) -> tuple[pa.Array, Mask | None]:
        """Typed values of texts, and which of them are unfit: these are null or, where ``nearest``
        and there is such a value, the nearest that fits. Raises DecodeError for what Postgres does
        not write.
        """
        arrow = _arrow(self, plain)
        decoded = self._decoded_as(plain)
        if decoded == TEXT:
            return text, None
        typed = decode_text(text, *plain_pg_type(decoded))
        values, unfit = typed.values, None
        if typed.unrepresentable is not None:
            unfit = typed.unrepresentable.to_numpy(zero_copy_only=False)
        if self.is_endless and unfit is not None and plain in (*_DATES, "time"):
            values, unfit = _endless(text, values, unfit, plain)
        elif plain in _DATES and not self.is_endless:
            values, unfit = self._within(values, unfit, plain)
        elif plain.removesuffix("[]") in _DATES and not self.is_endless:
            values, unfit = self._lists_within(values, unfit, plain)
        if nearest and unfit is not None and plain in _DATES:
            values = self._nearest(text, values, unfit, plain)
        if values.type != arrow:
            values = values.cast(arrow)
        return values, unfit if unfit is not None and unfit.any() else None

    def own_values(self, values: pa.Array, plain: str) -> pa.Array:
        """Values that are no texts of Postgres, but typed already, as the engine's columns have
        them.
        """
        return values.cast(self.arrow(plain))

    def _decoded_as(self, plain: str) -> str:
        """The type that texts are decoded as, of which the engine's own is a cast."""
        scalar = plain.removesuffix("[]")
        is_text = (scalar == "time" and not self.has_time) or (
            scalar == "uuid" and (not self.has_uuid or plain != scalar)
        )
        if scalar.startswith("numeric"):
            decimal = arrow_type(*plain_pg_type(scalar))
            is_text = not pa.types.is_decimal(decimal) or decimal.precision > self.most_digits
        if scalar in ("json", "jsonb") or is_text:
            return plain.replace(scalar, TEXT)
        return plain

    def _nearest(self, text: pa.Array, values: pa.Array, unfit: Mask, plain: str) -> pa.Array:
        """The first or the last value of the type in place of what is before or after it."""
        first_year = str(np.datetime64(self.days[0], "D"))[:4]
        is_early = pc.or_(pc.starts_with(text, "-"), pc.ends_with(text, " BC"))
        has_year = pc.match_substring_regex(text, r"^\d{4}-")
        before = pc.less(pc.utf8_slice_codeunits(text, 0, 4), first_year)
        is_early = pc.or_(is_early, pc.and_(has_year, before))
        is_early = pc.fill_null(is_early, False).to_numpy(zero_copy_only=False)
        if self.is_endless:
            first, last = 1 - _ENDLESS[plain], _ENDLESS[plain] - 1
        elif plain == "date":
            first, last = self.days
        else:
            first, last = self.days[0] * _DAY, (self.days[1] + 1) * _DAY - 1
        return _with(values, {first: unfit & is_early, last: unfit & ~is_early})

    def _is_outside(self, values: pa.Array, plain: str) -> Mask:
        """Which are before the first day, or after the last."""
        first, last = self.days
        unit = 1 if plain == "date" else _DAY
        stored = values.view(pa.int32() if plain == "date" else pa.int64())
        numbers = pc.fill_null(stored, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        outside: Mask = (numbers < first * unit) | (numbers >= (last + 1) * unit)
        return outside

    def _within(
        self, values: pa.Array, unfit: Mask | None, plain: str
    ) -> tuple[pa.Array, Mask | None]:
        outside = self._is_outside(values, plain)
        if not outside.any():
            return values, unfit
        values = pc.if_else(pa.array(outside), pa.scalar(None, values.type), values)
        return values, outside if unfit is None else outside | unfit

    def _lists_within(
        self, values: pa.Array, unfit: Mask | None, plain: str
    ) -> tuple[pa.Array, Mask | None]:
        outside = self._is_outside(values.flatten(), plain.removesuffix("[]"))
        if not outside.any():
            return values, unfit
        rows = np.zeros(len(values), bool)
        # As flatten does it: a null has no elements, whatever lies below it.
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        rows[np.repeat(np.arange(len(values)), lengths)[outside]] = True
        values = pc.if_else(pa.array(rows), pa.scalar(None, values.type), values)
        return values, rows if unfit is None else rows | unfit


@cache
def _arrow(engine: EngineTypes, plain: str) -> pa.DataType:
    scalar = engine._decoded_as(plain)
    found = pa.string() if scalar == TEXT else arrow_type(*plain_pg_type(scalar))
    held: dict[pa.DataType, pa.DataType] = {}
    if not engine.has_unsigned:
        held |= {pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}
    if not engine.has_small:
        held[pa.int16()] = pa.int32()
    if pa.types.is_list(found) and found.value_type in held:
        return pa.list_(held[found.value_type])
    return held.get(found, found)


def _with(values: pa.Array, numbers: dict[int, Mask]) -> pa.Array:
    """The same with these numbers, as the type stores them, in their places."""
    stored = pa.int32() if values.type == pa.date32() else pa.int64()
    found = values.view(stored)
    for number, mask in numbers.items():
        if mask.any():
            found = pc.if_else(pa.array(mask), pa.scalar(number, stored), found)
    return found.view(values.type)


def _endless(
    text: pa.Array, values: pa.Array, unfit: Mask, plain: str
) -> tuple[pa.Array, Mask | None]:
    def is_text(wanted: str) -> Mask:
        found = pc.fill_null(pc.equal(text, wanted), False)
        mask: Mask = found.to_numpy(zero_copy_only=False)
        return mask & unfit

    if plain == "time":
        numbers = {_DAY: unfit}  # 24:00:00, and nothing else
    else:
        end = _ENDLESS[plain]
        numbers = {end: is_text("infinity"), -end: is_text("-infinity")}
    held = np.logical_or.reduce(list(numbers.values()))
    return _with(values, numbers), unfit & ~held


@dataclass(frozen=True)
class RowPlaces:
    """Where rows come from, for the message of a refusal. ``counts`` is false where a row's values
    are of no interest: it was deleted.
    """

    key: Sequence[pa.Array] = ()
    commit_lsn: Ints | None = None
    ordinal: Ints | None = None
    counts: Mask | None = None

    def tell(self, target: Target, row: int) -> str:
        names = [target.columns[index] for index in target.key]
        texts = [
            f"{name} = {text[row].as_py()}" for name, text in zip(names, self.key, strict=True)
        ]
        where = f"the row with {', '.join(texts)}" if texts else "a row"
        if self.commit_lsn is None or self.ordinal is None:
            return f"{where}, which was copied"
        position = Position(int(self.commit_lsn[row]), int(self.ordinal[row]))
        return f"{where}, changed at {position}"


@dataclass(frozen=True)
class ColumnTyping:
    """How a member's columns are made from texts. Pickled to the executors."""

    engine: EngineTypes
    unfit: Unfit

    def schema(self, target: Target) -> list[pa.DataType]:
        return [self.engine.arrow(plain) for plain in target.types]

    def column(
        self, target: Target, index: int, text: pa.Array, places: RowPlaces
    ) -> tuple[pa.Array, int]:
        """A column's values, and how many of them were unfit.

        Raises TableRefused where one is unfit and the policy says so, or it is part of the key:
        rows could not be told apart without it.
        """
        plain = target.types[index]
        values, unfit = self.engine.fit(text, plain, nearest=self.unfit == "truncate")
        if unfit is None:
            return values, 0
        if places.counts is not None:
            unfit = unfit & places.counts
        if not unfit.any():
            return values, 0
        if self.unfit == "refuse" or index in target.key:
            raise self._refused(target, index, text, int(np.flatnonzero(unfit)[0]), places)
        return values, int(unfit.sum())

    def _refused(
        self, target: Target, index: int, text: pa.Array, row: int, places: RowPlaces
    ) -> TableRefused:
        value = text[row].as_py()
        shown = repr(value) if len(value) <= _SHOWN else f"{value[:40]!r}…"
        name, kind = target.columns[index], self.engine.shown(target.types[index])
        remedy = "change the row at the source, or say `unfit: null` or `unfit: truncate` in the "
        remedy += "destination's part of the pipeline file"
        if index in target.key:
            remedy = "change the row at the source: a value of the key cannot be left out"
        return TableRefused(
            f"table {target.qualified_name}: {shown} in column {name} does not fit {kind}; it is "
            f"in {places.tell(target, row)}",
            remedy=f"{remedy}; then run `penstock tables resync` for {target.qualified_name}",
            table=target.oid,
        )

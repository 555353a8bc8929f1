"""What every decoder takes and gives: the bytes of a column of texts, and typed values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.types.constant_text import NULL_TEXT

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Offsets = npt.NDArray[np.int32]


class MalformedTextError(ValueError):
    """A text that Postgres does not write for its type.

    Says nothing about the row: decoders look at whole columns, and whoever called them finds
    the row by asking again for parts of the column.
    """


@dataclass(frozen=True)
class TypedColumn:
    """Decoded values, one a text.

    ``unrepresentable`` is None where every text has a value of the Arrow type. Else it is true
    where ``values`` is null only because Arrow cannot hold the value (infinity as a date): the
    text is then the exact value, and the caller keeps it.
    """

    values: pa.Array
    unrepresentable: pa.BooleanArray | None = None


class TextColumn:
    """A string array seen as NumPy arrays: ``data`` of row i is ``offsets[i]:offsets[i + 1]``.

    Offsets start at 0 whatever slice the array is, and null rows hold no bytes, so the bytes
    of the valid rows follow each other without a gap. ``valid`` is None where no row is null.
    """

    def __init__(self, array: pa.Array) -> None:
        self.array = array
        self.size: int = len(array)
        self._given = _bytes_and_offsets(array)

    def all_bytes_up_to(self, limit: int) -> bool:
        """Whether no valid row has a higher byte. Cheap: mostly it need not know the nulls."""
        return _highest(self._given[0]) <= limit or _highest(self.data) <= limit

    @cached_property
    def valid(self) -> Mask | None:
        if not self.array.null_count:
            return None
        valid: Mask = self.array.is_valid().to_numpy(zero_copy_only=False)
        return valid

    @cached_property
    def _rows(self) -> tuple[Bytes, Offsets]:
        data, offsets = self._given
        if self.valid is not None and (offsets[1:] - offsets[:-1])[~self.valid].any():
            return _bytes_and_offsets(pc.fill_null(self.array, ""))
        return data, offsets

    @property
    def data(self) -> Bytes:
        return self._rows[0]

    @property
    def offsets(self) -> Offsets:
        return self._rows[1]

    @cached_property
    def starts(self) -> Offsets:
        """Where each valid row begins."""
        starts = self.offsets[:-1]
        return starts if self.valid is None else starts[self.valid]

    @cached_property
    def ends(self) -> Offsets:
        """Where each valid row ends."""
        ends = self.offsets[1:]
        return ends if self.valid is None else ends[self.valid]

    def where(self, mask: Mask) -> pa.Array:
        """The same rows, null where the mask is false."""
        return pc.if_else(pa.array(mask), self.array, NULL_TEXT)

    def is_one_of(self, texts: pa.Array) -> Mask:
        """True where a row is one of these texts; false for null."""
        found: Mask = pc.is_in(self.array, value_set=texts).to_numpy(zero_copy_only=False)
        return found

    def validity(self, holes: Mask | None = None) -> pa.Buffer | None:
        """The validity bitmap of values made of these rows, null also in the holes."""
        if holes is not None:
            valid = ~holes if self.valid is None else self.valid & ~holes
        elif self.valid is None:
            return None
        else:
            valid = self.valid
        return pa.py_buffer(np.packbits(valid, bitorder="little"))

    def spread(self, dense: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values of the valid rows, moved to their rows; zero in the null ones."""
        if self.valid is None:
            return dense
        values = np.zeros((self.size, *dense.shape[1:]), dense.dtype)
        values[self.valid] = dense
        return values

    def typed(
        self, arrow: pa.DataType, values: npt.NDArray[Any], holes: Mask | None = None
    ) -> TypedColumn:
        """Fixed-width values of all rows as a column; holes are what Arrow cannot hold."""
        if holes is not None and not holes.any():
            holes = None
        buffers = [self.validity(holes), pa.py_buffer(np.ascontiguousarray(values))]
        array = pa.Array.from_buffers(arrow, self.size, buffers)
        return TypedColumn(array, None if holes is None else pa.array(holes))


Decoder = Callable[[TextColumn], TypedColumn]


def _bytes_and_offsets(array: pa.Array) -> tuple[Bytes, Offsets]:
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, len(array) + 1, array.offset * 4)
    start, end = int(offsets[0]), int(offsets[-1])
    if start == end or data_buffer is None:
        return np.empty(0, np.uint8), offsets - start
    data = np.frombuffer(data_buffer, np.uint8, end - start, start)
    return data, offsets - start if start else offsets


def _highest(data: Bytes) -> int:
    return int(data.max()) if data.size else 0

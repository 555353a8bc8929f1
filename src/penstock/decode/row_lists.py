"""Lists and maps, one a row, from one mask a column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.decode.row_values import Mask


def lists(values: pa.Array, present: Sequence[Mask | None], count: int) -> pa.Array:
    """For each row the values whose mask is true there."""
    numbers = [number for number, mask in enumerate(present) if mask is not None]
    rows, which = _entries([present[number] for number in numbers], count)
    picked = values.take(pa.array(np.array(numbers, np.int64)[which]))
    return pa.ListArray.from_arrays(pa.array(_offsets(rows, count)), picked)


def maps(
    keys: Sequence[str], texts: Sequence[pa.Array], present: Sequence[Mask], count: int
) -> pa.Array:
    """For each row the keys whose mask is true there, with their texts."""
    rows, which = _entries(present, count)
    picked = pa.array(keys, pa.string()).take(pa.array(which))
    items = pa.concat_arrays(texts).take(pa.array(which * count + rows)) if len(rows) else picked
    return pa.MapArray.from_arrays(pa.array(_offsets(rows, count)), picked, items)


def _entries(
    masks: Sequence[Mask | None], count: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows and numbers of the masks that are true, row by row."""
    if not masks:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    rows, which = np.nonzero(np.stack(masks, axis=1))  # type: ignore[arg-type]
    return rows, which


def _offsets(rows: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int32]:
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=count), out=offsets[1:])
    return offsets

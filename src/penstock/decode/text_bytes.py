"""The bytes of a text column as they lie in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def text_bytes(column: pa.Array) -> memoryview:
    """All texts behind each other, without a copy. Bytes of nulls may be among them."""
    _, offsets, data = column.buffers()
    if not len(column) or data is None:
        return memoryview(b"")
    kind = np.int64 if pa.types.is_large_string(column.type) else np.int32
    bounds = np.frombuffer(offsets, kind)[column.offset : column.offset + len(column) + 1]
    return memoryview(data)[int(bounds[0]) : int(bounds[-1])]

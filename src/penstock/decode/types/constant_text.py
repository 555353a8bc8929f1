"""Texts that modules compare with.

They are made from bytes: the first array or scalar that pyarrow makes from Python objects imports
pandas, which takes longer than everything else that the process of a stream's reader loads.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pyarrow as pa


def texts(*values: str) -> pa.StringArray:
    parts = [value.encode() for value in values]
    ends = np.array([0, *accumulate(map(len, parts))], np.int32)
    return pa.StringArray.from_buffers(
        len(parts), pa.py_buffer(ends), pa.py_buffer(b"".join(parts))
    )


def text(value: str) -> pa.StringScalar:
    return texts(value)[0]


NULL_TEXT: pa.StringScalar = pa.nulls(1, pa.string())[0]

"""Processes of a pipeline start without pandas; who asks for it has it."""

from __future__ import annotations

import subprocess
import sys

_TASK = """
import sys
import pyarrow as pa
from penstock.arrow_alone import keep_pandas_out

keep_pandas_out()
import penstock.destination.postgres.destination
import penstock.spark.engine
import penstock.spark.task
assert pa.array(["a", None]).null_count == 1
print("pandas" in sys.modules)
series = pa.array([1.0, None]).to_pandas()
print(pa.array(series).null_count, pa.table({"a": [1]}).to_pandas().shape)
"""


def test_pandas_comes_when_it_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", _TASK], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["False", "1 (1, 1)"]

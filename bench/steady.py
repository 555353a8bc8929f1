"""w3: how long a small transaction takes to its destination, and what a quiet pipeline costs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from psycopg import sql

from bench.backlog import PATIENCE_SECONDS, pipeline_usage
from bench.process_usage import Usage, forget_peak, pipeline_processes, usage
from bench.results import Measurement, percentile
from bench.server import BenchDatabase, BenchError, BenchPipeline
from bench.warm_spark import WarmSpark
from bench.workloads import COLUMNS, ROW
from penstock.changelog.changelog import ChangeLog
from penstock.lsn import format_lsn, parse_lsn
from penstock.pipeline.apply_batch import Delivered

RATE = 1000
IDLE_SECONDS = 15
_IDLE_RATE = 100
_LEAD_IN_SECONDS = 5.0
# Enough that a slow fsync of one commit does not hold the others back.
_CLIENTS = 8

Micros = npt.NDArray[np.int64]


def steady_seconds(scale: float) -> int:
    """60 s at full scale, and never less than 10: the first 5 do not count."""
    return max(10, round(60 * scale))

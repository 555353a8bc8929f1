"""Python runs this first where PYTHONPATH leads here: `penstock run` then does without Spark.

For tests of what processes do to each other, with drivers that start in seconds:
threads_engine.py.
"""

import os
import sys

if "run" in sys.orig_argv and (
    "--only" in sys.orig_argv or "PENSTOCK_TEST_WITHOUT_SPARK" in os.environ
):
    import penstock.spark.engine
    from tests.threads_engine import ThreadsEngine

    penstock.spark.engine.SparkEngine = ThreadsEngine  # type: ignore[assignment, misc]

"""Python runs this first where PYTHONPATH leads here: `penstock run` then does without Spark.

For tests of what processes do to each other, with drivers that start in seconds:
threads_engine.py.
"""

import sys

if "run" in sys.orig_argv:
    from contextlib import nullcontext
    from typing import Any

    import penstock.spark.engine
    from tests.threads_engine import ThreadsEngine

    engines: Any = penstock.spark.engine
    engines.starting_engine = lambda _config: nullcontext(ThreadsEngine)

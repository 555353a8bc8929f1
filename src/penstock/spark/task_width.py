"""How many tasks a job is cut into."""

from __future__ import annotations

from pyspark import SparkConf, SparkContext

# Where there is no limit to what dynamic allocation may ask for.
_UNLIMITED_WIDTH = 8


class TaskWidth:
    """As many as can run at a time. With dynamic allocation that is what executors may become, not
    what they are: Spark asks for more of them only where tasks wait. ``spark.default.parallelism``
    says otherwise.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        # Asked once: each setting is a call into the JVM.
        self._may_become = _may_become(context.getConf())

    def now(self) -> int:
        return max(int(self._context.defaultParallelism), self._may_become)


def _may_become(conf: SparkConf) -> int:
    is_dynamic = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
    if not is_dynamic or conf.contains("spark.default.parallelism"):
        return 1
    most = conf.get("spark.dynamicAllocation.maxExecutors")
    if most is None:
        return _UNLIMITED_WIDTH
    return int(most) * int(conf.get("spark.executor.cores", "1") or 1)

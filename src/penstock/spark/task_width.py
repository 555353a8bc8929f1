"""How many tasks a job is cut into."""

from __future__ import annotations

from pyspark.sql import SparkSession

# Where there is no limit to what dynamic allocation may ask for.
_UNLIMITED_WIDTH = 8


def task_width(spark: SparkSession) -> int:
    """As many as can run at a time. With dynamic allocation that is what executors may become, not
    what they are: Spark asks for more of them only where tasks wait. ``spark.default.parallelism``
    says otherwise.
    """
    context = spark.sparkContext
    now, conf = int(context.defaultParallelism), context.getConf()
    is_dynamic = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
    if not is_dynamic or conf.contains("spark.default.parallelism"):
        return now
    most = conf.get("spark.dynamicAllocation.maxExecutors")
    if most is None:
        return max(now, _UNLIMITED_WIDTH)
    return max(now, int(most) * int(conf.get("spark.executor.cores", "1") or 1))

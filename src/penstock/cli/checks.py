"""Everything that must hold before a pipeline runs: source, change log, destination, Java."""

from __future__ import annotations

from penstock.config.models import PipelineConfig
from penstock.destination.registry import make_destination
from penstock.model.errors import PenstockError
from penstock.pipeline.run.filtering import check_filter
from penstock.source.postgres.preflight.all_checks import CheckResult, run_checks
from penstock.spark.java import java_home


def run_all_checks(config: PipelineConfig) -> list[CheckResult]:
    """Every check with its result. Reads only."""
    return [*run_checks(config), _destination(config), _java()]


def _destination(config: PipelineConfig) -> CheckResult:
    name = f"destination {config.destination_type}"
    try:
        destination = make_destination(
            config.destination_type, config.destination_options, config.name
        )
        try:
            check_filter(config, destination)
            notes = destination.check()
        finally:
            destination.close()
    except PenstockError as error:
        return CheckResult(name, "failed", error.message, error.remedy)
    if notes:
        return CheckResult(name, "warning", "; ".join(("can be written to", *notes)), "")
    return CheckResult(name, "passed", "can be written to")


def _java() -> CheckResult:
    try:
        home = java_home()
    except PenstockError as error:
        return CheckResult("Java", "failed", error.message, error.remedy)
    if home is None:
        return CheckResult(
            "Java",
            "failed",
            "Spark needs a Java runtime, and none was found",
            "Install a JDK 17 or newer, or `pip install penstock[java]`.",
        )
    return CheckResult("Java", "passed", f"{home}")

"""Everything that must hold before a pipeline runs: source, change log, destination, Java."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from penstock.config.kafka_source import KafkaPipelineConfig
from penstock.config.models import PipelineConfig
from penstock.debug import is_debug
from penstock.destination.contract import Destination
from penstock.destination.registry import make_destination
from penstock.model.errors import ConfigError, PenstockError
from penstock.pipeline.copy.schema_copy import check_schema
from penstock.pipeline.run.filtering import check_filter
from penstock.pipeline.run.promises import check_promises
from penstock.source.postgres.preflight.all_checks import CheckResult
from penstock.source.postgres.preflight.rule_checks import check_transform, followed_tables
from penstock.source.registry import source_checks
from penstock.spark.java import java_home


def run_all_checks(*views: PipelineConfig) -> list[CheckResult]:
    """Every check with its result, in order. Reads only. `check`, `init` and `run` call it.
    ``views`` are the destinations of one pipeline.

    Source and change log, destination and Java know nothing of each other, so they are asked at
    the same time: one that does not answer costs its own timeout, and hides nothing of the others.
    """
    # Where tables are copied for one of them they have to be readable.
    copying = next((view for view in views if view.source.copy_rows is not None), views[0])
    return at_once(
        {
            "source": lambda: source_checks(copying),
            **{
                f"rules of {_shown(view)}": partial(_rules, view)
                for view in views
                if view.transform
            },
            **{
                f"rows of {_shown(view)}": partial(_rows, view)
                for view in views
                if view.filter.rows and not isinstance(view, KafkaPipelineConfig)
            },
            **{_shown(view): partial(_destinations, view) for view in views},
            "Java": lambda: [_java()],
        }
    )


def _shown(config: PipelineConfig) -> str:
    if config.is_one_of_many:
        return f"destination {config.destination_name} ({config.destination_type})"
    return f"destination {config.destination_type}"


def _destinations(config: PipelineConfig) -> list[CheckResult]:
    return [_destination(config)]


def at_once(groups: Mapping[str, Callable[[], list[CheckResult]]]) -> list[CheckResult]:
    """The results of all groups, in their order. One that breaks is a failed result of its name."""
    with ThreadPoolExecutor(len(groups), thread_name_prefix="check") as pool:
        futures = [pool.submit(_unbroken, name, group) for name, group in groups.items()]
    return [result for future in futures for result in future.result()]


def _unbroken(name: str, group: Callable[[], list[CheckResult]]) -> list[CheckResult]:
    try:
        return group()
    except Exception as error:
        if is_debug():
            raise
        return [
            CheckResult(
                name,
                "failed",
                f"unexpected {type(error).__name__}: {error}",
                "This is a bug in Penstock. `penstock --debug …` shows where; please report it.",
            )
        ]


def _destination(config: PipelineConfig) -> CheckResult:
    name = _shown(config)
    try:
        destination = make_destination(
            config.destination_type, config.destination_options, config.delivery
        )
        try:
            check_filter(config, destination)
            check_promises(config, destination)
            check_schema(config, destination)
            _refuse_speculation(config, destination)
            notes = destination.check()
        finally:
            destination.close()
    except PenstockError as error:
        return CheckResult(name, "failed", error.message, error.remedy)
    if notes:
        return CheckResult(name, "warning", "; ".join(("can be written to", *notes)), "")
    return CheckResult(name, "passed", "can be written to")


def _refuse_speculation(config: PipelineConfig, destination: Destination) -> None:
    """Two copies of a task at a time would send a lane's changes twice, and not in order."""
    if not destination.capabilities.sends_at_once:
        return
    if config.spark.conf.get("spark.speculation", "false").lower() == "true":
        raise ConfigError(
            "spark.speculation is on: Spark would run some tasks twice at the same time, and what "
            f"a task sends to {config.destination_type} cannot be taken back",
            remedy="set spark.speculation to false for this pipeline",
        )


def _rules(config: PipelineConfig) -> list[CheckResult]:
    """One result for each table that rules are about."""
    name = f"transform {config.destination_name}".rstrip()
    if isinstance(config, KafkaPipelineConfig):
        text = "topics tell of their tables as they are read: rules are checked at every start"
        return [CheckResult(name, "warning", text, "")]
    try:
        destination = make_destination(
            config.destination_type, config.destination_options, config.delivery
        )
        findings = check_transform(config, merges=destination.capabilities.merges)
    except PenstockError as error:
        return [CheckResult(name, "failed", error.message, error.remedy)]
    return [
        CheckResult(f"{name} {found.where}", found.status, found.text, found.remedy)
        for found in findings
    ]


def _rows(config: PipelineConfig) -> list[CheckResult]:
    """Whether the conditions for rows suit tables and destination."""
    name = f"filter.rows {config.destination_name}".rstrip()
    try:
        destination = make_destination(
            config.destination_type, config.destination_options, config.delivery
        )
        if not destination.capabilities.merges:
            return []
        followed_tables(config, holds_rows=True)
    except PenstockError as error:
        return [CheckResult(name, "failed", error.message, error.remedy)]
    return [CheckResult(name, "passed", "old rows of its tables are sent whole")]


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

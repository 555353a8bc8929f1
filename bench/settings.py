"""What to measure: the environment variables of `make bench`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.model.errors import ConfigError

STREAMS = ("w1", "w2", "w3", "w4")
WHOLE = "whole"
COPIES = ("copy", "copy_small", WHOLE)
WORKLOADS = (*STREAMS, "start", *COPIES, "encode", "transformers")
# Those that run as a pipeline on Spark, and those that fill the tables of a second server.
TRANSFORMED = "discard_transformed"
FROM_LOG = {
    "postgres_from_log": "postgres",
    "iceberg_from_log": "iceberg",
    "delta_from_log": "delta",
}
"""Systems whose log is filled before their clock runs, and what they deliver to."""
_LAKES = ("iceberg", "delta", "ducklake")
INTO_LAKES = (*_LAKES, "iceberg_from_log", "delta_from_log")
BY_WORKERS = {"copy_workers_1": 1, "copy_workers_2": 2}
"""Copies by processes of `penstock copy`, and how many of them."""
INTO_RABBIT: Mapping[str, Mapping[str, str]] = {
    "rabbitmq": {},
    "rabbitmq_no_headers": {"headers": "none"},
}
"""Pipelines into RabbitMQ, and what their destinations ask for."""
ON_CLUSTERS = {"postgres_on_1_worker": 1, "postgres_on_2_workers": 2}
"""Systems whose tasks run on a Spark cluster, and how many workers it has."""
IN_SESSION = (
    *("discard", "discard_object_log", TRANSFORMED, "postgres", *FROM_LOG),
    *("kafka", *INTO_RABBIT, "search", *_LAKES, "clickhouse", "snapshot_full", *BY_WORKERS),
)
"""Those that run in the warm Spark session on this machine's cores."""
PIPELINES = (*IN_SESSION, *ON_CLUSTERS)
DUMPED, SNAPSHOT = "pg_dump_restore_2", "snapshot_full"
"""Who copies a whole database."""
INTO_TABLES = (
    *("native_subscription", "psql_copy_pipe", "postgres", "postgres_from_log"),
    *(DUMPED, SNAPSHOT, *BY_WORKERS, *ON_CLUSTERS),
)
_STEADY_SYSTEMS = ("pg_recvlogical", "capture", "discard", "native_subscription", "postgres")
_STREAM_SYSTEMS = (*_STEADY_SYSTEMS, "postgres_from_log")
_COPY_SYSTEMS = ("psql_copy_binary_2", "spark_jdbc", "discard", "psql_copy_pipe", "postgres")
ENCODERS = {f"encode_{name}": name for name in ("penstock", "debezium", "bifrost")}
"""Their formats."""
TRANSFORMERS = {
    f"transform_{name}": name
    for name in (
        *("mask", "hash", "choice", "person_name", "email", "integer_key", "token", "shift"),
        *("encrypt", "json"),
    )
}
"""Their transformers."""
SYSTEMS = (
    *("pg_recvlogical", "capture", "psql_copy_binary_2", "spark_jdbc", "discard"),
    *("discard_object_log", TRANSFORMED),
    *("native_subscription", "psql_copy_pipe", "postgres", "postgres_from_log"),
    *(*ON_CLUSTERS, *BY_WORKERS),
    *("kafka", *INTO_RABBIT, "rabbitmq_bare"),
    *("search", "search_bulk_helper", *INTO_LAKES, "spark_merge", "spark_jdbc_iceberg"),
    *("clickhouse", DUMPED, SNAPSHOT),
    *ENCODERS,
    *TRANSFORMERS,
)
_SYSTEMS_OF = {
    **dict.fromkeys(STREAMS, _STREAM_SYSTEMS),
    "w1": (
        *_STREAM_SYSTEMS,
        *("discard_object_log", TRANSFORMED, "kafka", *INTO_RABBIT, "rabbitmq_bare", "search"),
        *("search_bulk_helper", *INTO_LAKES, "spark_merge", "clickhouse", *ON_CLUSTERS),
    ),
    "w3": (*_STEADY_SYSTEMS, "discard_object_log", *_LAKES, "clickhouse"),
    "w4": (*_STREAM_SYSTEMS, *_LAKES),
    "start": ("postgres",),
    "copy": (*_COPY_SYSTEMS, *BY_WORKERS, "iceberg", "spark_jdbc_iceberg"),
    "copy_small": ("discard", "postgres"),
    WHOLE: (DUMPED, SNAPSHOT),
    "encode": tuple(ENCODERS),
    "transformers": tuple(TRANSFORMERS),
}
RESULTS = Path(__file__).resolve().parent / "results" / "latest.json"

# w2 reads gigabytes in one go and copy_small takes its time: their rates vary little. The others
# need a median.
_DEFAULT_ROUNDS = {
    "w1": 3,
    "w2": 1,
    "w4": 3,
    "start": 3,
    "copy": 3,
    "copy_small": 1,
    WHOLE: 3,
    "encode": 3,
    "transformers": 3,
}


@dataclass(frozen=True)
class Settings:
    """``scale`` multiplies rows (w3: seconds, copy_small: tables); ``rounds`` None leaves it to
    the workload.
    """

    workloads: tuple[str, ...] = WORKLOADS
    systems: tuple[str, ...] = SYSTEMS
    scale: float = 1.0
    rounds: int | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Settings:
        """Raises ConfigError that names the variable and what it takes."""
        return cls(
            workloads=_some_of(WORKLOADS, "WORKLOADS", environment),
            systems=_some_of(SYSTEMS, "SYSTEMS", environment),
            scale=_scale(environment.get("SCALE") or "1"),
            rounds=_rounds(environment.get("ROUNDS")),
        )

    def systems_of(self, workload: str, kind: tuple[str, ...] = SYSTEMS) -> tuple[str, ...]:
        """Those that were asked for and take part in a workload, of a kind or all."""
        return tuple(
            system for system in self.systems if system in kind and system in _SYSTEMS_OF[workload]
        )

    def needs(self, *kind: str, of: tuple[str, ...] = WORKLOADS) -> bool:
        """Whether a system of the kind takes part in a workload that was asked for."""
        return any(self.systems_of(name, kind) for name in self.workloads if name in of)

    def rounds_of(self, workload: str) -> int:
        return self.rounds or _DEFAULT_ROUNDS[workload]


def turns(systems: tuple[str, ...], rounds: int) -> Iterator[tuple[int, str]]:
    """Each system in each round. Every round begins with another one, so that none always meets
    the same conditions.
    """
    for number in range(rounds):
        shift = number % len(systems)
        for system in systems[shift:] + systems[:shift]:
            yield number, system


def _some_of(
    known: tuple[str, ...], variable: str, environment: Mapping[str, str]
) -> tuple[str, ...]:
    text = environment.get(variable)
    if not text:
        return known
    asked = [part.strip() for part in text.split(",")]
    unknown = [part for part in asked if part not in known]
    if unknown:
        raise ConfigError(
            f"{variable}={text}: there is no {unknown[0]!r}.",
            remedy=f"Take some of {','.join(known)}, as in {variable}={','.join(known[:2])}.",
        )
    return tuple(name for name in known if name in asked)


def _scale(text: str) -> float:
    try:
        scale = float(text)
    except ValueError:
        scale = math.nan
    if not 0 < scale <= 100:
        raise ConfigError(
            f"SCALE={text}: expected a number above 0, at most 100.",
            remedy="SCALE=1 is the full size, SCALE=0.1 a tenth of it.",
        )
    return scale


def _rounds(text: str | None) -> int | None:
    if not text:
        return None
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(
            f"ROUNDS={text}: expected a whole number from 1 on.",
            remedy="ROUNDS=3 measures each system three times and reports medians.",
        )
    return int(text)

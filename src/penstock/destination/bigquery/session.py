"""What is sent to BigQuery: a statement by itself, or a transaction as one script."""

from __future__ import annotations

import importlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from penstock.destination.bigquery.options import BigQueryOptions
from penstock.destination.families.warehouse.session import WarehouseSession
from penstock.model.errors import (
    BatchAgain,
    DestinationError,
    DestinationUnavailable,
    refused_alone,
)

# As BigQuery words them: of two transactions that change a table, one is cancelled.
_CONFLICT = ("concurrent update", "could not serialize access", "concurrent transaction")
# Reasons of errors that pass by themselves.
_PASSING = {
    *("backendError", "internalError", "jobBackendError", "jobInternalError"),
    *("rateLimitExceeded", "jobRateLimitExceeded", "quotaExceeded", "tableUnavailable"),
}
_UNEXPECTED = re.compile(r"penstock step (\d+) touched (\d+) rows")
_LINE = re.compile(r"at \[(\d+):\d+\]")
_RETRY_SECONDS = 60.0
# A transaction may change a hundred tables, of which the ledger is one; a script has a megabyte.
_MOST_TABLES = 90
_MOST_CHARACTERS = 700_000


@dataclass(frozen=True)
class ScriptStep:
    """A statement of a script, whose table it is, and how many rows it has to touch."""

    statement: str
    table: int | None
    count: int | None = None
    otherwise: Callable[[int], Exception] | None = None


class BigQuerySession(WarehouseSession):
    """A transaction is gathered, and sent as one script when it ends: it goes on without whoever
    sent it, and never stays open. So its statements return no counts before, and queries see what
    was committed before it.

    Each job has a name that is chosen before it is sent. Where an answer is lost it is sent again
    by that name, which BigQuery takes once.
    """

    def __init__(self, options: BigQueryOptions, pipeline: str, stage: str) -> None:
        super().__init__()
        self._options = options
        self._pipeline = pipeline.replace(".", "-")
        self._stage = stage
        self._client: Any = None
        self._files: dict[str, str] = {}
        self._steps: list[ScriptStep] = []
        self._table: int | None = None

    def run(self, statement: str) -> int:
        with self.lock:
            if self.in_transaction:
                self._steps.append(ScriptStep(statement, self._table))
                return 0
            with self._explained():
                return self._job(statement).num_dml_affected_rows or 0

    def expect(self, statement: str, count: int, otherwise: Callable[[int], Exception]) -> None:
        with self.lock:
            if not self.in_transaction:
                super().expect(statement, count, otherwise)
                return
            self._steps.append(ScriptStep(statement, self._table, count, otherwise))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.lock, self._explained():
            return [tuple(row.values()) for row in self._job(query).result(job_retry=None)]

    @contextmanager
    def _of(self, table: int) -> Iterator[None]:
        with self.lock, refused_alone(table):
            before, self._table = self._table, table
            try:
                yield
            finally:
                self._table = before

    def alone(self, table: int) -> AbstractContextManager[None]:
        return self._of(table)

    def using(self, relation: str, file: str) -> None:
        self._files[relation] = f"{self._stage}/{file}"

    def is_full(self, table: int) -> bool:
        """Whether a table's rows have to go into another script: this one has changed it, so that
        it cannot be looked at, or is as large as one can be.
        """
        tables = {step.table for step in self._steps}
        size = sum(len(step.statement) for step in self._steps)
        return table in tables or len(tables) > _MOST_TABLES or size > _MOST_CHARACTERS

    # -- transactions ----------------------------------------------------------------------------

    def begin(self) -> None:
        self._steps.clear()
        self.transactions += 1
        self.in_transaction = True

    def commit(self) -> None:
        if not self._steps:
            return
        steps, lines = dict[int, ScriptStep](), ["BEGIN TRANSACTION;"]
        for number, step in enumerate(self._steps):
            lines.append(f"{step.statement};")
            steps[len(lines)] = step
            if step.count is not None:
                lines.append(
                    f"IF @@row_count <> {step.count} THEN RAISE USING MESSAGE ="
                    f" FORMAT('penstock step {number} touched %d rows', @@row_count); END IF;"
                )
        lines.append("COMMIT TRANSACTION;")
        with self._explained(steps):
            self._job("\n".join(lines), is_script=True)
        self._steps.clear()
        self._files.clear()

    def rollback(self) -> None:
        """What was gathered is forgotten."""
        self._steps.clear()
        self._files.clear()

    # -- jobs ------------------------------------------------------------------------------------

    def close(self) -> None:
        with self.lock:
            if self._client is not None:
                with suppress(Exception):
                    self._client.close()
            self._client = None

    def dataset_location(self, dataset: str) -> str | None:
        """Where a dataset is; None where there is none."""
        from google.api_core import exceptions

        with self.lock, self._explained():
            try:
                found = self._connected().get_dataset(f"{self._options.project}.{dataset}")
            except exceptions.NotFound:
                return None
            return str(found.location)

    def _connected(self) -> Any:
        if self._client is None:
            self._client = made_client(self._options)
        return self._client

    def _job(self, text: str, *, is_script: bool = False) -> Any:
        """A job that has ended well."""
        bigquery = library("google.cloud.bigquery")
        from google.api_core import exceptions

        client, retry = self._connected(), bigquery.DEFAULT_RETRY.with_timeout(_RETRY_SECONDS)
        name = f"penstock-{self._pipeline}-{uuid.uuid4().hex}"
        place = self._options.location
        config = self._config(bigquery, text, is_script=is_script)
        try:
            job = client.query(
                text, job_config=config, job_id=name, location=place, retry=retry, job_retry=None
            )
        except exceptions.Conflict:
            job = client.get_job(name, location=place, retry=retry)
        job.result(retry=retry, job_retry=None)
        return job

    def _config(self, bigquery: Any, text: str, *, is_script: bool) -> Any:
        config = bigquery.QueryJobConfig(use_query_cache=False, labels={"penstock": self._pipeline})
        tables = {}
        for relation, place in self._files.items():
            if relation in text:
                tables[relation] = bigquery.ExternalConfig("PARQUET")
                tables[relation].source_uris = [place]
        if tables:
            config.table_definitions = tables
        bound = self._options.maximum_bytes_billed
        if bound is not None and is_script:
            config.script_options = bigquery.ScriptOptions(statement_byte_budget=bound)
        elif bound is not None:
            config.maximum_bytes_billed = bound
        return config

    @contextmanager
    def _explained(self, steps: Mapping[int, ScriptStep] | None = None) -> Iterator[None]:
        """Turns what BigQuery says into errors that a person or the pipeline can act on; those of a
        script into errors of the table whose statement it was.
        """
        library("google.cloud.bigquery")
        import requests
        from google.api_core import exceptions
        from google.auth.exceptions import GoogleAuthError

        try:
            yield
        except (
            exceptions.GoogleAPIError, GoogleAuthError, requests.RequestException, TimeoutError
        ) as error:  # fmt: skip
            text = " ".join(str(error).split())
            if (found := _UNEXPECTED.search(text)) is not None:
                step = list((steps or {}).values())[int(found[1])]
                assert step.otherwise is not None  # noqa: S101
                raise step.otherwise(int(found[2])) from None
            raised = self._error(error, text)
            line = _LINE.search(text)
            step_at = (steps or {}).get(int(line[1])) if line else None
            if step_at is None or step_at.table is None:
                raise raised from None
            with refused_alone(step_at.table):
                raise raised from None

    def _error(self, error: Exception, text: str) -> DestinationError:
        from google.api_core import exceptions

        if any(sign in text.lower() for sign in _CONFLICT):
            return BatchAgain(f"destination bigquery: another transaction was faster: {text}")
        if "not found" in text.lower() and f"{self._stage}/" in text:
            return BatchAgain(f"destination bigquery: a file of the stage is gone: {text}")
        reasons = {each.get("reason") for each in getattr(error, "errors", ()) or ()}
        is_answer = isinstance(error, exceptions.ClientError) and not isinstance(
            error, exceptions.TooManyRequests
        )
        if reasons & _PASSING or not is_answer:
            self.close()
            return DestinationUnavailable(
                f"destination bigquery: project {self._options.project}: {text}",
                remedy="see that BigQuery can be reached from here, and the credentials are good",
            )
        if isinstance(error, exceptions.Forbidden | exceptions.Unauthorized):
            remedy = "give the account what docs/destinations/bigquery.md lists under Rights"
        elif "bytes billed" in text or "bytesBilledLimitExceeded" in reasons:
            remedy = "raise destination.maximum_bytes_billed, or look at what the table has become"
        else:
            remedy = "see what BigQuery says"
        return DestinationError(f"destination bigquery: {text}", remedy=remedy)


def made_client(options: BigQueryOptions) -> Any:
    """Google's own client."""
    bigquery = library("google.cloud.bigquery")
    if options.credentials_file is None:
        return bigquery.Client(project=options.project, location=options.location)
    return bigquery.Client.from_service_account_json(
        options.credentials_file, project=options.project, location=options.location
    )


def library(name: str) -> Any:
    """Google's package. Raises DestinationError where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DestinationError(
            "destination bigquery: its client is not installed",
            remedy="install it: pip install 'penstock[bigquery,objects]'",
        ) from error

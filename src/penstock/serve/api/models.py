"""What the API answers and takes. Times are ISO 8601 in UTC, sizes are bytes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from penstock.destination.dead_letters import DeadLetter
from penstock.serve.supervise.jobs import JobKind, JobState
from penstock.serve.supervise.supervisor import ProcessState, Wanted

Phase = Literal[
    "init", "data_sync", "finished_copy", "sync_wait", "catchup", "sync_done", "ready", "errored"
]
HealthWord = Literal["healthy", "settling", "starting", "failing", "stopped"]
TableText = Annotated[str, Field(min_length=1, max_length=300)]
DestinationText = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}$")]


class _Taken(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Alive(BaseModel):
    status: Literal["ok"] = "ok"


class Process(BaseModel):
    """The pipeline's process; ``adopted``: the server found it running."""

    state: ProcessState
    wanted: Wanted
    pid: int | None
    began_at: str | None
    adopted: bool
    restarts: int
    next_start: str | None
    error: str


class DestinationModel(BaseModel):
    """One of the pipeline's destinations. ``name`` is what `destination` of a request takes."""

    name: str
    type: str
    health: HealthWord
    reasons: list[str]
    lag_seconds: float | None
    lag_bytes: int | None
    delivered_per_second: float | None
    copied_per_second: float | None
    tables: dict[str, int]


class PipelineModel(BaseModel):
    """A pipeline at a glance. Numbers are null where they are not known at the moment; of several
    destinations they are the sum, and the longest lag.
    """

    name: str
    file: str
    process: Process
    health: HealthWord
    reasons: list[str]
    lag_seconds: float | None
    lag_bytes: int | None
    received_per_second: float | None
    delivered_per_second: float | None
    copied_per_second: float | None
    tables: dict[str, int]
    destinations: list[DestinationModel]


class PipelineList(BaseModel):
    pipelines: list[PipelineModel]


class PipelineStatus(PipelineModel):
    """The whole status, as `penstock status --json` has it. ``dead_letters`` counts refused rows by
    destination and table. ``unnamed_readers`` are destinations that the file does not name any
    more and that the change log is still kept for. ``problems`` name what did not answer.
    """

    source: dict[str, Any] | None
    log: dict[str, Any] | None
    dead_letters: dict[str, dict[str, int]]
    unnamed_readers: list[str]
    problems: list[str]


class StopRequest(_Taken):
    now: bool = Field(default=False, description="Do not wait for the batch that is under way.")


class CopyModel(BaseModel):
    """A copy under way. Bytes are as the source's disk has them, so they are estimates."""

    chunks_done: int
    chunks: int
    rows: int
    bytes_done: int
    bytes: int
    bytes_per_second: float | None
    remaining_seconds: float | None


class TableModel(BaseModel):
    """``destination`` is whose state it is; null where the pipeline has one."""

    table: str
    destination: str | None
    oid: int
    phase: Phase
    since: str | None
    lsn: str | None
    reason: str
    solution: str
    next_try: str | None
    wish: Literal["paused", "cancelled", "resync"] | None
    notes: list[str]
    copy_progress: CopyModel | None


class TableList(BaseModel):
    """``matching``: how many tables match; ``next``: the cursor of the next page, null at the
    end."""

    tables: list[TableModel]
    matching: int
    next: str | None


class TablesRequest(_Taken):
    tables: Annotated[list[TableText], Field(min_length=1, max_length=1000)]


class TablesOfDestinationRequest(TablesRequest):
    """``destination`` is needed where the pipeline has several."""

    destination: DestinationText | None = None


class TableOutcomeModel(BaseModel):
    table: str
    outcome: str


class OutcomeModel(BaseModel):
    tables: list[TableOutcomeModel]
    note: str


class SchemaVersionModel(BaseModel):
    """A definition that holds from the transaction with commit LSN ``lsn`` on."""

    lsn: str
    changes: list[str]
    definition: dict[str, Any]


class SchemaHistory(BaseModel):
    table: str
    versions: list[SchemaVersionModel]


class DeadLetterList(BaseModel):
    letters: list[DeadLetter]
    next: int | None


class DiscardRequest(_Taken):
    ids: Annotated[
        list[Annotated[int, Field(ge=1, le=2**63 - 1)]], Field(min_length=1, max_length=1000)
    ]
    destination: DestinationText | None = None


class Discarded(BaseModel):
    discarded: list[int]


class RuleFindingModel(BaseModel):
    """What was found of a table and, where it is about one, of a column."""

    status: str
    table: str
    column: str
    text: str
    remedy: str


class RuleFindings(BaseModel):
    """``passed``: whether nothing failed; warnings do not count."""

    passed: bool
    findings: list[RuleFindingModel]


class AcceptRequest(_Taken):
    destination: DestinationText | None = None


class Accepted(BaseModel):
    """The tables whose rules had changed."""

    tables: list[str]


class SubscriptionModel(BaseModel):
    """One receiver, as `penstock webhooks list --json` has it; never with its secrets."""

    model_config = ConfigDict(extra="allow")

    id: str
    url: str
    state: str
    reason: str | None
    behind_bytes: int
    delivered: int
    dead_letters: int
    last_error: str | None


class SubscriptionList(BaseModel):
    subscriptions: list[SubscriptionModel]


class SubscriptionRequest(_Taken):
    subscription: Annotated[str, Field(pattern=r"^sub_[0-9a-f]{1,64}$")]


class ResumeRequest(SubscriptionRequest):
    skip: bool = Field(
        default=False, description="For one that is disabled: go on with what comes from now on."
    )


class Tested(BaseModel):
    """Whether the receiver took an event that says nothing, and else why not."""

    delivered: bool
    why: str


class JobRequest(_Taken):
    """``destination`` is one of several, for all kinds but `init`. ``confirm`` is for `destroy`:
    the pipeline's name, or that of the destination which is given up alone. The other options are
    for `verify`.
    """

    kind: JobKind
    destination: DestinationText | None = None
    confirm: str | None = Field(default=None, max_length=100)
    parallel: int | None = Field(default=None, ge=1, le=64)
    show: int | None = Field(default=None, ge=1, le=1000)
    wait: float | None = Field(default=None, ge=0, le=86400)


class JobModel(BaseModel):
    """A long operation. ``destination`` is the one of several that it is about, empty where it is
    about all of them. ``report`` is what `check` or `verify` found, ``passed`` whether all of it
    is as it should be."""

    id: str
    pipeline: str
    destination: str
    kind: JobKind
    state: JobState
    started_by: str
    began_at: str
    done: int | None
    of: int | None
    passed: bool | None
    report: Any
    said: str
    error: str
    remedy: str


class JobList(BaseModel):
    jobs: list[JobModel]


class MetricPoint(BaseModel):
    at: str
    values: dict[str, float]


class MetricSeries(BaseModel):
    points: list[MetricPoint]


class EventModel(BaseModel):
    id: int
    at: str
    pipeline: str
    level: str
    event: str
    message: str
    fields: dict[str, Any]


class EventList(BaseModel):
    events: list[EventModel]


class Configuration(BaseModel):
    """The pipeline file with its defaults; secrets are left out."""

    configuration: dict[str, Any]

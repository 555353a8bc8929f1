"""The pipeline file as typed, frozen models. Loading it from disk is in load.py."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    model_validator,
)
from pydantic_core import PydanticCustomError

from penstock.config.connection_url import ConnectionUrl
from penstock.config.filter_config import FilterConfig, PatternText, one_table_each
from penstock.config.metrics_config import MetricsConfig
from penstock.config.quantities import Duration, DurationOrZero, Size
from penstock.config.table_patterns import (
    TablePatterns,
    split_name,
)
from penstock.config.transform_config import AnonymizerConfig, TransformConfig
from penstock.model.schema_policy import SchemaPolicy

SchemaAction = Literal["apply", "ignore", "stop"]

_SEGMENT_AGE = 0.1
_REMOTE_SEGMENT_AGE = 0.25

MAX_NAME_LENGTH = 40
"""Leaves room for ``penstock_`` and a uuid's start within the 63 bytes of a slot's name."""


def is_remote(path: str) -> bool:
    """Whether a path of a change log means object storage."""
    return "://" in path and not path.startswith("file://")


def delivery_name(pipeline: str, destination: str) -> str:
    """``shop.warehouse``: no pipeline has such a name. A destination that is called like its
    pipeline goes on with what the pipeline's only destination has left.
    """
    return pipeline if destination in ("", pipeline) else f"{pipeline}.{destination}"


def _name(value: str) -> str:
    if not re.fullmatch(rf"[a-z0-9_]{{1,{MAX_NAME_LENGTH}}}", value):
        raise PydanticCustomError(
            "pipeline_name",
            "Input should be 1 to {limit} lower-case letters, digits or _ "
            "(it becomes part of the slot's name)",
            {"limit": MAX_NAME_LENGTH},
        )
    return value


def _copy(value: object) -> object:
    """true stands for all defaults, false for no copy; nothing at all is a slip of the pen."""
    if isinstance(value, bool):
        return {} if value else None
    if not isinstance(value, dict | BaseModel):
        raise PydanticCustomError(
            "copy", "Input should be true, false or a mapping of keys to values"
        )
    return value


def _conditions(value: dict[str, str]) -> dict[str, str]:
    one_table_each(value, "a condition is for one table", "write one condition, with AND")
    for text, condition in value.items():
        if not condition.strip():
            raise PydanticCustomError(
                "no_condition", "the condition of {table} is empty", {"table": text}
            )
    return value


def _typed(value: dict[str, Any]) -> dict[str, Any]:
    kind = value.get("type")
    if not isinstance(kind, str) or not kind:
        raise PydanticCustomError(
            "destination_type",
            "the key type is missing or not a text; it names the destination, such as files",
        )
    return value


def _spark_value(value: object) -> object:
    # Spark takes text only, and people write `true` and `4` in YAML.
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    return value


def _message_prefix(value: str) -> str:
    if value.startswith("penstock."):
        raise PydanticCustomError(
            "message_prefix", "Prefixes that begin with penstock. are Penstock's own"
        )
    return value


Name = Annotated[str, AfterValidator(_name)]
SparkValue = Annotated[str, BeforeValidator(_spark_value)]
# Any of them may be a secret, and which are is the client library's affair.
StorageOption = Annotated[SecretStr, BeforeValidator(_spark_value)]


class _Model(BaseModel):
    # hide_input_in_errors: a value may be a secret; load.py decides which may be shown.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class TablesConfig(_Model):
    """Which tables to follow: every one that ``include`` matches and ``exclude`` does not.

    Of those that ``insert_only`` matches, inserts and truncates alone: they need no identity.
    ``on_remove`` is what becomes of a table at the destination when it is followed no longer, and
    ``reconcile`` how often the publications are compared with the patterns.
    """

    include: list[PatternText] = Field(default=["public.*"], min_length=1)
    exclude: list[PatternText] = []
    insert_only: list[PatternText] = []
    on_remove: Literal["keep", "truncate", "drop"] = "keep"
    reconcile: Duration = 10.0

    @property
    def patterns(self) -> TablePatterns:
        return TablePatterns(self.include, self.exclude, self.insert_only)


class CopyConfig(_Model):
    """How rows that are there before the stream are copied.

    ``parallelism`` None leaves it to the pipeline how many tasks copy at a time. ``max_wal`` is how
    much WAL, or with ``confirm: log`` change log, a copy may hold back until ``on_max_wal`` says
    what happens; None sets no limit. ``existing_rows`` is about a target that holds rows which
    Penstock did not bring. ``workers``: required, where only `penstock copy` copies.
    """

    parallelism: int | None = Field(default=None, ge=1)
    chunk_bytes: Size = 64 * 2**20
    max_snapshot_age: Duration = 24 * 3600.0
    max_wal: Size | None = None
    on_max_wal: Literal["pause", "restart"] = "pause"
    where: Annotated[dict[str, str], AfterValidator(_conditions)] = {}
    existing_rows: Literal["refuse", "truncate"] = "refuse"
    workers: Literal["optional", "required"] = "optional"

    @property
    def conditions(self) -> dict[str, str]:
        """The SQL condition that rows of a table have to meet, by schema and name of the table."""
        return {".".join(split_name(text)): condition for text, condition in self.where.items()}


class SourceConfig(_Model):
    """The database to follow. ``copy_rows`` is None where rows are not copied.

    Of what is sent by pg_logical_emit_message, messages with one of the prefixes in ``messages``
    are delivered.
    """

    # Topics have keys of their own (kafka_source.py).
    type: Literal["postgres", "kafka"] = "postgres"
    url: ConnectionUrl
    tables: TablesConfig = TablesConfig()
    messages: list[Annotated[str, AfterValidator(_message_prefix)]] = []
    # BaseModel has a method called copy, so the field needs another name than the key.
    copy_rows: Annotated[CopyConfig | None, BeforeValidator(_copy)] = Field(
        default=CopyConfig(), alias="copy"
    )


# Its bytes are counted in 31 bits, and what came at once is in it: a message of a gigabyte, too.
_LARGEST_SEGMENT = 512 * 2**20


class ChangeLogConfig(_Model):
    """Where captured changes are kept until the destination holds them: a folder, or a place in an
    object store (``s3://bucket/prefix``), whose ``options`` these are.
    """

    path: str = Field(min_length=1)
    options: dict[str, StorageOption] = {}
    confirm: Literal["destination", "log"] = "destination"
    segment_bytes: Annotated[Size, Field(le=_LARGEST_SEGMENT)] = 16 * 2**20
    segment_age: Duration = _SEGMENT_AGE
    max_bytes: Size = 20 * 2**30
    grace: DurationOrZero = 60.0

    @property
    def is_remote(self) -> bool:
        return is_remote(self.path)

    @property
    def local_folder(self) -> Path:
        """Where processes of one machine leave what they share (which of them run): the log's own
        folder, or where that is not on this machine, one of the user's.
        """
        if not self.is_remote:
            return Path(self.path.removeprefix("file://"))
        own = os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
        return Path(own, "penstock", hashlib.sha256(self.path.encode()).hexdigest()[:16])

    @property
    def revealed_options(self) -> dict[str, str]:
        """The options as they are. Never log them."""
        return {name: value.get_secret_value() for name, value in self.options.items()}

    @model_validator(mode="before")
    @classmethod
    def _default_age(cls, data: Any) -> Any:
        """On object storage each segment is a request to pay for."""
        if isinstance(data, dict) and is_remote(str(data.get("path"))):
            data = {"segment_age": _REMOTE_SEGMENT_AGE, **data}
        return data

    @model_validator(mode="after")
    def _options_have_a_store(self) -> ChangeLogConfig:
        if self.options and not self.is_remote:
            raise PydanticCustomError(
                "log_options",
                "options are for object storage (a path such as s3://bucket/prefix); a folder "
                "takes none",
            )
        return self

    @model_validator(mode="after")
    def _room_for_a_segment(self) -> ChangeLogConfig:
        if self.max_bytes < self.segment_bytes:
            raise PydanticCustomError(
                "log_too_small",
                "max_bytes ({max_bytes}) is smaller than one segment ({segment_bytes}); "
                "capture would pause for ever",
                {"max_bytes": self.max_bytes, "segment_bytes": self.segment_bytes},
            )
        return self


class StoreConfig(_Model):
    """Where table states, schemas and mappings are kept; without a URL, in the source database."""

    url: ConnectionUrl | None = None


class BatchConfig(_Model):
    """How much one micro-batch takes. ``max_age`` None leaves it to the destination.

    While more than ``max_bytes`` waits, batches grow to ``max_growth`` times that. A task holds
    about ``buffer_bytes`` at a time, whatever the size of its batch.
    """

    max_bytes: Size = 128 * 2**20
    max_age: Duration | None = None
    max_growth: int = Field(default=4, ge=1)
    buffer_bytes: Size = 32 * 2**20


class SparkConfig(_Model):
    """The Spark that runs the pipeline. The 4 in the default lets a failed task be retried.
    ``environment`` is what `penstock pack` made, for executors on other machines.
    """

    master: str = Field(default="local[*, 4]", min_length=1)
    environment: str | None = Field(default=None, min_length=1)
    conf: dict[str, SparkValue] = {}


class SchemaChangesConfig(_Model):
    """What is done about schema changes: ``default``, unless their kind is named.

    ``track`` lets Penstock create event triggers in the source, which tell of every change.
    ``trust`` is which functions the source's defaults, checks, generated columns and indexes may
    call at the destination: what is built in, that and those of a list, or all.
    """

    track: bool = True
    trust: Literal["built_in", "all"] | list[str] = "built_in"
    default: SchemaAction = "apply"
    add_column: SchemaAction | None = None
    drop_column: SchemaAction | None = None
    column_type: SchemaAction | None = None
    column_default: SchemaAction | None = None
    column_nullability: SchemaAction | None = None
    column_identity: SchemaAction | None = None
    primary_key: SchemaAction | None = None
    index: SchemaAction | None = None
    constraint: SchemaAction | None = None
    partitions: SchemaAction | None = None
    # Without these, rows would not find their place any more.
    rename_table: Literal["apply", "stop"] | None = None
    rename_column: Literal["apply", "stop"] | None = None
    column_generated: Literal["apply", "stop"] | None = None
    user_type: Literal["apply", "stop"] | None = None
    rewrite: Literal["apply", "stop"] | None = None

    @property
    def policy(self) -> SchemaPolicy:
        named: Any = self.model_dump(exclude={"track", "trust", "default"}, exclude_none=True)
        return SchemaPolicy(self.default, named)


class PipelineConfig(_Model):
    """One pipeline: from a source database through the change log to a destination.

    Of a file with several destinations it is what one of them sees (destinations.py): its own
    ``destination``, ``filter``, ``batch``, ``schema_changes`` and ``source.copy``, and all that
    they share. ``name`` is the pipeline's: slot, publications and log have it. ``delivery`` is what
    one destination's positions and table states are kept under.
    """

    name: Name
    source: SourceConfig
    change_log: ChangeLogConfig
    batch: BatchConfig = BatchConfig()
    # repr=False: only the destination knows which of its options are secret.
    destination: Annotated[dict[str, Any], AfterValidator(_typed)] = Field(repr=False)
    spark: SparkConfig = SparkConfig()
    store: StoreConfig = StoreConfig()
    schema_changes: SchemaChangesConfig = SchemaChangesConfig()
    filter: FilterConfig = FilterConfig()
    transform: TransformConfig | None = None
    metrics: MetricsConfig = MetricsConfig()
    _destination_name: str = PrivateAttr("")
    _destination_names: tuple[str, ...] = PrivateAttr(())
    _replays_log: bool = PrivateAttr(False)

    @property
    def destination_name(self) -> str:
        """What the file calls it under ``destinations``; empty for that of ``destination``."""
        return self._destination_name

    @property
    def is_one_of_many(self) -> bool:
        """Whether the file has ``destinations``: others may read the same log."""
        return bool(self._destination_name)

    @property
    def delivery(self) -> str:
        """Under which name store, destination and log know this destination."""
        return delivery_name(self.name, self._destination_name)

    @property
    def deliveries(self) -> dict[str, str]:
        """The same of all destinations that the file names, by what it calls them."""
        names = self._destination_names or ("",)
        return {name: delivery_name(self.name, name) for name in names}

    @property
    def replays_log(self) -> bool:
        """Whether it begins with the change log's first change, instead of a copy."""
        return self._replays_log

    def one_of(self, name: str, names: tuple[str, ...], *, replays_log: bool) -> PipelineConfig:
        """This view as that of the destination ``name``, one of ``names``."""
        view = self.model_copy()
        view._destination_name, view._destination_names = name, names
        view._replays_log = replays_log
        return view

    @property
    def destination_type(self) -> str:
        kind: str = self.destination["type"]
        return kind

    @property
    def destination_options(self) -> dict[str, Any]:
        """What the destination's own model validates: everything but ``type``."""
        return {key: value for key, value in self.destination.items() if key != "type"}

    @model_validator(mode="after")
    def _anonymizer_is_the_source(self) -> PipelineConfig:
        """Functions that rules call are the source's, unless the file says whose."""
        rules = self.transform
        if rules is None or rules.anonymizer is not None or not rules.asks_database:
            return self
        if self.source.type != "postgres":
            raise PydanticCustomError(
                "anonymizer_url",
                "a rule uses anonymizer, and the source is no database: transform.anonymizer.url "
                "names the one whose functions are called",
            )
        asked = AnonymizerConfig(url=self.source.url)
        # Frozen for everybody else: this is still its making.
        object.__setattr__(self, "transform", rules.model_copy(update={"anonymizer": asked}))
        return self

    @model_validator(mode="before")
    @classmethod
    def _default_trust(cls, data: Any) -> Any:
        """Who takes the source's whole schema takes what its owners wrote, unless the file says
        otherwise of later changes.
        """
        destination = data.get("destination") if isinstance(data, dict) else None
        if isinstance(destination, dict) and destination.get("schema") == "full":
            changes = data.get("schema_changes")
            if changes is None or isinstance(changes, dict):
                data = {**data, "schema_changes": {"trust": "all", **(changes or {})}}
        return data

    @model_validator(mode="before")
    @classmethod
    def _default_log_path(cls, data: Any) -> Any:
        """The default depends on the pipeline's name, so that two pipelines never share a log."""
        if not isinstance(data, dict):
            return data
        log = data.get("change_log")
        if log is None:
            log = {}
        if isinstance(log, dict) and "path" not in log:
            data = {**data, "change_log": {"path": f".penstock/{data.get('name')}/log", **log}}
        return data

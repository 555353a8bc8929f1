"""The rules of `transform`, looked at from outside: checked, and taken for those of before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.model.errors import ConfigError

if TYPE_CHECKING:
    from penstock.config import PipelineConfig
    from penstock.destination.contract import Destination
    from penstock.transform.transform import Transform
    from penstock.transform.transform_check import RuleFinding


def required_transform(config: PipelineConfig) -> Transform:
    """Raises ConfigError where the file has no rules."""
    from penstock.pipeline.run.filtering import pipeline_transform

    transform = pipeline_transform(config)
    if transform is None:
        raise ConfigError(
            "The pipeline file has no part transform.",
            remedy="`penstock transform suggest FILE` proposes one.",
        )
    return transform


def checked_rules(config: PipelineConfig) -> Sequence[RuleFinding]:
    """Every rule against the source's tables. Changes nothing, and reads no row."""
    from penstock.pipeline.copy.schema_copy import check_schema
    from penstock.source.postgres.preflight.rule_checks import check_transform
    from penstock.source.registry import expect_postgres

    expect_postgres(config, "transform check")
    required_transform(config)
    destination = _destination(config)
    check_schema(config, destination)
    return check_transform(config, merges=destination.capabilities.merges)


def accepted_rules(config: PipelineConfig) -> Sequence[str]:
    """Take the rules and the key of now for those that rows were delivered under; the tables for
    which they had changed.
    """
    from penstock.operations.named_tables import recorded_store
    from penstock.pipeline.run.filtering import pipeline_filter, pipeline_transform
    from penstock.pipeline.tables.changed_rules import accept_rules

    wanted = pipeline_filter(config, holds_rows=_destination(config).capabilities.merges)
    with recorded_store(config) as store:
        return accept_rules(store, (wanted, pipeline_transform(config)))


def _destination(config: PipelineConfig) -> Destination:
    from penstock.destination.registry import make_destination

    return make_destination(config.destination_type, config.destination_options, config.name)

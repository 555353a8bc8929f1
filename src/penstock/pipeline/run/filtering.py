"""The filter of a pipeline, and what it does not suit."""

from __future__ import annotations

from penstock.config.filter_config import FilterConfig
from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.model.errors import ConfigError
from penstock.transform.filter import Filter


def pipeline_filter(config: PipelineConfig) -> Filter | None:
    """None where everything passes."""
    return None if config.filter == FilterConfig() else Filter(config.filter)


def check_filter(config: PipelineConfig, destination: Destination) -> None:
    """Raises ConfigError where the destination needs what would be filtered."""
    if destination.capabilities.merges and config.filter != FilterConfig():
        raise ConfigError(
            f"filter: destination {destination.name} holds the rows of its tables, and those would "
            "be wrong without some of their changes",
            remedy="leave tables out with source.tables.exclude; columns and rows with a column "
            "list and a WHERE clause of a publication of your own",
        )

"""The source that a pipeline file asks for."""

from __future__ import annotations

from penstock.config.models import PipelineConfig
from penstock.source.contract import Source
from penstock.source.postgres.source import PostgresSource


def make_source(config: PipelineConfig) -> Source:
    """Not connected yet."""
    return PostgresSource(config)

"""The pipeline file: models, loading, secrets from the environment."""

from penstock.config.connection_url import ConnectionUrl
from penstock.config.load import load_deliveries, load_pipeline
from penstock.config.models import PipelineConfig
from penstock.config.table_patterns import TablePatterns

__all__ = ["ConnectionUrl", "PipelineConfig", "TablePatterns", "load_deliveries", "load_pipeline"]

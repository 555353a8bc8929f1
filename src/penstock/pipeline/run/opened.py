"""What a command opens at its start and closes at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.destination.registry import make_destination
from penstock.pipeline.run.filtering import check_filter


@contextmanager
def opened_destination(config: PipelineConfig) -> Iterator[Destination]:
    """The pipeline's destination, taken over."""
    destination = make_destination(config.destination_type, config.destination_options, config.name)
    try:
        check_filter(config, destination)
        destination.open()
        yield destination
    finally:
        destination.close()

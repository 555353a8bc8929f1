"""Everything that shows a pipeline's metrics to others, from its start to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

from penstock.config.metrics_config import MetricsConfig
from penstock.metrics.registry import Registry
from penstock.metrics.repeated import Repeated
from penstock.metrics.report import Reporter
from penstock.metrics.server import MetricsServer, Shown
from penstock.metrics.statsd import Statsd
from penstock.model.errors import ConfigError

_log = logging.getLogger(__name__)


class Counted(Shown, Protocol):
    """What is to be seen, and what it is counted in."""

    registry: Registry


@contextmanager
def shown_metrics(
    metrics: Counted, config: MetricsConfig, write: Callable[[str], None]
) -> Iterator[str | None]:
    """Show them as ``config`` says, until the block ends. ``write`` gets the reports.

    Gives the URL at which they are served, None where they are not. Raises ConfigError where the
    address is taken.
    """
    with ExitStack() as stack:
        url = stack.enter_context(served_metrics(metrics, config))
        if config.report is not None:
            report = Reporter(metrics.registry, config.report.format, write)
            stack.enter_context(Repeated("report", config.report.every, report))
        if config.statsd is not None:
            statsd = Statsd(metrics.registry, config.statsd.address, config.statsd.prefix)
            stack.enter_context(Repeated("statsd", config.statsd.every, statsd.send))
        yield url


@contextmanager
def served_metrics(metrics: Shown, config: MetricsConfig) -> Iterator[str | None]:
    """Serve them where ``config`` says, until the block ends; yields the address."""
    if (server := _server(metrics, config)) is None:
        yield None
        return
    with server:
        _log.info("metrics at %s/metrics", server.url, extra={"event": "metrics_served"})
        yield server.url


def _server(metrics: Shown, config: MetricsConfig) -> MetricsServer | None:
    if config.listen is None:
        return None
    try:
        return MetricsServer(metrics, config.listen)
    except ConfigError:
        if not config.is_default_address:
            raise
        # The first pipeline on this machine has it; nobody asked for this very port.
        return MetricsServer(metrics, config.listen._replace(port=0))

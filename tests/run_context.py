"""The context of a run in which a test replaces what it wants to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.changelog.changelog import ChangeLog
from penstock.config.models import PipelineConfig
from penstock.destination.discard import DiscardDestination, DiscardOptions
from penstock.metrics.pipeline_metrics import Metrics
from penstock.pipeline.run.context import RunContext
from penstock.store import MemoryStore


class Nobody:
    """Stands where a test expects that nobody is asked."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"somebody asks for {name}")


def run_context(name: str, folder: Path | str = "nowhere", **parts: Any) -> RunContext:
    """``parts`` are fields of RunContext; ``source`` may be keys of the pipeline file's source."""
    keys = parts.pop("source_keys", {})
    config = PipelineConfig.model_validate(
        {
            "name": name,
            "source": {"url": "postgresql://nobody@localhost/nowhere", **keys},
            "change_log": {"path": str(folder)},
            "destination": {"type": "discard"},
        }
    )
    store = MemoryStore(name)
    store.open()
    whole: dict[str, Any] = {
        "config": config,
        "file": Path("nowhere.yaml"),
        "log": ChangeLog(str(folder)),
        "store": store,
        "source": Nobody(),
        "session": Nobody(),
        "destination": DiscardDestination(DiscardOptions(), name),
        "engine": Nobody(),
        "metrics": Metrics(name),
        **parts,
    }
    return RunContext(**whole)

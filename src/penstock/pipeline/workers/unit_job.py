"""A unit of chunks as it stands in the store: all that a worker cannot know by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.metrics.written import CopyResult, Written
from penstock.model.stored import Stored
from penstock.pipeline.copy.chunk_task import copy_result
from penstock.source.copy_plan import Chunk


@dataclass(frozen=True)
class JobTable:
    """``copy`` is the table's copy in the store, ``definition`` the mark of how it is defined, and
    ``ticket`` is the destination's.
    """

    copy: str
    definition: str
    where: str | None
    ticket: Mapping[str, Any]


@dataclass(frozen=True)
class UnitJob(Stored):
    """``snapshot`` is the source's ticket, ``tables`` are by oid."""

    terms: Mapping[str, str]
    snapshot: Mapping[str, Any]
    chunks: tuple[Chunk, ...]
    tables: Mapping[int, JobTable]


def result_text(result: bytes, written: Written) -> str:
    """What a worker hands in: what the task of a driver would have given."""
    return json.dumps({"result": result.decode(), "written": written.to_json()})


def result_of(text: str) -> CopyResult:
    """Raises what the worker met, if that would last."""
    found = json.loads(text)
    return copy_result(found["result"].encode(), Written.from_json(found["written"]))

"""Answers that are given again where a client asks again, also by the next server."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from penstock.model.errors import ConfigError, PenstockError
from penstock.serve.api import models
from penstock.serve.state_folder import read_json, write_json

T = TypeVar("T", bound=BaseModel)

_MOST_REPLAYS = 1_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Kept:
    """``answer`` is None while the request is under way; ``here``: in this very server."""

    request: str
    answer: BaseModel | None = None
    here: bool = True


class Replays:
    """The answers to requests with an Idempotency-Key, the last thousand. A client that does not
    know whether it was heard asks again with the same key, and nothing is done twice.

    Each is a file, written before the request is carried out and again with its answer.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        for path in sorted(folder.glob("*.json"), key=_written_at):
            kept = _read(path)
            if kept is not None:
                self._kept[path.stem] = kept

    def once(self, key: tuple[str, ...], request: str, act: Callable[[], T]) -> T:
        """Raises PenstockError where the key came with another request, where the first one is
        still under way, and where nobody knows what became of it.
        """
        place = hashlib.sha256(json.dumps(key).encode()).hexdigest()
        request = hashlib.sha256(request.encode()).hexdigest()
        with self._lock:
            before = self._kept.get(place)
            if before is not None:
                return _again(before, request)  # type: ignore[return-value]
            self._keep(place, _Kept(request))
        try:
            answer = act()
        except BaseException:
            with self._lock:
                self._forget(place)
            raise
        with self._lock:
            self._keep(place, _Kept(request, answer))
        return answer

    def _keep(self, place: str, kept: _Kept) -> None:
        """Raises PenstockError where it cannot be written before anything was done."""
        value: dict[str, Any] = {"request": kept.request}
        if kept.answer is not None:
            answer = kept.answer.model_dump(mode="json")
            value |= {"model": type(kept.answer).__name__, "answer": answer}
        try:
            write_json(self._folder / f"{place}.json", value)
        except OSError as error:
            if kept.answer is None:
                raise PenstockError(
                    f"The Idempotency-Key cannot be written down: {error.strerror}.",
                    remedy=f"See that {self._folder} can be written, or send no key.",
                ) from None
            # It was done: the client gets its answer, and the next server will not know it.
            _log.error("an answer cannot be kept: %s", error, extra={"event": "replay_failed"})
        self._kept[place] = kept
        while len(self._kept) > _MOST_REPLAYS:
            self._forget(next(iter(self._kept)))

    def _forget(self, place: str) -> None:
        self._kept.pop(place, None)
        with suppress(OSError):
            (self._folder / f"{place}.json").unlink()


def _again(before: _Kept, request: str) -> BaseModel:
    if before.request != request:
        raise ConfigError(
            "The Idempotency-Key was used for another request.",
            remedy="Send another key with another request.",
        )
    if before.answer is not None:
        return before.answer
    if before.here:
        raise PenstockError(
            "The first request with this Idempotency-Key is still under way.",
            remedy="Ask again in a moment.",
        )
    raise PenstockError(
        "The server ended while it carried out the first request with this Idempotency-Key; "
        "whether it was done is not known.",
        remedy="See how things stand. Send another key if it is still to be done.",
    )


def _written_at(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _read(path: Path) -> _Kept | None:
    """None for what is not one of ours. An answer that this version does not know counts as one
    that nobody knows.
    """
    value = read_json(path)
    request = value.get("request") if isinstance(value, dict) else None
    if not isinstance(request, str):
        return None
    model = getattr(models, str(value.get("model", "")), None)
    if isinstance(model, type) and issubclass(model, BaseModel):
        with suppress(ValidationError):
            return _Kept(request, model.model_validate(value.get("answer")))
    return _Kept(request, here=False)

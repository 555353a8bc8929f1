"""Where the server keeps what has to outlive it: wanted states, logs, tokens, its signing key."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from penstock.model.errors import ConfigError

_KEY_BYTES = 32


def default_state_folder() -> Path:
    own = os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
    return Path(own, "penstock", "serve")


class StateFolder:
    """A folder that its owner alone can read."""

    def __init__(self, path: Path) -> None:
        """Makes it where it is not there. Raises ConfigError where that is impossible."""
        self.path = path
        self._lock: IO[str] | None = None
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.stat().st_mode & 0o077:
                path.chmod(0o700)
            for name in ("pipelines", "jobs", "replays"):
                (path / name).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"The server's folder {path} cannot be used: {error.strerror}.",
                remedy="Name another one with --state.",
            ) from None

    def take(self) -> None:
        """Be the only server on this folder until ``give_back``, or until the process ends.

        Raises ConfigError where another one is.
        """
        self._lock = (self.path / "serve.lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.give_back()
            raise ConfigError(
                f"Another `penstock serve` uses the folder {self.path}.",
                remedy="Stop that one, or give this one a folder of its own with --state.",
            ) from None

    def give_back(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def signing_key(self) -> bytes:
        """The key of session cookies; made once, so that sessions outlive the server."""
        path = self.path / "key"
        with suppress(FileNotFoundError):
            key = path.read_bytes()
            if len(key) == _KEY_BYTES:
                return key
        key = secrets.token_bytes(_KEY_BYTES)
        write_private(path, key)
        return key

    def pipeline_state(self, name: str) -> Path:
        return self.path / "pipelines" / f"{name}.json"

    def pipeline_log(self, name: str) -> Path:
        return self.path / "pipelines" / f"{name}.log"

    def series(self, name: str, destination: str) -> Path:
        return self.path / "pipelines" / f"{name}{destination and '.'}{destination}.series"

    @property
    def jobs(self) -> Path:
        return self.path / "jobs"

    @property
    def replays(self) -> Path:
        return self.path / "replays"

    @property
    def tokens(self) -> Path:
        return self.path / "tokens.json"

    @property
    def audit(self) -> Path:
        return self.path / "audit.log"

    @property
    def refusals(self) -> Path:
        return self.path / "refused.log"


def write_private(path: Path, data: bytes) -> None:
    """Write a file as a whole, for its owner alone: nobody ever reads half of it."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def read_json(path: Path) -> Any:
    """What the file holds; None where there is none, or where it is not JSON."""
    with suppress(OSError, ValueError):
        return json.loads(path.read_bytes())
    return None


def write_json(path: Path, value: Any) -> None:
    write_private(path, json.dumps(value, indent=1).encode())

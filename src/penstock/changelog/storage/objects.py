"""A bucket and a prefix: S3 and what speaks like it, Google Cloud Storage, Azure Blob Storage.

obstore (Rust's object_store) does the requests, in threads of its own: this process may be forked
before the first request, not after it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from penstock.changelog.storage.contract import Storage
from penstock.changelog.storage.pace import OBJECTS
from penstock.model.errors import ConfigError, LogError, LogUnavailable

if TYPE_CHECKING:
    import pyarrow as pa
    from obstore.store import ObjectStore

SCHEMES = ("s3", "gs", "az")
# A request that fails is tried again by the client for this long; then whoever asked decides.
_RETRY_SECONDS = 20
_REQUEST_SECONDS = 30
_CONFLICT_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
_PAGE = 1000
_SHOWN = 300


class ObjectStorage(Storage):
    """Objects below ``url``. ``options`` are those of obstore's store for that cloud: credentials,
    region, endpoint, encryption. Without credentials among them the cloud's own ways count.
    """

    pace = OBJECTS
    can_tear = False
    has_late_writes = True

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        self.path = url.rstrip("/")
        self._options = dict(options or {})
        scheme, _, rest = self.path.partition("://")
        bucket, _, prefix = rest.partition("/")
        self._bucket = f"{scheme}://{bucket}"
        self._prefix = f"{prefix}/" if prefix else ""

    def __repr__(self) -> str:
        return f"ObjectStorage({self.path!r})"

    def child(self, name: str) -> ObjectStorage:
        return ObjectStorage(f"{self.path}/{name}", self._options)

    def make_private(self) -> None:
        """Who may read a bucket is the bucket's own affair (docs/object_storage.md)."""

    def list(self, after: str = "", *, and_in: str = "") -> list[tuple[str, int]]:
        """One request for up to a thousand objects. They come in the order of their names: a folder
        whose name is greater than those of the files is looked at after them.
        """
        start = len(self._prefix)
        offset = f"{self._prefix}{after}" if after else None
        with self._asked("list"):
            pages = self._store.list(self._prefix or None, offset=offset, chunk_size=_PAGE)
            found = [(entry["path"][start:], entry["size"]) for page in pages for entry in page]
        folders = ("", f"{and_in}/")
        return [(name, size) for name, size in found if _folder(name) in folders]

    def read(self, name: str) -> pa.Buffer | None:
        import pyarrow as pa

        data = self._get(name)
        return None if data is None else pa.py_buffer(data)

    def read_bytes(self, name: str) -> bytes | None:
        data = self._get(name)
        return None if data is None else bytes(data)

    def _get(self, name: str) -> Any:
        with self._asked("read"):
            try:
                return self._store.get(self._key(name)).bytes()
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes | memoryview | pa.Buffer, *, durable: bool) -> None:
        """Durable in any case: what a store has taken stays."""
        with self._asked("write"):
            self._store.put(self._key(name), _view(data), use_multipart=False)

    def create(self, name: str, data: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        for pause in _CONFLICT_PAUSES:
            with self._asked("write"):
                try:
                    self._store.put(self._key(name), data, mode="create")
                    return True
                except (AlreadyExistsError, PreconditionError):
                    pass
            held = self.read_bytes(name)
            if held is not None:
                # The first answer may have been lost, and the request sent once more.
                return held == data
            # Two requests at once: S3 refuses one (409), and either may be made again.
            time.sleep(pause)
        raise LogUnavailable(
            f"{self.full(name)} cannot be created: the store speaks of a conflict, and shows none",
            remedy="Penstock tries again; if it stays so, look at the store's own log",
        )

    def delete(self, *names: str) -> None:
        if not names:
            return
        with self._asked("delete"):
            try:
                self._store.delete([self._key(name) for name in names])
            except FileNotFoundError:
                return

    def exists(self, name: str) -> bool:
        with self._asked("read"):
            try:
                self._store.head(self._key(name))
            except FileNotFoundError:
                return False
        return True

    def entries(self) -> set[str]:
        return {key[len(self._prefix) :].partition("/")[0] for key in self._keys()}

    def destroy(self) -> None:
        keys = self._keys()
        with self._asked("delete"):
            if keys:
                self._store.delete(keys)

    def _keys(self) -> Sequence[str]:
        with self._asked("list"):
            pages = self._store.list(self._prefix or None, chunk_size=_PAGE)
            return [entry["path"] for page in pages for entry in page]

    def delete_temporary(self) -> None:
        """An object is there whole or not at all."""

    def _key(self, name: str) -> str:
        return f"{self._prefix}{name}"

    @property
    def _store(self) -> ObjectStore:
        return _opened(self._bucket, tuple(sorted(self._options.items())), os.getpid())

    @contextmanager
    def _asked(self, what: str) -> Iterator[None]:
        """Turn obstore's errors into ours. None of them shows an option."""
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            raise self._error(error, f"cannot {what} the change log {self.path}") from None

    def _error(self, error: Exception, said: str) -> LogError:
        """By what it says: of a list that fails, its kind does not tell."""
        from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

        text = str(error)
        if isinstance(error, FileNotFoundError) or " 404 Not Found" in text:
            # An object that is missing is no error: what is missing here is the place itself.
            return LogError(
                f"{said}: there is no such bucket",
                remedy="check change_log.path, and make the bucket: Penstock makes none",
            )
        refused = isinstance(error, PermissionDeniedError | UnauthenticatedError)
        if refused or " 403 Forbidden" in text or " 401 Unauthorized" in text:
            return LogError(
                f"{said}: the store refuses: {_shown(error)}",
                remedy="give the pipeline's credentials the rights to list, read, write and "
                "delete below change_log.path (docs/object_storage.md)",
            )
        return LogUnavailable(
            f"{said}: {_shown(error)}",
            remedy="check that the store is there and can be reached; Penstock tries again",
        )


@lru_cache(maxsize=8)
def _opened(bucket: str, options: tuple[tuple[str, str], ...], pid: int) -> ObjectStore:
    """One client a process: connections are kept."""
    try:
        from obstore.store import from_url
    except ImportError:
        raise ConfigError(
            f"a change log in {bucket} needs the package obstore",
            remedy="install it: pip install 'penstock[objects]'",
        ) from None
    from obstore import exceptions

    given = dict(options)
    endpoint = given.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL", "")
    try:
        store: ObjectStore = from_url(
            bucket,
            config=given,  # type: ignore[call-overload]
            client_options={
                "timeout": timedelta(seconds=_REQUEST_SECONDS),
                "allow_http": endpoint.startswith("http://"),
            },
            retry_config={"retry_timeout": timedelta(seconds=_RETRY_SECONDS)},
            credential_provider=_profile(bucket, given),
        )
        return store
    except (exceptions.BaseError, ValueError) as error:
        raise ConfigError(f"change_log.options for {bucket}: {_shown(error)}") from None


def _profile(bucket: str, options: Mapping[str, str]) -> Any:
    """What reads AWS's own configuration files, where they are asked for; obstore itself knows the
    environment and the roles of machines and containers.
    """
    if not bucket.startswith("s3://") or "access_key_id" in options:
        return None
    if not os.environ.get("AWS_PROFILE") or os.environ.get("AWS_ACCESS_KEY_ID"):
        return None
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise ConfigError(
            "AWS_PROFILE is set, and profiles are read by the package boto3",
            remedy="install it: pip install boto3; or set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY instead",
        ) from None
    return Boto3CredentialProvider(boto3.Session())


def _folder(name: str) -> str:
    return name[: name.rfind("/") + 1]


def _view(data: bytes | memoryview | pa.Buffer) -> memoryview:
    return memoryview(data).cast("B")


def _shown(error: Exception) -> str:
    """The beginning of what the client says: the cause; it goes on with its own insides."""
    return " ".join(str(error).split())[:_SHOWN]

"""A bucket and a prefix, for whoever keeps something there: the change log, files, claim checks.

obstore (Rust's object_store) does the requests, in threads of its own: this process may be forked
before the first request, not after it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.model.errors import ConfigError, PenstockError

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


@dataclass(frozen=True)
class Owner:
    """Whose objects they are, for messages: ``what`` they are to people, the options of the
    pipeline file that say where, and which errors are raised.
    """

    what: str
    path_option: str
    options_option: str
    refused: type[PenstockError]
    unavailable: type[PenstockError]


class Found(NamedTuple):
    """One object of a listing. ``tag`` is another one when the object is."""

    name: str
    size: int
    tag: str


class Bucket:
    """Objects below ``url``, by names behind its prefix. ``options`` are those of obstore's store
    for that cloud: credentials, region, endpoint, encryption. Without credentials among them the
    cloud's own ways count. Cheap to make, picklable, holds nothing open.

    Raises the owner's errors: ``unavailable`` where another try may succeed, else ``refused``.
    """

    def __init__(self, url: str, options: Mapping[str, str] | None, owner: Owner) -> None:
        self.path = url.rstrip("/")
        self._options = dict(options or {})
        self._owner = owner
        scheme, _, rest = self.path.partition("://")
        bucket, _, prefix = rest.partition("/")
        self._bucket = f"{scheme}://{bucket}"
        self._prefix = f"{prefix}/" if prefix else ""

    def __repr__(self) -> str:
        return f"Bucket({self.path!r})"

    def child(self, name: str) -> Bucket:
        return Bucket(f"{self.path}/{name}", self._options, self._owner)

    def list(self, below: str = "", *, after: str = "") -> Sequence[Found]:
        """All whose names begin with the folder ``below`` (which ends in ``/``) and are greater
        than ``after``, in order; one request for up to a thousand.
        """
        start = len(self._prefix)
        offset = f"{self._prefix}{after}" if after else None
        with self._asked("list"):
            pages = self._store.list(
                f"{self._prefix}{below}" or None, offset=offset, chunk_size=_PAGE
            )
            return [
                Found(
                    each["path"][start:], each["size"], f"{each['e_tag']} {each['last_modified']}"
                )
                for page in pages
                for each in page
            ]

    def get(self, name: str) -> Any:
        """What supports the buffer protocol; None where it is missing."""
        with self._asked("read"):
            try:
                return self._store.get(self._key(name)).bytes()
            except FileNotFoundError:
                return None

    def put(self, name: str, data: bytes | memoryview | pa.Buffer) -> None:
        """Put an object in place at once and whole, replacing what was there. It stays."""
        with self._asked("write"):
            self._store.put(self._key(name), memoryview(data).cast("B"), use_multipart=False)

    def put_file(self, name: str, file: Path) -> None:
        """The same with the content of a file, in parts where it is large."""
        with self._asked("write"):
            self._store.put(self._key(name), file)

    def create(self, name: str, data: bytes) -> bool:
        """Put a new object in place; False (and no change) where the name is taken.

        One that holds exactly ``data`` may be our own: the answer to a request can be lost.
        """
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        for pause in _CONFLICT_PAUSES:
            with self._asked("write"):
                try:
                    self._store.put(self._key(name), data, mode="create")
                    return True
                except (AlreadyExistsError, PreconditionError):
                    pass
            held = self.get(name)
            if held is not None:
                # The first answer may have been lost, and the request sent once more.
                return bytes(held) == data
            # Two requests at once: S3 refuses one (409), and either may be made again.
            time.sleep(pause)
        raise self._owner.unavailable(
            f"{self.path}/{name} cannot be created: the store speaks of a conflict, and shows none",
            remedy="Penstock tries again; if it stays so, look at the store's own log",
        )

    def copy(self, name: str, target: str) -> bool:
        """Within the store; False where there is no such object."""
        with self._asked("write"):
            try:
                self._store.copy(self._key(name), self._key(target))
            except FileNotFoundError:
                return False
        return True

    def delete(self, *names: str) -> None:
        """It is no error where one is already gone. Some stores (not S3) tell of one, and what they
        did with those behind it is not said: then each is deleted by itself, in the order given.
        """
        if not names:
            return
        with self._asked("delete"):
            try:
                self._store.delete([self._key(name) for name in names])
                return
            except FileNotFoundError:
                if len(names) == 1:
                    return
        for name in names:
            self.delete(name)

    def exists(self, name: str) -> bool:
        with self._asked("read"):
            try:
                self._store.head(self._key(name))
            except FileNotFoundError:
                return False
        return True

    def size(self, name: str) -> int | None:
        """How many bytes an object has; None where it is missing."""
        with self._asked("read"):
            try:
                return int(self._store.head(self._key(name))["size"])
            except FileNotFoundError:
                return None

    def _key(self, name: str) -> str:
        return f"{self._prefix}{name}"

    @property
    def _store(self) -> ObjectStore:
        option = self._owner.options_option
        return opened(self._bucket, tuple(sorted(self._options.items())), option, os.getpid())

    @contextmanager
    def _asked(self, doing: str) -> Iterator[None]:
        """Turn obstore's errors into ours. None of them shows an option."""
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            said = f"cannot {doing} {self._owner.what} {self.path}"
            raise self._error(error, said) from None

    def _error(self, error: Exception, said: str) -> PenstockError:
        """By what it says: of a list that fails, its kind does not tell."""
        from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

        text, owner = str(error), self._owner
        if isinstance(error, FileNotFoundError) or " 404 Not Found" in text:
            # An object that is missing is no error: what is missing here is the place itself.
            return owner.refused(
                f"{said}: there is no such bucket",
                remedy=f"check {owner.path_option}, and make the bucket: Penstock makes none",
            )
        refused = isinstance(error, PermissionDeniedError | UnauthenticatedError)
        if refused or " 403 Forbidden" in text or " 401 Unauthorized" in text:
            return owner.refused(
                f"{said}: the store refuses: {_shown(error)}",
                remedy="give the pipeline's credentials the rights to list, read, write and "
                f"delete below {owner.path_option} (docs/object_storage.md)",
            )
        return owner.unavailable(
            f"{said}: {_shown(error)}",
            remedy="check that the store is there and can be reached; Penstock tries again",
        )


def is_bucket(path: str) -> bool:
    """Whether a path of the pipeline file is a place in an object store."""
    scheme, found, _ = path.partition("://")
    return bool(found) and scheme in SCHEMES


@lru_cache(maxsize=8)
def opened(bucket: str, options: tuple[tuple[str, str], ...], option: str, pid: int) -> ObjectStore:
    """One client a process: connections are kept."""
    try:
        from obstore.store import from_url
    except ImportError:
        raise ConfigError(
            f"what is kept in {bucket} needs the package obstore",
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
        raise ConfigError(f"{option} for {bucket}: {_shown(error)}") from None


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


def _shown(error: Exception) -> str:
    """The beginning of what the client says: the cause; it goes on with its own insides."""
    return " ".join(str(error).split())[:_SHOWN]

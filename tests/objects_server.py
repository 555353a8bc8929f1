"""An object store of one's own: SeaweedFS as a process, behind a proxy that counts and fails."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.loopback_server import free_ports
from tests.objects_proxy import ObjectProxy

KEY, SECRET = "penstock-tests", "penstock-tests-secret"
_PARTS = ("master", "volume", "filer", "s3")
_BUCKET = "tests"
_START_SECONDS = 60.0
_LOOK_SECONDS = 0.05
_RIGHTS = ["Admin", "Read", "Write", "List", "Tagging"]


class ObjectServer:
    """On free ports of 127.0.0.1. Inside ``with`` it runs; afterwards it is gone, with its data."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-weed-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._proxy: ObjectProxy | None = None
        self._master, self._volume, self._filer, self._s3, *self._grpc = free_ports(8)

    @property
    def proxy(self) -> ObjectProxy:
        assert self._proxy is not None
        return self._proxy

    @property
    def options(self) -> dict[str, str]:
        """Those that lead here, through the proxy."""
        return {**self.direct_options, "endpoint": f"http://127.0.0.1:{self.proxy.port}"}

    @property
    def direct_options(self) -> dict[str, str]:
        """Those that lead past it."""
        return {
            "endpoint": f"http://127.0.0.1:{self._s3}",
            "access_key_id": KEY,
            "secret_access_key": SECRET,
            "region": "eu-central-1",
        }

    def place(self) -> str:
        """A new one, as a URL. In one bucket: each has volumes of its own, and these are few."""
        return f"s3://{_BUCKET}/{uuid.uuid4().hex[:12]}"

    def everything(self) -> dict[str, bytes]:
        """The content of all objects, by their names."""
        with closing(self._client()) as client:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=_BUCKET)
            names = [each["Key"] for page in pages for each in page.get("Contents", [])]
            found = {}
            for name in names:
                with suppress(client.exceptions.NoSuchKey):  # removed meanwhile
                    found[name] = client.get_object(Bucket=_BUCKET, Key=name)["Body"].read()
            return found

    def _make_bucket(self) -> None:
        with closing(self._client()) as client:
            with suppress(client.exceptions.BucketAlreadyOwnedByYou):
                client.create_bucket(Bucket=_BUCKET)
            client.put_object(Bucket=_BUCKET, Key="ready", Body=b"yes")

    def _client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self._s3}",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="eu-central-1",
            config=Config(retries={"total_max_attempts": 1}),
        )

    def start(self) -> None:
        """Start it, or start it again after ``kill``: its objects are there again."""
        rights = self._folder / "s3.json"
        credentials = [{"accessKey": KEY, "secretKey": SECRET}]
        identity = {"name": "tests", "credentials": credentials, "actions": _RIGHTS}
        rights.write_text(json.dumps({"identities": [identity]}))
        data = self._folder / "data"
        data.mkdir(exist_ok=True)
        self._log = (self._folder / "log.txt").open("ab")
        self._process = subprocess.Popen(
            [
                *(str(Path(sys.executable).with_name("weed")), f"-logdir={self._folder}", "server"),
                *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={data}"),
                *(f"-master.port={self._master}", f"-volume.port={self._volume}"),
                *("-filer", f"-filer.port={self._filer}"),
                *("-s3", f"-s3.port={self._s3}", f"-s3.config={rights}"),
                # Else those 10,000 above: the system gives such ones to clients.
                *(
                    f"-{part}.port.grpc={port}"
                    for part, port in zip(_PARTS, self._grpc, strict=True)
                ),
                *("-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"),
                # A bench at full scale writes some 300 MB a round.
                *("-master.volumeSizeLimitMB=64", "-volume.max=200"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        deadline = time.monotonic() + _START_SECONDS
        while (why := self._why_not()) is not None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = (self._folder / "log.txt").read_text(errors="replace")[-3000:]
                raise RuntimeError(f"SeaweedFS did not start: {why}; its log ends with:\n{tail}")
            time.sleep(_LOOK_SECONDS)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._log is not None:
            self._log.close()

    def close(self) -> None:
        if self._proxy is not None:
            self._proxy.close()
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
            self._proxy = ObjectProxy(self._s3)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _why_not(self) -> Exception | None:
        """What keeps it from working; None once all of its parts work together."""
        try:
            self._make_bucket()
        except (BotoCoreError, ClientError) as error:
            why: Exception = error
            return why
        return None

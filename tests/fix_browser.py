"""A real Chromium, and `penstock serve` as a process that it looks at."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.debian import unpacked
from tests.fix_pipeline import wait_until

if TYPE_CHECKING:
    # Loaded by those alone who ask for a browser.
    from playwright.sync_api import Browser, Page

_CACHE = Path(__file__).resolve().parents[1] / ".cache"
SCREENSHOTS = _CACHE / "screenshots"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Without fonts of any kind it shows no text.
_PACKAGES = ("chromium", "fonts-liberation")


def _chromium() -> tuple[str, dict[str, str | float | bool]]:
    """The one that is installed; else Debian's, unpacked below .cache and installed nowhere. And
    the environment that it needs.
    """
    installed = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if installed is not None:
        return installed, dict(os.environ)
    root = unpacked("Chromium", _PACKAGES, _CACHE / "chromium", with_needed=True)
    libraries = {str(path.parent) for path in (root / "usr" / "lib").rglob("*.so*")}
    shown = {
        "LD_LIBRARY_PATH": ":".join(sorted(libraries)),
        # Fonts and types of files that it brings, before those of the machine.
        "XDG_DATA_DIRS": f"{root / 'usr' / 'share'}:/usr/local/share:/usr/share",
    }
    return str(root / "usr" / "lib" / "chromium" / "chromium"), {**os.environ, **shown}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """It goes with its module: as long as Playwright's event loop runs, no other test can have one
    of its own.
    """
    from playwright.sync_api import sync_playwright

    path, environment = _chromium()
    with sync_playwright() as playwright:
        # Without the sandbox: tests run as root in containers, which have little shared memory.
        made = playwright.chromium.launch(
            executable_path=path,
            env=environment,
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
        )
        yield made
        made.close()


class ServeProcess:
    """`penstock serve`; what it prints goes to files."""

    def __init__(self, state: Path, port: int, *words: str) -> None:
        state.mkdir(parents=True, exist_ok=True)
        self._out, self._err = state / "serve.out", state / "serve.err"
        command = [sys.executable, "-m", "penstock", "serve", *words]
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [*command, "--port", str(port), "--state", str(state)], stdout=out, stderr=err
            )
        found = wait_until(self._printed, "the server prints its address")
        assert found is not None
        self.url = found[1]
        self.base = self.url.partition("/signin")[0]

    def _printed(self) -> re.Match[str] | None:
        assert self.process.poll() is None, self._err.read_text()
        return re.search(r"Open (\S+)", self._out.read_text())

    @property
    def errors(self) -> str:
        return self._err.read_text()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)


class Serve(Protocol):
    def __call__(self, *words: str, port: int = 0) -> ServeProcess: ...


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts servers, all on one folder; they are gone after the test."""
    started: list[ServeProcess] = []

    def start(*words: str, port: int = 0) -> ServeProcess:
        started.append(ServeProcess(tmp_path / "served", port, *words))
        return started[-1]

    yield start
    for process in started:
        process.stop()


class Watched:
    """A page, and what went wrong on it."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.troubles: list[str] = []
        self.foreign: list[str] = []
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("console", lambda said: self._said(said.type, said.text))
        page.on("request", lambda request: self._asked(request.url))

    def _said(self, kind: str, text: str) -> None:
        if kind == "error" and "WebSocket" not in text and "Failed to load resource" not in text:
            self.troubles.append(text)

    def _asked(self, url: str) -> None:
        if not url.startswith((self.base, "data:", "blob:", self.base.replace("http", "ws", 1))):
            self.foreign.append(url)

    def expect_clean(self) -> None:
        assert self.troubles == []
        assert self.foreign == []

    def shot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[[ServeProcess], Watched]]:
    """Opens the printed address of a server in a new window."""
    opened = []

    def open_page(server: ServeProcess) -> Watched:
        context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
        opened.append(context)
        watched = Watched(context.new_page(), server.base)
        watched.page.set_default_timeout(60_000)
        watched.page.goto(server.url)
        return watched

    yield open_page
    for context in opened:
        context.close()

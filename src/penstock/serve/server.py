"""The server: its parts are made here, and nowhere else."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI

from penstock.config.metrics_config import ListenAddress
from penstock.model.errors import ConfigError
from penstock.serve.api.application import make_application
from penstock.serve.options import ServeOptions
from penstock.serve.safety.guard import Guard, Trusted
from penstock.serve.safety.origins import Origins, is_loopback
from penstock.serve.safety.sessions import OneTimeToken, Sessions
from penstock.serve.safety.tokens import Tokens
from penstock.serve.service import Service
from penstock.serve.state_folder import StateFolder

_SHUTDOWN_SECONDS = 3
_MOST_CONNECTIONS = 1_000
_WAITING_CONNECTIONS = 128
_MOST_MESSAGE = 2**20

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """``url`` is what a person opens; on loopback it signs one browser in."""

    service: Service
    application: FastAPI
    guard: Guard
    url: str


def make_parts(options: ServeOptions, port: int) -> Parts:
    """All but the socket. Raises ConfigError where the options are not safe, or do not work."""
    folder = StateFolder(options.state)
    folder.take()
    tokens = Tokens(folder.tokens)
    options.require_safe(has_tokens=bool(tokens.all()))
    service = Service(options.places, folder, starts=options.starts)
    application = make_application(service)
    # What others could reach is opened by tokens alone: the printed address may end in a log.
    one_time = OneTimeToken() if is_loopback(options.host) and not options.proxies else None
    origins = Origins.of(options.host, port, tls=options.tls, names=options.names)
    encrypted = options.tls or bool(options.proxies)
    trust = Trusted(
        origins.behind_proxy() if options.proxies else origins,
        tokens,
        Sessions(folder.signing_key()),
        one_time,
        # Cookies are not told apart by port: two servers on one machine would share theirs.
        cookie=f"penstock_{port}",
        secure_cookie=encrypted,
        proxies=options.proxies,
        proxy_header=options.proxy_header,
        proxy_role=options.proxy_role,
    )
    guard = Guard(application, trust, service.audit)
    if options.page:
        from penstock.serve.page.pages import install_pages

        install_pages(application, service, guard.still_valid)
    scheme = "https" if encrypted else "http"
    place = options.names[0] if options.names else str(ListenAddress(options.host, port))
    path = f"signin?token={one_time.text}" if one_time is not None else "signin"
    return Parts(service, application, guard, f"{scheme}://{place}/{path}")


def listen(options: ServeOptions) -> socket.socket:
    """Raises ConfigError where the address cannot be had."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((options.host, options.port))
        # From now on who comes waits, and is not refused: the address is told before it is served.
        made.listen(_WAITING_CONNECTIONS)
    except OSError as error:
        made.close()
        raise ConfigError(
            f"{ListenAddress(options.host, options.port)} cannot be listened on: {error.strerror}.",
            remedy="Choose another port with --port; 0 takes one that is free.",
        ) from None
    return made


def make_server(options: ServeOptions, parts: Parts) -> uvicorn.Server:
    config = uvicorn.Config(
        parts.guard,
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        ws_max_size=_MOST_MESSAGE,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )
    return uvicorn.Server(config)


def serve(options: ServeOptions, ready: Callable[[Parts], None]) -> None:
    """Answer until SIGINT or SIGTERM. ``ready`` is called once it listens. Pipelines go on."""
    with listen(options) as made:
        parts = make_parts(options, made.getsockname()[1])
        parts.service.start()
        try:
            ready(parts)
            make_server(options, parts).run(sockets=[made])
        finally:
            parts.service.stop()

"""`penstock serve` and `penstock tokens`: the API and the page, and who may use them."""

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.logs import shown_logs
from penstock.cli.terminal import say

if TYPE_CHECKING:
    from penstock.serve.safety.tokens import Tokens

_log = logging.getLogger(__name__)

tokens_app = typer.Typer(
    no_args_is_help=True, help="Make, list and revoke tokens for `penstock serve`."
)


class RoleName(StrEnum):
    """What a token allows: to look, or to change something, too."""

    read = "read"
    operate = "operate"


State = Annotated[
    Path | None,
    typer.Option("--state", help="The server's folder; by default in ~/.local/state/penstock."),
]


def serve(
    places: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|FOLDER...", help="Pipeline files, or folders of them."),
    ],
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0 takes one that is free.")
    ] = 8720,
    state: State = None,
    no_start: Annotated[
        bool,
        typer.Option("--no-start", help="Leave pipelines stopped until somebody starts them."),
    ] = False,
    no_page: Annotated[bool, typer.Option("--no-page", help="The API alone.")] = False,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", help="The certificate chain, as PEM.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its key, as PEM.")] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="A name that the server is known by; may be repeated."),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--proxy", help="The address of a proxy in front, which ends TLS; may be repeated."
        ),
    ] = None,
    proxy_user: Annotated[
        str, typer.Option("--proxy-user", help="The header in which the proxy names the user.")
    ] = "",
    proxy_role: Annotated[
        RoleName, typer.Option("--proxy-role", help="What users of the proxy may do.")
    ] = RoleName.read,
) -> None:
    """Run pipelines, and show and steer them on a web page and by an HTTP API.

    Each pipeline is a process of its own, which is started again when it fails. Pipelines that run
    already are adopted. When this command ends or is killed, they go on; started again, it finds
    them.

    On loopback, the printed address signs one browser in. Elsewhere it takes tokens (`penstock
    tokens create`), and TLS or a proxy that ends it.

    \b
    Example:
      penstock serve shop.yaml
      penstock serve /etc/penstock --no-start
      penstock serve /etc/penstock --host 0.0.0.0 --tls-cert chain.pem --tls-key key.pem \\
        --allow-host penstock.example.org
    """
    require_packages(page=not no_page)
    from penstock.serve.options import ServeOptions
    from penstock.serve.server import Parts
    from penstock.serve.server import serve as run_server
    from penstock.serve.state_folder import default_state_folder

    options = ServeOptions(
        places=tuple(places),
        state=state or default_state_folder(),
        host=host,
        port=port,
        certificate=tls_cert,
        key=tls_key,
        names=tuple(allow_host or ()),
        proxies=frozenset(proxy or ()),
        proxy_header=proxy_user,
        proxy_role=proxy_role.value,
        starts=not no_start,
        page=not no_page,
    )

    def ready(parts: Parts) -> None:
        count = len(parts.service.catalogue.all())
        _log.info("serving %s pipelines", count, extra={"event": "serving", "pipelines": count})
        once = "it works once; tokens: " if "token=" in parts.url else "with a token of "
        say(f"Open {parts.url} ({once}penstock tokens create)")

    with shown_logs("serve"):
        run_server(options, ready)


@tokens_app.command("create")
def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Whose it is; the audit log says it.")
    ],
    role: Annotated[
        RoleName, typer.Option("--role", help="read: look. operate: change something, too.")
    ] = RoleName.read,
    state: State = None,
) -> None:
    """Make a token and print it. It is shown this once; the server keeps a hash alone.

    \b
    Example:
      penstock tokens create grafana
      penstock tokens create alice --role operate
    """
    say(_tokens(state).create(name, role.value))


@tokens_app.command("list")
def list_command(state: State = None) -> None:
    """Show whose tokens there are, and what they allow.

    \b
    Example:
      penstock tokens list
    """
    tokens = _tokens(state).all()
    for token in tokens:
        say(f"{token.id}  {token.role:<7}  {token.name}  made {token.created_at}")
    if not tokens:
        say("There are none.")


@tokens_app.command("revoke")
def revoke(
    token: Annotated[str, typer.Argument(metavar="ID", help="As `tokens list` shows it.")],
    state: State = None,
) -> None:
    """Take a token back. Who signed in with it is out at once.

    \b
    Example:
      penstock tokens revoke 1f2e3d4c5b6a
    """
    from penstock.model.errors import ConfigError

    gone = _tokens(state).revoke(token)
    if gone is None:
        raise ConfigError(
            f"There is no token {token}.", remedy="`penstock tokens list` shows all of them."
        )
    say(f"Revoked the token of {gone.name}.")


def _tokens(state: Path | None) -> Tokens:
    from penstock.serve.safety.tokens import Tokens
    from penstock.serve.state_folder import StateFolder, default_state_folder

    return Tokens(StateFolder(state or default_state_folder()).tokens)


def require_packages(*, page: bool) -> None:
    """Raises ConfigError where the extra is not installed."""
    from importlib.util import find_spec

    from penstock.model.errors import ConfigError

    needed = ("fastapi", "uvicorn", *(("nicegui",) if page else ()))
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"`penstock serve` needs packages that are not installed: {', '.join(missing)}.",
            remedy="pip install 'penstock[serve]'",
        )

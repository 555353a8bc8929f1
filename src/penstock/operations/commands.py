"""Every command that there is, and where the API has it. A test holds both sides to this table."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.operations.table_actions import TABLE_ACTIONS

_PIPELINE = "/v1/pipelines/{pipeline}"


@dataclass(frozen=True)
class Command:
    """``line`` is what is written on the command line, ``request`` what is sent; where the API has
    no such request, ``why_not`` says why.
    """

    line: str
    request: str = ""
    why_not: str = ""


COMMANDS = (
    Command("check", f"POST {_PIPELINE}/jobs"),
    Command("init", f"POST {_PIPELINE}/jobs"),
    Command("run", f"POST {_PIPELINE}/start"),
    Command("snapshot", f"POST {_PIPELINE}/jobs"),
    Command("capture", why_not="It is a part of `run`, for a machine beside the database."),
    Command("copy", why_not="It is a part of `run`, for machines that only copy."),
    Command("status", f"GET {_PIPELINE}"),
    Command("verify", f"POST {_PIPELINE}/jobs"),
    Command("tables list", f"GET {_PIPELINE}/tables"),
    *(Command(f"tables {action}", f"POST {_PIPELINE}/tables/{action}") for action in TABLE_ACTIONS),
    Command("schema history", f"GET {_PIPELINE}/schema-history"),
    Command("dead-letters list", f"GET {_PIPELINE}/dead-letters"),
    Command("dead-letters show", f"GET {_PIPELINE}/dead-letters/{{letter}}"),
    Command("dead-letters retry", f"POST {_PIPELINE}/dead-letters/retry"),
    Command("dead-letters discard", f"POST {_PIPELINE}/dead-letters/discard"),
    Command("transform check", f"GET {_PIPELINE}/transform/check"),
    Command("transform accept", f"POST {_PIPELINE}/transform/accept"),
    *(
        Command(f"transform {action}", why_not="It reads and shows values of rows as they are.")
        for action in ("preview", "suggest", "reveal")
    ),
    Command("webhooks list", f"GET {_PIPELINE}/webhooks"),
    *(
        Command(f"webhooks {action}", f"POST {_PIPELINE}/webhooks/{action}")
        for action in ("pause", "resume", "test", "remove")
    ),
    *(
        Command(f"webhooks {action}", why_not="It tells a secret, which no answer here does.")
        for action in ("add", "rotate", "key")
    ),
    Command("webhooks serve", why_not="It is a part of `run`, for a machine that only delivers."),
    Command("log inspect", why_not="It prints rows, which nobody sees who may see the state."),
    Command("destroy", f"POST {_PIPELINE}/jobs"),
    Command("pack", why_not="It makes a file for Spark; no pipeline is involved."),
    Command("serve", why_not="It is the server."),
    Command("tokens create", why_not="Who may use the API is not for the API to say."),
    Command("tokens list", why_not="Who may use the API is not for the API to say."),
    Command("tokens revoke", why_not="Who may use the API is not for the API to say."),
    Command("demo", why_not="It brings databases of its own."),
)

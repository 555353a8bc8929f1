"""Every command that there is, and where the API and the page have it. Tests hold all sides to this
table.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.operations.table_actions import TABLE_ACTIONS

_PIPELINE = "/v1/pipelines/{pipeline}"


@dataclass(frozen=True)
class Command:
    """``line`` is what is written on the command line, ``request`` what is sent, ``page`` a tab of
    the page and what is seen or pressed there. Where API and page have no such thing, ``why_not``
    says why.
    """

    line: str
    request: str = ""
    page: tuple[str, str] = ("", "")
    why_not: str = ""


_TABLE_BUTTONS = {
    "add": "Add table",
    "remove": "Remove",
    "resync": "Copy anew",
    "pause": "Pause",
    "resume": "Resume",
    "cancel": "Cancel copy",
    "retry": "Retry",
    "rollback": "Roll back",
}
_RECEIVER_BUTTONS = {
    "pause": "Pause",
    "resume": "Resume",
    "test": "Send a test",
    "remove": "Remove",
}

COMMANDS = (
    Command("check", f"POST {_PIPELINE}/jobs", ("checks", "Check now")),
    Command("init", f"POST {_PIPELINE}/jobs", ("operations", "Prepare the source")),
    Command("run", f"POST {_PIPELINE}/start", ("tables", "Start")),
    Command("snapshot", f"POST {_PIPELINE}/jobs", ("operations", "Copy without following")),
    Command("capture", why_not="It is a part of `run`, for a machine beside the database."),
    Command("copy", why_not="It is a part of `run`, for machines that only copy."),
    Command("status", f"GET {_PIPELINE}", ("tables", "Flow of rows")),
    Command("verify", f"POST {_PIPELINE}/jobs", ("verify", "Verify now")),
    Command("tables list", f"GET {_PIPELINE}/tables", ("tables", "Search tables")),
    *(
        Command(
            f"tables {action}",
            f"POST {_PIPELINE}/tables/{action}",
            ("tables", _TABLE_BUTTONS[action]),
        )
        for action in TABLE_ACTIONS
    ),
    Command("schema history", f"GET {_PIPELINE}/schema-history", ("schema", "Search tables")),
    Command("dead-letters list", f"GET {_PIPELINE}/dead-letters", ("dead-letters", "Look again")),
    Command(
        "dead-letters show",
        f"GET {_PIPELINE}/dead-letters/{{letter}}",
        ("dead-letters", "Look again"),
    ),
    Command(
        "dead-letters retry",
        f"POST {_PIPELINE}/dead-letters/retry",
        ("dead-letters", "Copy their tables anew"),
    ),
    Command(
        "dead-letters discard",
        f"POST {_PIPELINE}/dead-letters/discard",
        ("dead-letters", "Discard"),
    ),
    Command("transform check", f"GET {_PIPELINE}/transform/check", ("transform", "Check rules")),
    Command(
        "transform accept", f"POST {_PIPELINE}/transform/accept", ("transform", "Accept rules")
    ),
    *(
        Command(f"transform {action}", why_not="It reads and shows values of rows as they are.")
        for action in ("preview", "suggest", "reveal")
    ),
    Command("webhooks list", f"GET {_PIPELINE}/webhooks", ("webhooks", "Receiver")),
    *(
        Command(
            f"webhooks {action}",
            f"POST {_PIPELINE}/webhooks/{action}",
            ("webhooks", _RECEIVER_BUTTONS[action]),
        )
        for action in _RECEIVER_BUTTONS
    ),
    *(
        Command(f"webhooks {action}", why_not="It tells a secret, which no answer here does.")
        for action in ("add", "rotate", "key")
    ),
    Command("webhooks serve", why_not="It is a part of `run`, for a machine that only delivers."),
    Command("log inspect", why_not="It prints rows, which nobody sees who may see the state."),
    Command("destroy", f"POST {_PIPELINE}/jobs", ("configuration", "Destroy the pipeline")),
    Command("pack", why_not="It makes a file for Spark; no pipeline is involved."),
    Command("serve", why_not="It is the server."),
    Command("tokens create", why_not="Who may use the API is not for the API to say."),
    Command("tokens list", why_not="Who may use the API is not for the API to say."),
    Command("tokens revoke", why_not="Who may use the API is not for the API to say."),
    Command("demo", why_not="It brings databases of its own."),
)

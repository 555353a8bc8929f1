"""The API in words of OpenAPI."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from penstock.destination.webhooks.subscription import NewSubscription

_ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}


def description() -> dict[str, Any]:
    """The document that /openapi.json gives."""
    wanted = NewSubscription.model_json_schema(ref_template="#/components/schemas/{model}")
    one = "/v1/subscriptions/{id}"
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock webhooks", "version": version("penstock")},
        "security": [{"token": []}],
        "paths": {
            "/v1/subscriptions": {
                "get": _operation("All subscriptions", "200"),
                "post": _operation("Subscribe", "201", body="NewSubscription"),
            },
            one: {
                "parameters": [_ID],
                "get": _operation("One subscription", "200"),
                "delete": _operation("Remove it", "204"),
            },
            f"{one}/pause": {
                "parameters": [_ID],
                "post": _operation("Send nothing until it is resumed; its backlog is kept", "200"),
            },
            f"{one}/resume": {
                "parameters": [_ID],
                "post": _operation("Go on where it stood", "200", body="Resume"),
            },
            f"{one}/test": {
                "parameters": [_ID],
                "post": _operation("Send an event that says nothing", "200"),
            },
            f"{one}/rotate": {
                "parameters": [_ID],
                "post": _operation("Give it a new secret", "200", body="Rotate"),
            },
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "NewSubscription": wanted,
                "Resume": _object({"skip": {"type": "boolean", "default": False}}),
                "Rotate": _object(
                    {
                        "secret": {"type": "string"},
                        "keep_seconds": {"type": "number", "minimum": 0, "default": 86400},
                    }
                ),
                "Error": _object({"error": {"type": "string"}, "remedy": {"type": "string"}}),
            },
        },
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _operation(summary: str, status: str, body: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {
        "summary": summary,
        "responses": {
            status: {"description": "done"},
            "default": {
                "description": "it was not done",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if body:
        made["requestBody"] = {
            "required": body == "NewSubscription",
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{body}"}}},
        }
    return made

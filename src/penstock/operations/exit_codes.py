"""What `penstock` ends with where it fails. Scripts and `penstock serve` tell failures by it."""

from __future__ import annotations

from penstock.model.errors import ConfigError

EXIT_FAILED = 1
EXIT_CONFIG = 2
"""The file is wrong: another try would not help."""


def exit_code_of(error: Exception) -> int:
    return EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_FAILED

"""Which options may hold secrets, where nothing but their names can tell."""

from __future__ import annotations

import re

# Of options without a type of their own (a client library's), the name has to tell.
SECRET_NAME = re.compile(
    r"pass|secret|token|credential|private|auth|jaas|sasl|signature|api.?key|access.?key|\bkey\b",
    re.IGNORECASE,
)

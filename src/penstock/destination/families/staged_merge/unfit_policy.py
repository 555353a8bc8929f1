"""What becomes of a value that a type of the destination cannot hold. Read without Arrow."""

from typing import Literal

Unfit = Literal["refuse", "null", "truncate"]
"""refuse: its table waits for a person. null, truncate: it becomes null, or the nearest value where
there is one; counted.
"""

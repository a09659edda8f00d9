"""The base of every record that travels between tasks."""

import hashlib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen JSON-sized record; unknown fields are refused.

    Module paths of subclasses are part of the storage format (Prefect writes them beside each result): keep them
    stable, and raise ``schema_version`` when a field changes its meaning.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1


def digest_of(*parts: Any) -> str:
    """Return a 20-hex-digit SHA-256 digest of records and plain values, in order.

    Args:
        parts: records (digested through their canonical JSON) or values with a stable ``str``.
    """
    running = hashlib.sha256()
    for part in parts:
        text = part.model_dump_json() if isinstance(part, BaseModel) else str(part)
        running.update(len(text).to_bytes(8, "big"))
        running.update(text.encode())
    return running.hexdigest()[:20]

"""What every store can do, without Prefect: child processes read media through this and start in a blink.

A store is addressed by URI. Results are written under a root; media are read from anywhere the credentials reach.
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class ObjectStat(BaseModel):
    """One object, as its store describes it now."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uri: str
    etag: str
    version_id: str | None = None
    size_bytes: int
    last_modified_ns: int


class StoreAccess(Protocol):
    """One store. Client errors come out as records/errors.py classes, with the URI's media pseudonym or key only.

    Errors: ``MediaNotFound`` (no such object), ``ConfigurationError`` (missing bucket, wrong credentials, wrong
    endpoint), ``StoreUnavailable`` (no answer, 5xx, connection lost), ``MediaChanged`` (a pinned object changed).
    """

    root_uri: str

    def uri_of(self, key: str) -> str:
        """Return the URI of a key under the root; keys never leave it (no ``..``, no leading ``/``)."""
        ...

    def stat(self, uri: str) -> ObjectStat:
        """Return what stands at ``uri`` now."""
        ...

    def exists(self, uri: str) -> bool:
        """Tell whether an object stands at ``uri``."""
        ...

    def open_pinned(self, stat: ObjectStat, *, block_bytes: int = 1 << 20) -> io.RawIOBase:
        """Open exactly the pinned version for seekable ranged reads in bounded memory.

        Every response's entity tag is compared with the pinned one; a difference raises ``MediaChanged`` from
        ``read``, which also happens when the object disappears.
        """
        ...

    def read_bytes(self, uri: str, *, max_bytes: int = 64 << 20) -> bytes:
        """Read a whole small object; larger than ``max_bytes`` raises ``BudgetExceeded``."""
        ...

    def write_bytes(self, key: str, data: bytes, *, content_type: str = "application/octet-stream") -> str:
        """Write an object atomically (complete or absent) and return its URI."""
        ...

    def write_file(self, key: str, path: Path, *, content_type: str = "application/octet-stream") -> str:
        """Write a local file in parts, atomically, in bounded memory, and return its URI."""
        ...

    def list_objects(self, prefix: str) -> Iterator[ObjectStat]:
        """List objects under a key prefix in key order, page by page."""
        ...

    def delete(self, uri: str) -> None:
        """Delete an object; an absent one is no error."""
        ...


class LocalConfig(BaseModel):
    """Where a local store lies."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["local"] = "local"
    root: str


class S3Config(BaseModel):
    """How an S3-compatible store is reached."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["s3"] = "s3"
    bucket: str
    prefix: str = ""
    endpoint_url: str | None = None
    region: str = "us-east-1"
    access_key_id: str | None = None
    secret_access_key: SecretStr | None = None
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 60.0
    max_attempts: int = Field(default=4, ge=1, le=20)


AccessConfig = Annotated[LocalConfig | S3Config, Field(discriminator="kind")]

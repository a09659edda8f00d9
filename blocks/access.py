"""What every store can do, without Prefect: child processes read media through this and start in a blink.

A store is addressed by URI. Results are written under a root; media are read from anywhere the credentials reach.
"""

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter

from tasks.records.errors import ConfigurationError

S3_STORE_SLUG = "scopeflow-s3-store"
LOCAL_STORE_SLUG = "scopeflow-local-store"
"""What Prefect calls our kinds of store block; ``slug/name`` names a saved one."""

HIDDEN_PREFIX = ".scopeflow-tmp-"
"""Names of half-written local files start with this; no key may."""

MAX_KEY_BYTES = 1024
MAX_SEGMENT_BYTES = 255


class ObjectStat(BaseModel):
    """One object, as its store describes it now."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uri: str
    etag: str
    version_id: str | None = Field(default=None, description="Only where the bucket keeps versions")
    size_bytes: int = Field(ge=0)
    last_modified_ns: int = Field(description="S3 tells whole seconds; 0 means unknown and is never compared")


class StoreAccess(Protocol):
    """One store. Client errors come out as records/errors.py classes whose messages carry ``label_of(uri)`` only.

    Errors: ``MediaNotFound`` (no such object), ``UnsupportedMedia`` (a folder, a pipe), ``ConfigurationError`` (missing
    bucket, wrong credentials, wrong endpoint, a key that cannot be written), ``StoreUnavailable`` (no answer, 5xx,
    connection lost, disk full), ``MediaChanged`` (a pinned object changed).
    """

    root_uri: str

    @property
    def config(self) -> "AccessConfig":
        """How this store is reached; what a child needs to open it too."""
        ...

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

        Every response's entity tag, size and time are compared with the pinned ones; a difference raises
        ``MediaChanged`` from ``open_pinned`` or from ``read``, which also happens when the object disappears. Where
        the bucket keeps versions the pinned version stays readable after an overwrite. ``read(n)`` returns n bytes
        unless the object ends. Not to be shared between threads.
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
        """List objects whose key starts with ``prefix`` in byte order of the keys, page by page.

        Folder markers and half-written files are left out; ``version_id`` is not told here.
        """
        ...

    def delete(self, uri: str) -> None:
        """Delete an object under the root; an absent one is no error, one outside is a ``ConfigurationError``."""
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
    read_timeout_s: float = 30.0
    # Tasks try again too, so a store that accepts and never answers costs minutes, not a quarter of an hour.
    max_attempts: int = Field(default=2, ge=1, le=20)


AccessConfig = Annotated[LocalConfig | S3Config, Field(discriminator="kind")]
"""Either kind; ``kind`` tells them apart."""


def revealed(config: AccessConfig) -> dict[str, Any]:
    """Return a configuration as JSON values with its secret in clear, for a child's standard input, never for a log."""
    data = config.model_dump(mode="json")
    if isinstance(config, S3Config) and config.secret_access_key is not None:
        data["secret_access_key"] = config.secret_access_key.get_secret_value()
    return data


def config_from(data: dict[str, Any]) -> AccessConfig:
    """Rebuild a configuration from the values of ``revealed``."""
    config: AccessConfig = TypeAdapter(AccessConfig).validate_python(data)
    return config


def label_of(uri: str) -> str:
    """Return a name for messages and logs that carries no key and no path, which may hold a patient's name.

    The form is ``s3://bucket/…(3fa2c1d0)`` or ``file://…(3fa2c1d0)``; the digits are a digest of what is left out.
    """
    scheme, found, rest = uri.partition("://")
    if not found:
        scheme, rest = "file", uri
    bucket, _, key = rest.partition("/") if scheme == "s3" else ("", "", rest)
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{scheme}://{bucket}{'/' if bucket else ''}…({digest})"


def split_s3_uri(uri: str) -> tuple[str, str]:
    """Return bucket and raw key of an ``s3://`` URI; anything else is a ``ConfigurationError``."""
    bucket, found, key = uri.removeprefix("s3://").partition("/")
    if not uri.startswith("s3://") or not bucket or not found or not key:
        raise ConfigurationError(f"{label_of(uri)}: an S3 address has the form s3://bucket/key")
    return bucket, key


def check_key(key: str, *, prefix: str = "") -> str:
    """Return ``key`` if every store can hold it under ``prefix``.

    Errors: ``ConfigurationError`` naming the rule that the key breaks; the key itself is not repeated.
    """
    fault = _key_fault(key, prefix)
    if fault:
        raise ConfigurationError(f"A key of {len(key)} characters cannot be written: {fault}")
    return key


def _key_fault(key: str, prefix: str) -> str | None:
    try:
        total = len(key.encode()) + (len(prefix.encode()) + 1 if prefix else 0)
    except UnicodeEncodeError:
        return "it is not valid Unicode text"
    segments = key.split("/")
    if not key:
        return "it is empty"
    if "" in segments:
        return "it starts or ends with '/' or has an empty segment"
    if "." in segments or ".." in segments:
        return "it has a '.' or '..' segment"
    if any(ord(character) < 32 or ord(character) == 127 for character in key):
        return "it has a control character"
    if any(segment.startswith(HIDDEN_PREFIX) for segment in segments):
        return f"a segment starts with {HIDDEN_PREFIX!r}"
    if total > MAX_KEY_BYTES:
        return f"with its prefix it takes {total} bytes of at most {MAX_KEY_BYTES}"
    if any(len(segment.encode()) > MAX_SEGMENT_BYTES for segment in segments):
        return f"a segment takes more than {MAX_SEGMENT_BYTES} bytes"
    return None

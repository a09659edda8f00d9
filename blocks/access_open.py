"""From a configuration or an address to the store that serves it."""

import os
import re
from functools import lru_cache

from blocks.access import AccessConfig, LocalConfig, S3Config, StoreAccess, label_of, split_s3_uri
from blocks.access_local import LocalAccess, file_uri, path_of
from tasks.records.errors import ConfigurationError, UnsupportedMedia

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HALF_SCHEME = re.compile(r"(s3|https?|file):(?!//)", re.IGNORECASE)


def open_access(config: AccessConfig) -> StoreAccess:
    """Return the store that ``config`` describes; nothing is sent before its first use.

    Equal configurations share one store, and so its connections, as long as the AWS_* environment stays the same: to
    make an S3 client takes a third of a second.
    """
    environment = frozenset(item for item in os.environ.items() if item[0].startswith("AWS_"))
    return _opened(config, environment)


@lru_cache(maxsize=16)
def _opened(config: AccessConfig, environment: frozenset[tuple[str, str]]) -> StoreAccess:
    if isinstance(config, S3Config):
        from blocks.access_s3 import S3Access

        return S3Access(config)
    return LocalAccess(config)


def access_for(uri: str, results: StoreAccess) -> StoreAccess:
    """Return the store through which the medium at ``uri`` is read.

    Args:
        uri: as ``normalise_uri`` returns it. An ``s3://`` URI is read with the credentials of ``results``, or with
            those of the environment (AWS_* and AWS_ENDPOINT_URL) where results are local.
        results: the store of the run; returned itself where it reaches ``uri``.
    """
    if uri.startswith("s3://"):
        if results.root_uri.startswith("s3://"):
            return results
        bucket, _ = split_s3_uri(uri)
        return open_access(S3Config(bucket=bucket, region=region_of_environment()))
    path_of(uri)
    return results if results.root_uri.startswith("file://") else LocalAccess(LocalConfig(root="/"), read_only=True)


def region_of_environment() -> str:
    """Return the AWS region that the environment names, or the one that servers other than AWS take."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def normalise_uri(text: str) -> str:
    """Return the one spelling of a medium's address: an absolute, quoted ``file://`` URI, or ``s3://`` with a raw key.

    Args:
        text: a path, a ``file://`` URI or an ``s3://`` URI, as a person wrote it. In a plain path and in an S3 key
            every character stands for itself; in a ``file://`` URI ``%XX`` is an escape.

    Errors: ``UnsupportedMedia`` for a folder or a scheme that is not read; ``ConfigurationError`` for an address that
    cannot be one.
    """
    if not text.strip():
        raise ConfigurationError("The address of a medium is empty; give a path or s3://bucket/key")
    if "\0" in text:
        raise ConfigurationError("The address of a medium cannot contain a NUL character")
    scheme = _SCHEME.match(text)
    if scheme is None:
        half = _HALF_SCHEME.match(text)
        if half and not os.path.lexists(text):
            raise ConfigurationError(f"An address that starts with '{half[0]}' needs two slashes: {half[0]}//…")
        return _local_uri(text)
    name, rest = scheme[1].lower(), text[scheme.end() :]
    if name == "s3":
        return _s3_uri(rest)
    if name == "file":
        return _local_uri(os.fspath(path_of(f"file://{rest}")))
    if name in ("http", "https"):
        raise UnsupportedMedia(
            "Web addresses are not read; download the file, or put it into the store and name it as s3://bucket/key"
        )
    raise UnsupportedMedia(f"Addresses of the kind {name}:// are not read; give a path or s3://bucket/key")


def _s3_uri(rest: str) -> str:
    bucket, _, key = rest.partition("/")
    if not bucket:
        raise ConfigurationError("An S3 address has the form s3://bucket/key; the bucket is missing")
    if not key or key.endswith("/"):
        raise UnsupportedMedia(f"{label_of(f's3://{rest}')}: is a folder; name the objects in it")
    return f"s3://{bucket}/{key}"


def _local_uri(path: str) -> str:
    # The folder part is resolved by the system's rules, since `link/..` is not the folder that holds the link; a link
    # in last place keeps its own name.
    folder, name = os.path.split(path)
    absolute = os.path.realpath(path) if name in ("", ".", "..") else os.path.join(os.path.realpath(folder), name)
    uri = file_uri(absolute)
    if os.path.isdir(absolute):
        raise UnsupportedMedia(f"{label_of(uri)}: is a directory; name the files in it")
    return uri

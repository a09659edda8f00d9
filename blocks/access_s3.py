"""An S3-compatible store: AWS, Ceph RADOS Gateway, rclone and others."""

import hashlib
import random
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import cache
from io import RawIOBase
from pathlib import Path
from typing import IO, Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from blocks.access import ObjectStat, S3Config, check_key, label_of, split_s3_uri
from blocks.access_s3_errors import BODY_FAULTS, is_missing, missing_bucket, status_of, translated
from blocks.access_s3_reader import BlockReader
from tasks.records.errors import (
    BudgetExceeded,
    ConfigurationError,
    MediaChanged,
    MediaNotFound,
    StoreUnavailable,
    UnsupportedMedia,
)

PART_BYTES = 16 << 20
MAX_PARTS = 10_000
PAGE_KEYS = 1000

Answer = TypeVar("Answer")


class S3Access:
    """An S3-compatible store.

    Errors: those of ``StoreAccess``. Every wait is bounded by the timeouts and ``max_attempts`` of the configuration.
    """

    def __init__(self, config: S3Config) -> None:
        if (config.access_key_id is None) != (config.secret_access_key is None):
            raise ConfigurationError(
                "An S3 store needs both an access key and a secret, or neither (then AWS_* counts)"
            )
        self.config = config
        self._prefix = config.prefix.strip("/")
        if self._prefix:
            check_key(self._prefix)
        self.root_uri = f"s3://{config.bucket}" + (f"/{self._prefix}" if self._prefix else "")
        self._lock = threading.Lock()
        self._made_client: Any = None
        self._known_buckets: set[str] = set()

    @property
    def client(self) -> Any:
        """Return the boto3 client; it may be shared between threads."""
        with self._lock:
            if self._made_client is None:
                try:
                    self._made_client = _make_client(self.config)
                except (BotoCoreError, ValueError) as error:
                    raise translated(error, f"{self.root_uri}/") from None
            return self._made_client

    def uri_of(self, key: str) -> str:
        """Return the URI of a key under the prefix."""
        return f"{self.root_uri}/{check_key(key, prefix=self._prefix)}"

    def stat(self, uri: str) -> ObjectStat:
        """Return what stands at ``uri`` now."""
        found = self._head(uri)
        if found is not None:
            return found
        bucket, key = split_s3_uri(uri)
        with suppress(ConfigurationError):  # rights to objects need not include rights to list them
            if self._call(uri, self.client.list_objects_v2, Bucket=bucket, Prefix=f"{key}/", MaxKeys=1).get("Contents"):
                raise _is_folder(uri)
        raise MediaNotFound(f"{label_of(uri)}: no such object; check the address")

    def exists(self, uri: str) -> bool:
        """Tell whether an object stands at ``uri``."""
        return not uri.endswith("/") and self._head(uri) is not None

    def open_pinned(self, stat: ObjectStat, *, block_bytes: int = 1 << 20) -> RawIOBase:
        """Open exactly the pinned version; see ``BlockReader`` for how much is fetched and kept."""
        split_s3_uri(stat.uri)
        if stat.size_bytes == 0:  # no ranged response would ever be compared
            now = self._head(stat.uri)
            if now is None or now.size_bytes or now.etag != stat.etag:
                raise _changed(stat)
        return BlockReader(
            lambda start, length: self._fetch(stat, start, length), stat.size_bytes, block_bytes=block_bytes
        )

    def read_bytes(self, uri: str, *, max_bytes: int = 64 << 20) -> bytes:
        """Read a whole small object; larger than ``max_bytes`` raises ``BudgetExceeded``."""
        bucket, key = _object_of(uri)

        def request() -> Any:
            try:
                return self.client.get_object(Bucket=bucket, Key=key)
            except ClientError as error:
                if is_missing(error):
                    self._require_bucket(bucket)
                raise

        def consume(response: Any) -> bytes | None:
            length = int(response["ContentLength"])
            if length > max_bytes:
                raise BudgetExceeded(f"{label_of(uri)}: {length} bytes, larger than the {max_bytes} allowed here")
            data: bytes = response["Body"].read()
            return data if len(data) == length else None

        return self._read_with_retries(uri, request, consume)

    def write_bytes(self, key: str, data: bytes, *, content_type: str = "application/octet-stream") -> str:
        """Write an object in one request, which the store checks against its MD5, and return its URI."""
        uri = self.uri_of(key)
        bucket, full_key = split_s3_uri(uri)
        self._call(
            uri,
            self.client.put_object,
            Bucket=bucket,
            Key=full_key,
            Body=data,
            ContentType=content_type,
            ContentMD5=_md5_base64(data),
        )
        return uri

    def write_file(
        self,
        key: str,
        path: Path,
        *,
        content_type: str = "application/octet-stream",
        part_bytes: int = PART_BYTES,
    ) -> str:
        """Write a local file in parts, one in memory at a time, and return its URI; one part's worth goes as a whole.

        A failure aborts the upload; after a kill the parts stay invisible until the bucket's lifecycle rule removes
        them.

        Args:
            key: under the root.
            path: the file.
            content_type: stored with the object.
            part_bytes: size of a part, at least 5 MiB; parts grow where 10,000 of them would not hold the file.
        """
        uri = self.uri_of(key)
        try:
            with open(path, "rb") as file:
                part_bytes = max(part_bytes, -(-path.stat().st_size // (MAX_PARTS - 1)))
                first = file.read(part_bytes)
                if len(first) < part_bytes:
                    return self.write_bytes(key, first, content_type=content_type)
                self._write_parts(uri, first, file, part_bytes, content_type)
        except OSError as error:
            raise ConfigurationError(f"The local file to be stored cannot be read ({type(error).__name__})") from None
        return uri

    def list_objects(self, prefix: str) -> Iterator[ObjectStat]:
        """List objects whose key starts with ``prefix`` in byte order of the keys, in pages of 1,000."""
        if prefix.startswith("/") or ".." in prefix.split("/"):
            raise ConfigurationError("A prefix may not start with '/' or contain '..'")
        full = f"{self._prefix}/{prefix}" if self._prefix else prefix
        bucket = self.config.bucket
        token: dict[str, str] = {}
        while True:
            page = self._call(
                f"{self.root_uri}/", self.client.list_objects_v2, Bucket=bucket, Prefix=full, MaxKeys=PAGE_KEYS, **token
            )
            for item in page.get("Contents", []):
                if not item["Key"].endswith("/"):
                    yield _stat_from(f"s3://{bucket}/{item['Key']}", item, int(item["Size"]))
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def delete(self, uri: str) -> None:
        """Delete an object under the prefix; an absent one is no error, one outside is a ``ConfigurationError``."""
        if not uri.startswith(f"{self.root_uri}/"):
            raise ConfigurationError(f"{label_of(uri)}: outside the store's root; only what lies under it is deleted")
        bucket, key = split_s3_uri(uri)
        with suppress(MediaNotFound):
            self._call(uri, self.client.delete_object, Bucket=bucket, Key=key)

    def _call(self, uri: str, method: Callable[..., Answer], **arguments: Any) -> Answer:
        try:
            return method(**arguments)
        except (ClientError, BotoCoreError) as error:
            raise translated(error, uri) from None

    def _head(self, uri: str) -> ObjectStat | None:
        """Return None where the bucket exists and the object does not."""
        bucket, key = _object_of(uri)
        try:
            response = self.client.head_object(Bucket=bucket, Key=key)
        except ClientError as error:
            if not is_missing(error):
                raise translated(error, uri) from None
            self._require_bucket(bucket)
            return None
        except BotoCoreError as error:
            raise translated(error, uri) from None
        self._known_buckets.add(bucket)
        return _stat_from(uri, response, int(response["ContentLength"]))

    def _require_bucket(self, bucket: str) -> None:
        """Raise where a 404 means that the bucket itself is missing, which a HEAD response does not tell."""
        if bucket in self._known_buckets:
            return
        try:
            self.client.head_bucket(Bucket=bucket)
        except ClientError as error:
            if is_missing(error):
                raise missing_bucket(bucket) from None
            if status_of(error) != 403:  # rights to objects need not include rights to the bucket
                raise translated(error, f"s3://{bucket}/") from None
        except BotoCoreError as error:
            raise translated(error, f"s3://{bucket}/") from None
        self._known_buckets.add(bucket)

    def _fetch(self, stat: ObjectStat, start: int, length: int) -> bytes:
        """Return ``length`` bytes of the pinned version from ``start``."""
        bucket, key = split_s3_uri(stat.uri)
        version = {"VersionId": stat.version_id} if stat.version_id else {}

        def request() -> Any:
            try:
                return self.client.get_object(
                    Bucket=bucket, Key=key, Range=f"bytes={start}-{start + length - 1}", **version
                )
            except ClientError as error:
                if is_missing(error) or status_of(error) in (412, 416):
                    raise _changed(stat) from None
                raise

        def consume(response: Any) -> bytes | None:
            body, skip = response["Body"], _bytes_to_skip(response, stat, start)
            while skip:
                skip -= len(skipped := body.read(min(skip, 1 << 20)))
                if not skipped:
                    return None
            data: bytes = body.read(length) if skip == 0 else b""
            return data if len(data) == length else None

        return self._read_with_retries(stat.uri, request, consume)

    def _read_with_retries(self, uri: str, request: Callable[[], Any], consume: Callable[[Any], bytes | None]) -> bytes:
        """Ask again where a body breaks off; an unanswered request has been retried by the client already.

        Args:
            uri: for messages.
            request: returns a response whose body is unread.
            consume: reads the body; None means that it is not what was asked for.
        """
        for number in range(self.config.max_attempts):
            if number:
                time.sleep(random.uniform(0.5, 1.0) * min(0.2 * 2**number, 5.0))
            response = self._call(uri, request)
            with closing(response["Body"]), suppress(*BODY_FAULTS):
                data = consume(response)
                if data is not None:
                    return data
        raise StoreUnavailable(f"{label_of(uri)}: the store breaks off its answers; try again later")

    def _write_parts(self, uri: str, first: bytes, file: IO[bytes], part_bytes: int, content_type: str) -> None:
        bucket, key = split_s3_uri(uri)
        begun = self._call(uri, self.client.create_multipart_upload, Bucket=bucket, Key=key, ContentType=content_type)
        upload = {"Bucket": bucket, "Key": key, "UploadId": begun["UploadId"]}
        whole, digests, size, data = hashlib.md5(usedforsecurity=False), b"", 0, first
        parts: list[dict[str, Any]] = []
        try:
            while data:
                number = len(parts) + 1
                part = self._call(
                    uri, self.client.upload_part, **upload, PartNumber=number, Body=data, ContentMD5=_md5_base64(data)
                )
                parts.append({"PartNumber": number, "ETag": part["ETag"]})
                whole.update(data)
                digests += hashlib.md5(data, usedforsecurity=False).digest()
                size += len(data)
                data = file.read(part_bytes)
            combined = hashlib.md5(digests, usedforsecurity=False).hexdigest()
            self._complete(uri, upload, parts, size, {f"{combined}-{len(parts)}", whole.hexdigest()})
        except BaseException:
            with suppress(ClientError, BotoCoreError):
                self.client.abort_multipart_upload(**upload)
            raise

    def _complete(self, uri: str, upload: dict[str, str], parts: list[Any], size: int, etags: set[str]) -> None:
        """Complete an upload; after an error look whether the object stands there nevertheless.

        A repeated complete is answered with success, NoSuchUpload or a 500, depending on the server.
        """
        try:
            self.client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        except (ClientError, BotoCoreError) as error:
            now = None
            with suppress(ConfigurationError, StoreUnavailable):
                now = self._head(uri)
            if now is None or now.size_bytes != size or now.etag not in etags:
                if isinstance(error, ClientError) and is_missing(error):
                    raise StoreUnavailable(f"{label_of(uri)}: the store lost the upload; try again") from None
                raise translated(error, uri) from None


_SESSION_LOCK = threading.Lock()


@cache
def _shared_session() -> Any:
    """Return one session for explicit credentials: it keeps the service's description, 0.1 s of CPU to parse."""
    return boto3.session.Session()


def _make_client(config: S3Config) -> Any:
    # A session also keeps the credentials that it found in the environment; those must be looked up anew.
    with _SESSION_LOCK:
        return _client_of(_shared_session() if config.secret_access_key else boto3.session.Session(), config)


def _client_of(session: Any, config: S3Config) -> Any:
    secret = config.secret_access_key
    return session.client(
        "s3",
        endpoint_url=config.endpoint_url,
        region_name=config.region,
        aws_access_key_id=config.access_key_id,
        aws_secret_access_key=secret.get_secret_value() if secret else None,
        config=Config(
            signature_version="s3v4",
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path"},
            connect_timeout=config.connect_timeout_s,
            read_timeout=config.read_timeout_s,
            retries={"mode": "standard", "total_max_attempts": config.max_attempts},
            max_pool_connections=16,
            tcp_keepalive=True,
        ),
    )


def _object_of(uri: str) -> tuple[str, str]:
    if uri.endswith("/"):
        raise _is_folder(uri)
    return split_s3_uri(uri)


def _is_folder(uri: str) -> UnsupportedMedia:
    return UnsupportedMedia(f"{label_of(uri)}: is a folder; name the objects in it")


def _changed(stat: ObjectStat) -> MediaChanged:
    return MediaChanged(f"{label_of(stat.uri)}: changed or gone since it was pinned; run again to read it anew")


def _stat_from(uri: str, response: dict[str, Any], size: int) -> ObjectStat:
    seconds = int(response["LastModified"].timestamp())  # listings tell fractions, headers do not
    version = response.get("VersionId")
    return ObjectStat(
        uri=uri,
        etag=_etag(response, size),
        version_id=None if version in (None, "", "null") else version,
        size_bytes=size,
        last_modified_ns=seconds * 1_000_000_000,
    )


def _etag(response: dict[str, Any], size: int) -> str:
    """Return the bare entity tag; a server without one is held to size and time."""
    tag = str(response.get("ETag") or "").removeprefix("W/").strip('"')
    return tag or f"none-{size}-{int(response['LastModified'].timestamp())}"


def _bytes_to_skip(response: dict[str, Any], stat: ObjectStat, start: int) -> int | None:
    """Hold a ranged response to the pinned version and return how much of its body lies before ``start``.

    Some servers answer 200 with the range, some 200 with the whole object; None means that the range is not the one
    that was asked for.
    """
    span, _, total = str(response.get("ContentRange") or "").removeprefix("bytes ").partition("/")
    size = int(total) if total.isdigit() else (stat.size_bytes if span else int(response["ContentLength"]))
    now = _stat_from(stat.uri, response, size)
    same_time = stat.last_modified_ns == 0 or now.last_modified_ns // 10**9 == stat.last_modified_ns // 10**9
    if now.etag != stat.etag or now.size_bytes != stat.size_bytes or not same_time:
        raise _changed(stat)
    if not span:
        return start
    return 0 if span.partition("-")[0] == str(start) else None


def _md5_base64(data: bytes) -> str:
    return b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()

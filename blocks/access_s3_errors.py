"""S3 client errors in the words of the error tree."""

from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    ProxyConnectionError,
    ReadTimeoutError,
    ResponseStreamingError,
    SSLError,
)

from blocks.access import label_of
from tasks.records.errors import ConfigurationError, MediaNotFound, ScopeFlowError, StoreUnavailable

BODY_FAULTS = (ReadTimeoutError, IncompleteReadError, ResponseStreamingError, HTTPClientError)
"""What reading a response body raises when the connection fails under it."""

_NO_ANSWER = (*BODY_FAULTS, EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError, SSLError)

_WRONG_CREDENTIALS = {
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "InvalidToken",
    "ExpiredToken",
    "TokenRefreshRequired",
}
_WRONG_REGION = {"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"}
_TRANSIENT_CODES = {
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "RequestTimeout",
    "InternalError",
    "ServiceUnavailable",
}


def status_of(error: ClientError) -> int:
    """Return the HTTP status of an error response; 0 where it has none."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) or 0)


def code_of(error: ClientError) -> str:
    """Return the S3 error code; a HEAD response has no body, so its code is the status as text."""
    return str(error.response.get("Error", {}).get("Code") or status_of(error))


def is_missing(error: ClientError) -> bool:
    """Tell whether an error says that the object, its version or its bucket does not exist."""
    return status_of(error) == 404 or code_of(error) in {"NoSuchKey", "NoSuchVersion", "NoSuchBucket", "NotFound"}


def missing_bucket(bucket: str) -> ConfigurationError:
    """Return the error for a bucket that the endpoint does not have."""
    return ConfigurationError(
        f"s3://{bucket}: the endpoint has no such bucket; check bucket and endpoint, or create the bucket"
    )


def translated(error: Any, uri: str) -> ScopeFlowError:
    """Return the error to raise for a failed S3 call on ``uri``; its message carries no key.

    Args:
        error: a ``ClientError``, a ``BotoCoreError``, or the ``ValueError`` of an unusable endpoint address.
        uri: the object's URI, of which only the label is used.
    """
    label = label_of(uri)
    if isinstance(error, ClientError):
        return _from_answer(error, label, uri)
    if isinstance(error, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return ConfigurationError(
            f"{label}: the endpoint's certificate is not trusted; name its authority in AWS_CA_BUNDLE"
        )
    if isinstance(error, _NO_ANSWER):
        return StoreUnavailable(f"{label}: the store does not answer ({type(error).__name__}); try again later")
    name = type(error).__name__
    if name in {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError"}:
        return ConfigurationError(
            f"{label}: no usable S3 credentials; set them in the store's block or in AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY"
        )
    if name == "ResponseParserError":
        return ConfigurationError(f"{label}: the endpoint does not answer like an S3 server; check its address")
    if isinstance(error, (BotoCoreError, ValueError)):
        return ConfigurationError(
            f"{label}: the S3 settings cannot be used ({name}); check endpoint, region and bucket"
        )
    return StoreUnavailable(f"{label}: the S3 client failed ({name})")


def _from_answer(error: ClientError, label: str, uri: str) -> ScopeFlowError:
    status, code = status_of(error), code_of(error)
    told = f"{status}" if code == str(status) else f"{status} {code}"
    if code == "NoSuchBucket":
        return missing_bucket(uri.removeprefix("s3://").partition("/")[0])
    if is_missing(error):
        return MediaNotFound(f"{label}: no such object; check the address")
    if code in _WRONG_CREDENTIALS:
        return ConfigurationError(f"{label}: the store refuses the credentials ({code}); check key and secret")
    if code == "RequestTimeTooSkewed":
        return ConfigurationError(f"{label}: this machine's clock differs from the store's by minutes; set it right")
    if code in _WRONG_REGION or status in (301, 307):
        return ConfigurationError(f"{label}: the bucket belongs to another region or endpoint ({code}); set its region")
    if status >= 500 or status in (408, 429) or code in _TRANSIENT_CODES:
        return StoreUnavailable(f"{label}: the store answered {told}; try again later")
    if status in (401, 403):
        return ConfigurationError(
            f"{label}: the store denies access ({told}); check key and secret, and their rights to this bucket"
        )
    return ConfigurationError(f"{label}: the store refuses the request with {told}")

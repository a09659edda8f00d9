"""The one tree of errors. Messages name the medium by pseudonym or key, the cause, and what to do.

ScopeFlowError
  TransientError            worth trying again
    StoreUnavailable        the object store did not answer, or answered 5xx
    EndpointBusy            the model endpoint answered 429 or 503
    EndpointTimeout         the model endpoint, or a child process, ran past its deadline
  PermanentError            the same input will fail again
    UnsupportedMedia        not a kind of file that ScopeFlow reads, or a kind with nothing to look at
    CorruptMedia            the right kind of file, but damaged, truncated, empty or encrypted
    MediaNotFound           no object at this address
    MediaChanged            the object is no longer the version that was pinned
    IdentifiersPresent      patient identifiers where none may be
    BudgetExceeded          more frames, bytes, pixels, seconds or tokens than the limits allow
    ConfigurationError      a block, a credential or a setting is wrong

Exceptions cross process and storage borders as class name plus message, so each is built from one string.
"""

import traceback
from pathlib import PurePath


class ScopeFlowError(Exception):
    """Base of every error that ScopeFlow raises on purpose."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class TransientError(ScopeFlowError):
    """A fault that may clear by itself; the only kind that is retried."""


class StoreUnavailable(TransientError):
    """The object store did not answer in time, or answered with a server error."""


class EndpointBusy(TransientError):
    """The model endpoint is overloaded."""


class EndpointTimeout(TransientError):
    """The model endpoint, or a child process running it, ran past its deadline."""


class PermanentError(ScopeFlowError):
    """A fault that the same input will meet again; never retried."""


class UnsupportedMedia(PermanentError):
    """Not a kind of medium that ScopeFlow reads, or one with nothing to look at."""


class CorruptMedia(PermanentError):
    """A known kind of medium that is damaged, truncated, empty or encrypted."""


class MediaNotFound(PermanentError):
    """No object stands at the given address."""


class MediaChanged(PermanentError):
    """The object is no longer the version that was pinned when the run began."""


class IdentifiersPresent(PermanentError):
    """Patient identifiers were found where none may be."""


class BudgetExceeded(PermanentError):
    """More frames, bytes, pixels, seconds or tokens than the limits allow."""


class ConfigurationError(PermanentError):
    """A block, a credential or a setting is missing or wrong."""


def unexpected_words(error: BaseException) -> str:
    """Return class and place of an error that is not ours, without its text, which may quote the medium."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"unexpected {type(error).__name__}{place}; this is a fault in ScopeFlow, please report it"


def error_from_name(cause: str, message: str) -> ScopeFlowError:
    """Rebuild an error from its class name and message.

    Args:
        cause: class name in this module; an unknown name gives a plain ``ScopeFlowError``.
        message: the one string the error was built from.
    """
    found = globals().get(cause)
    if isinstance(found, type) and issubclass(found, ScopeFlowError):
        return found(message)
    return ScopeFlowError(f"{cause}: {message}")

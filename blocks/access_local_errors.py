"""Operating-system errors in the words of the error tree."""

import errno

from blocks.access import label_of
from tasks.records.errors import (
    ConfigurationError,
    MediaNotFound,
    ScopeFlowError,
    StoreUnavailable,
    UnsupportedMedia,
)

_FULL = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {errno.EACCES, errno.EPERM}


def translated(error: OSError, uri: str, *, writing: bool = False) -> ScopeFlowError:
    """Return the error to raise for a failed system call on ``uri``; its message carries no path.

    Args:
        error: what the system said.
        uri: the file's URI, of which only the label is used.
        writing: whether the file was to be written.
    """
    label = label_of(uri)
    code = error.errno or 0
    if code in _FULL:
        return StoreUnavailable(
            f"{label}: the store's disk is full or its quota is used up; free some space, then run again"
        )
    if code in _DENIED:
        wanted = "write there" if writing else "read it"
        return ConfigurationError(f"{label}: permission denied; let the user that runs ScopeFlow {wanted}")
    if code == errno.EROFS:
        return ConfigurationError(f"{label}: the file system is read-only; choose another root for the store")
    if code == errno.ENAMETOOLONG:
        return ConfigurationError(f"{label}: the path is too long for its file system")
    if code == errno.ELOOP:
        return ConfigurationError(f"{label}: too many symbolic links; check the path")
    if writing and code in {errno.ENOTDIR, errno.EISDIR, errno.EEXIST}:
        return ConfigurationError(f"{label}: a file and a folder of one name exclude each other here")
    if code in {errno.ENOENT, errno.ENOTDIR}:
        return MediaNotFound(f"{label}: no such file; check the address")
    if code == errno.EISDIR:
        return UnsupportedMedia(f"{label}: is a directory; name the files in it")
    if code == errno.ENXIO:
        return UnsupportedMedia(f"{label}: is not a regular file (a pipe, socket or device)")
    return StoreUnavailable(f"{label}: the disk answered {errno.errorcode.get(code, str(code))}")

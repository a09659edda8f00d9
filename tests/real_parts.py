"""Real servers in tests: present, or skipped with a plain reason, or, where they are demanded, a failure."""

import os

import pytest

REQUIRED = "SCOPEFLOW_REQUIRE_REAL_PARTS"


def require(present: bool, reason: str) -> None:
    """Go on only if a real part is there.

    Args:
        present: whether it is.
        reason: what is missing and how to install it; the words of the skip, or, with
            SCOPEFLOW_REQUIRE_REAL_PARTS=1, of the failure.
    """
    if present:
        return
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{reason} ({REQUIRED}=1 allows no skip)", pytrace=False)
    pytest.skip(reason)

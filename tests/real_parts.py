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


def require_cuda() -> None:
    """Go on only on a machine with a CUDA device; FAIL_WITHOUT_CUDA=1 turns the skip into a failure."""
    import torch

    if torch.cuda.is_available():
        return
    if os.environ.get("FAIL_WITHOUT_CUDA"):
        pytest.fail("no CUDA device (FAIL_WITHOUT_CUDA allows no skip)", pytrace=False)
    pytest.skip("no CUDA device on this machine")

"""The command line as a user runs it: in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def scopeflow(
    *arguments: str, cwd: Path, timeout_s: float = 120, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run the command line as a user does, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )

"""Scratch folders go, also those of a process that was killed."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from blocks.scratch import scratch_folder

KILLED = """
import os, signal
from blocks.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "frame.webp").write_bytes(b"x")
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_goes_with_its_use_and_one_left_by_a_killed_process_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    ran = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    left = Path(ran.stdout.strip())
    assert (left / "frame.webp").exists()
    bystander = tmp_path / "scopeflow-notes"
    bystander.mkdir()
    with scratch_folder() as folder:
        assert not left.exists()
        assert folder.is_dir()
        with scratch_folder():
            assert folder.is_dir(), "a folder in use stays"
    assert [path.name for path in tmp_path.iterdir()] == ["scopeflow-notes"]

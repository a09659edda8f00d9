"""A rendered clip, a store and a running Prefect server for whole runs."""

from pathlib import Path

import pytest

from blocks.clip_writer import write_clip
from tasks.algorithms.clips import ClipScript, demo_script, render_clip


@pytest.fixture(scope="session")
def clip_script() -> ClipScript:
    """Return a small laparoscopy-like script with a handful of events."""
    return demo_script(width=640, height=360)


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory, clip_script: ClipScript) -> Path:
    """Return the script rendered as an MP4."""
    path = tmp_path_factory.mktemp("clip") / "clip.mp4"
    write_clip(path, render_clip(clip_script), fps=clip_script.fps)
    return path

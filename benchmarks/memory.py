"""Peak memory of the whole job on a 1-minute and on a 60-minute 1080p file.

`make bench-memory`. Both files are the same 20-second rendered clip, its packets repeated without decoding. Each is
analysed by the command a user types, against a Prefect server outside the measured process tree; the resident memory
of the tree (the command and the children that decode and answer) is read ten times a second and its highest sum kept.

Environment: MINUTES (default 60), FPS of the clip (default 10).
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.record import write_result
from blocks.child import tree_rss_bytes
from blocks.clip_writer import loop_file, write_clip
from blocks.lifeline import free_port
from blocks.prefect_server import QUIET_SETTINGS, prefect_server
from tasks.algorithms.clips import ClipScript, ClipSpan, demo_script, render_clip

_CLIP_SECONDS = 20
_ALLOWED_GROWTH_MB = 30.0


def main() -> int:
    """Measure, write results/memory.json, and return 0 when the claim holds."""
    minutes, fps = int(os.environ.get("MINUTES", "60")), int(os.environ.get("FPS", "10"))
    with tempfile.TemporaryDirectory(prefix="scopeflow-bench-") as folder:
        home = Path(folder)
        clip = _clip(home / "clip.mp4", fps)
        with prefect_server(home / "prefect", port=free_port()) as api:
            rows = [_measure(_looped(clip, home, length), length, api, home) for length in (1, minutes)]
    growth = rows[1]["peak resident MB"] - rows[0]["peak resident MB"]
    holds = write_result(
        "memory",
        title=f"Peak resident memory of the whole job, 1080p, {fps} frames a second",
        rows=rows,
        claims=[
            {
                "claim": f"{minutes} minutes take no more memory than 1 minute",
                "goal": f"at most {_ALLOWED_GROWTH_MB:.0f} MB more",
                "value": f"{growth:+.1f} MB",
                "holds": growth <= _ALLOWED_GROWTH_MB,
            }
        ],
    )
    print(json.dumps(rows, indent=2))
    return 0 if holds else 1


def _clip(path: Path, fps: int) -> Path:
    spans = demo_script().spans
    scale = _CLIP_SECONDS / sum(span.seconds for span in spans)
    script = ClipScript(
        width=1920,
        height=1080,
        spans=tuple(ClipSpan(span.kind, span.seconds * scale, span.poses) for span in spans),
        fps=fps,
    )
    write_clip(path, render_clip(script), fps=fps, options={"preset": "fast"})
    return path


def _looped(clip: Path, home: Path, minutes: int) -> Path:
    target = home / f"{minutes}-minutes.mp4"
    loop_file(clip, target, minutes * 60 // _CLIP_SECONDS)
    return target


def _measure(medium: Path, minutes: int, api: str, home: Path) -> dict[str, Any]:
    began = time.monotonic()
    with (home / f"{minutes}.json").open("wb") as answer:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", "analyze", str(medium), "--store", str(home / "store"), "--json"],
            env={**os.environ, **QUIET_SETTINGS, "PREFECT_API_URL": api},
            stdin=subprocess.DEVNULL,
            stdout=answer,
        )
        peak = 0
        while process.poll() is None:
            peak = max(peak, tree_rss_bytes(process.pid))
            time.sleep(0.1)
    report = json.loads((home / f"{minutes}.json").read_text(encoding="utf-8"))["reports"][0]["report"]
    if report["outcome"] != "complete":
        raise SystemExit(f"the {minutes}-minute file ended as {report['outcome']}: {report['failures']}")
    return {
        "minutes": minutes,
        "file MB": medium.stat().st_size / 1e6,
        "frames": report["signals"]["frames_delivered"],
        "keyframes": len(report["keyframes"]["keyframes"]),
        "peak resident MB": peak / 1e6,
        "decode child MB": report["signals"]["peak_rss_bytes"] / 1e6,
        "seconds": time.monotonic() - began,
    }


if __name__ == "__main__":
    sys.exit(main())

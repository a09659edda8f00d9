"""`make demo`: the whole path on this machine, from a rendered clip to a report, on real parts.

Environment:
    MEDIA: a path or an s3:// address to analyse instead of the rendered clip; s3:// needs AWS_* and AWS_ENDPOINT_URL.
    KEEP: 1 leaves the S3 server and the Prefect server running until Ctrl-C.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from blocks.access import S3Config
from blocks.access_s3 import S3Access
from blocks.clip_writer import write_clip
from blocks.lifeline import free_port, port_is_free
from blocks.prefect_server import QUIET_SETTINGS, prefect_server
from blocks.s3_server import serve_s3
from tasks.algorithms.clips import demo_script, render_clip
from tasks.records.errors import ScopeFlowError

STATE = Path(".scopeflow") / "demo"
BUCKET = "scopeflow"
_PART_BYTES = 5 << 20
_TELL_EVERY_S = 5.0
T = TypeVar("T")
_ACCESS_KEY = "scopeflow0"
_UI_PORT = 4200
# A camera's bit rate, not the encoder's thriftiest: sensor noise is kept, and the file takes several parts.
_CLIP_QUALITY = {"b": "4M", "preset": "veryfast"}


def main() -> int:
    """Run the demo; 0 when the report is complete."""
    began = time.monotonic()
    wanted, keep = os.environ.get("MEDIA", ""), os.environ.get("KEEP", "") not in ("", "0")
    STATE.mkdir(parents=True, exist_ok=True)
    try:
        file = None if wanted.startswith("s3://") else _checked(Path(wanted)) if wanted else _clip()
        with _servers() as (api, s3):
            medium = wanted if file is None else _uploaded(file, s3)
            report, code = _analyse(medium, api, s3, own_store=not wanted.startswith("s3://"))
            if report is not None:
                _tell(report, api, keep)
            print(f"\nDone in {time.monotonic() - began:.0f} s.", flush=True)
            if keep:
                _stay(api, s3)
    except ScopeFlowError as error:
        print(f"make demo: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130
    return code


@contextlib.contextmanager
def _servers() -> Iterator[tuple[str, S3Config]]:
    _say("Starting S3 (rclone) and Prefect; Prefect takes up to a minute")
    port = _UI_PORT if port_is_free(_UI_PORT) else free_port()
    with (
        serve_s3((STATE / "s3").resolve(), bucket=BUCKET, access_key_id=_ACCESS_KEY) as s3,
        prefect_server((STATE / "prefect").resolve(), port=port) as api,
    ):
        _say(f"S3 answers on {s3.endpoint_url}, Prefect on {api.removesuffix('/api')}")
        yield api, s3


def _clip() -> Path:
    target = STATE / "laparoscopy.mp4"
    script = demo_script()
    if not target.exists():
        _say(f"Rendering a laparoscopy-like clip of {script.seconds:.0f} s")
        partial = target.with_suffix(".partial.mp4")
        frames = _told(render_clip(script), round(script.seconds * script.fps))
        write_clip(partial, frames, fps=script.fps, options=_CLIP_QUALITY)
        partial.replace(target)
    return target


def _told(frames: Iterator[T], total: int) -> Iterator[T]:
    """Pass frames on and say every few seconds how many there have been."""
    told = time.monotonic()
    for number, frame in enumerate(frames, start=1):
        yield frame
        if time.monotonic() - told > _TELL_EVERY_S:
            told = time.monotonic()
            print(f"        {number} of {total} frames", flush=True)


def _checked(path: Path) -> Path:
    if not path.exists():
        raise ScopeFlowError(f"there is no file {path}; give MEDIA=path or MEDIA=s3://bucket/key")
    if not path.is_file():
        raise ScopeFlowError(f"{path} is not a file; give MEDIA=path of one file")
    return path


def _uploaded(path: Path, s3: S3Config) -> str:
    size = path.stat().st_size
    _say(f"Uploading {size / 1e6:.1f} MB to S3 in parts of {_PART_BYTES / 1e6:.0f} MB")
    return S3Access(s3).write_file(f"incoming/{path.name}", path, part_bytes=_PART_BYTES)


def _analyse(medium: str, api: str, s3: S3Config, *, own_store: bool) -> tuple[dict[str, Any] | None, int]:
    """Run the command a user would type, and return its report and exit code."""
    environment = {**os.environ, **QUIET_SETTINGS, "PREFECT_API_URL": api}
    store = str((STATE / "results").resolve())
    if own_store:
        assert s3.secret_access_key is not None
        assert s3.endpoint_url is not None
        store = f"s3://{BUCKET}"
        environment |= {
            "AWS_ACCESS_KEY_ID": s3.access_key_id or "",
            "AWS_SECRET_ACCESS_KEY": s3.secret_access_key.get_secret_value(),
            "AWS_ENDPOINT_URL": s3.endpoint_url,
        }
    _say(f"scopeflow analyze {medium} --store {store}")
    process = subprocess.run(
        [sys.executable, "-m", "flows.cli", "analyze", medium, "--store", store, "--json"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=False,
    )
    try:
        return json.loads(process.stdout)["reports"][0]["report"], process.returncode
    except (ValueError, KeyError, IndexError):
        return None, process.returncode or 1


def _tell(report: dict[str, Any], api: str, keep: bool) -> None:
    """Print where things lie; the command has already printed the answer and the account."""
    folder = (STATE / "s3").resolve()
    for title, uri in (
        ("Report", report.get("report_html_uri")),
        ("Report as data", report.get("report_json_uri")),
        ("Contact sheet", (report.get("keyframes") or {}).get("sheet_uri")),
    ):
        if uri and uri.startswith("s3://"):
            _say(f"{title}: {folder / uri.removeprefix('s3://')}")
    run = report["provenance"].get("flow_run_url")
    if run:
        note = "" if keep else "  (the server stops now; `make demo KEEP=1` leaves it running)"
        _say(f"Prefect UI: {run}{note}")


def _stay(api: str, s3: S3Config) -> None:
    _say(f"Prefect UI on {api.removesuffix('/api')}, S3 on {s3.endpoint_url}; Ctrl-C stops both")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    while not stop.wait(1.0):
        pass


def _say(text: str) -> None:
    print(f"== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

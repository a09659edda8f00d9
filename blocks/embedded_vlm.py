"""The embedded engine: a small or local Qwen2-VL checkpoint run by transformers in a child process."""

import hashlib
import json
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from blocks.access import AccessConfig, revealed
from blocks.child import ChildWorker, Progress
from tasks.algorithms.token_math import VisionGeometry
from tasks.records.errors import ConfigurationError, EndpointBusy, EndpointTimeout
from tasks.records.inference import InferenceRequest, InferenceResult

DEMO_WEIGHTS = Path(__file__).parent.parent / "deployments" / "demo_model" / "weights"
ENDPOINT_NAME = "embedded"
_READ_WHOLE_BYTES = 64 << 20  # reading gigabytes of weights would cost minutes
_START_ALLOWANCE_S = 180.0  # importing torch and loading a checkpoint, before the deadline of the answer itself


class ModelCard(BaseModel):
    """What the pipeline must know of a model before it may be asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    revision: str
    notice: str | None = None
    max_segment_frames: int = Field(default=16, ge=1)
    patch_px: int
    merge_size: int
    min_pixels: int
    max_pixels: int

    @property
    def geometry(self) -> VisionGeometry:
        """How the model cuts pictures into tokens."""
        return VisionGeometry(self.patch_px, self.merge_size, self.min_pixels, self.max_pixels)


class EmbeddedVlm:
    """A Qwen2-VL checkpoint on this machine; one question at a time, each under a deadline.

    The child that holds the model starts with the first question and stays for the next; ``close`` ends it.

    Args:
        weights: folder of a Hugging Face checkpoint; the demo model by default.
    """

    def __init__(self, weights: Path | None = None) -> None:
        self._weights = weights or DEMO_WEIGHTS
        self._worker = ChildWorker(timeout_error=EndpointTimeout, crash_error=EndpointBusy)
        self._lock = threading.Lock()
        self._started = False
        self.card = read_card(self._weights)

    def answer(
        self, request: InferenceRequest, access: AccessConfig, *, on_progress: Progress | None = None
    ) -> InferenceResult:
        """Answer one question about one segment, prefilled in chunks.

        Raises:
            EndpointTimeout: no answer within ``request.timeout_s``.
            EndpointBusy: the child died, for want of memory most often; another try starts a new one.
        """
        with self._lock:
            allowance = 0.0 if self._started else _START_ALLOWANCE_S
            self._started = False
            found = self._worker.call(
                "blocks.embedded_child:answer",
                {
                    "weights": str(self._weights),
                    "access": revealed(access),
                    "request": request.model_dump(mode="json"),
                },
                timeout_s=request.timeout_s + allowance,
                on_progress=on_progress,
            )
            self._started = True
        times = [frame.pts_ns for frame in request.frames if frame.pts_ns is not None]
        return InferenceResult(
            request_id=request.request_id,
            segment_index=request.segment_index,
            start_ns=min(times, default=None),
            end_ns=max(times, default=None),
            frame_indices=tuple(frame.frame_index for frame in request.frames),
            model=self.card.model,
            model_revision=self.card.revision,
            endpoint=ENDPOINT_NAME,
            **found,
        )

    def close(self) -> None:
        """End the child that holds the model."""
        self._worker.close()
        self._started = False


def shared_engine(folder: str | None = None) -> EmbeddedVlm:
    """Return this process's one engine for a checkpoint, so that many media load it once; it ends with the process.

    Args:
        folder: a Qwen2-VL checkpoint; the demo model when None. When its files change a new engine is made.
    """
    weights = Path(folder).expanduser() if folder else DEMO_WEIGHTS
    return _engine(weights, read_card(weights).revision)


@lru_cache(maxsize=1)
def _engine(weights: Path, revision: str) -> EmbeddedVlm:
    return EmbeddedVlm(weights)


def read_card(weights: Path) -> ModelCard:
    """Read what the pipeline must know of a checkpoint from its own files, without loading it.

    Raises:
        ConfigurationError: the folder is no Qwen2-VL checkpoint.
    """
    config = _read_json(weights / "config.json")
    processor = _read_json(weights / "preprocessor_config.json")
    own_file = weights / "scopeflow.json"
    own = _read_json(own_file) if own_file.exists() else {}
    if config.get("model_type") != "qwen2_vl":
        raise ConfigurationError(
            f"the checkpoint is of type {config.get('model_type')!r}; the embedded engine runs qwen2_vl"
        )
    size = processor.get("size", {})
    try:
        return ModelCard(
            model=own.get("model", weights.name),
            revision=_revision_of(weights),
            notice=own.get("notice"),
            max_segment_frames=own.get("max_segment_frames", 16),
            patch_px=processor["patch_size"],
            merge_size=processor["merge_size"],
            min_pixels=processor.get("min_pixels") or size["shortest_edge"],
            max_pixels=processor.get("max_pixels") or size["longest_edge"],
        )
    except KeyError as error:
        raise ConfigurationError(f"the model's preprocessor_config.json lacks {error.args[0]}") from None
    except (TypeError, ValueError):
        raise ConfigurationError("the model's preprocessor_config.json or scopeflow.json has a wrong value") from None


def _revision_of(weights: Path) -> str:
    """Return a digest of a checkpoint's files: of their content, for large ones of name, size and time.

    No revision that people keep by hand is trusted: answers are cached under this one.
    """
    running = hashlib.sha256()
    for path in sorted(path for path in weights.iterdir() if path.is_file()):
        facts = path.stat()
        running.update(f"{path.name} {facts.st_size} ".encode())
        running.update(path.read_bytes() if facts.st_size <= _READ_WHOLE_BYTES else str(facts.st_mtime_ns).encode())
    return running.hexdigest()[:12]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigurationError(f"the model folder has no {path.name}; give a Hugging Face checkpoint") from None
    except ValueError:
        raise ConfigurationError(f"the model's {path.name} is not JSON") from None
    return found

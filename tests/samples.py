"""Sample records and pictures that look like the real thing, for tests of what a person sees."""

import io
from functools import cache

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from tasks.algorithms.overlay import pool_overlay
from tasks.algorithms.pooling import plan_native, plan_threshold, token_scores
from tasks.records.inference import Answer, InferenceResult
from tasks.records.keyframes import Keyframe, KeyframeReason, KeyframeSet
from tasks.records.media import MediaKind, MediaProbe, MediaRef
from tasks.records.pooling import PoolAccount, PooledFrame, PoolPlan
from tasks.records.report import MediaReport, Provenance, StageFailure, StageTiming
from tasks.records.signals import Gap, SignalsRef
from tasks.records.specs import MediaRequest, PromptSpec, SelectionSpec

RgbImage = npt.NDArray[np.uint8]

SECRET_NAME = "Mustermann_Erika_1961-03-04"
HOSTILE = "<script>alert('x')</script><img src=http://evil.example/a.png onerror=alert(1)> & \"quoted\""
MEDIA_ID = "9f2c41d07ab3e58c6614"
NOTICE = (
    "Demonstration model with 2 million parameters, trained on synthetic scenes. It knows nothing about medicine; its "
    "answers show the path, not a finding."
)
S = 1_000_000_000
REASONS = ("first", "change", "burst", "burst", "change", "max_gap", "change", "burst", "max_gap", "change")
TIMES_S = (0.04, 31.28, 62.4, 63.12, 118.6, 148.6, 171.92, 205.08, 235.08, 262.72)


def scene(number: int, *, width_px: int = 896, height_px: int = 504) -> RgbImage:
    """Draw an endoscopic-looking circle with an instrument; (height_px, width_px, 3) uint8."""
    rng = np.random.default_rng(number)
    y, x = np.mgrid[0:height_px, 0:width_px].astype(np.float32)
    cx, cy, radius = width_px / 2, height_px / 2, height_px * 0.49
    tissue = cv2.GaussianBlur(rng.normal(0, 1, (height_px, width_px)).astype(np.float32), (0, 0), 14)
    tissue = 18 * tissue / (tissue.std() + 1e-6)
    light = np.clip(1.1 - np.hypot(x - cx - 30, y - cy + 20) / (radius * 1.5), 0.1, 1)
    picture = np.stack([(186 + tissue) * light, (88 + tissue) * light, (76 + 0.8 * tissue) * light], axis=2)
    tip = np.array([cx + 110 * np.cos(number * 0.9), cy + 70 * np.sin(number * 0.9)])
    heel = np.array([cx + radius * 1.2, cy + radius * 0.7])
    along = (heel - tip) / np.linalg.norm(heel - tip)
    across = np.array([-along[1], along[0]])
    shaft = np.array([tip + 6 * across, heel + 22 * across, heel - 22 * across, tip - 6 * across])
    cv2.fillPoly(picture, [np.round(shaft).astype(np.int32)], (168, 172, 180))
    for sign in (1, -1):
        jaw = np.array([tip, tip - 52 * along + sign * 18 * across, tip - 10 * along + sign * 10 * across])
        cv2.fillPoly(picture, [np.round(jaw).astype(np.int32)], (205, 208, 214))
    picture += rng.normal(0, 1.2, picture.shape)
    picture[np.hypot(x - cx, y - cy) > radius] = 4
    return np.clip(picture, 0, 255).astype(np.uint8)


def encoded(rgb: RgbImage, *, width_px: int = 480, kind: str = "WEBP") -> bytes:
    """Return a picture as a small image file."""
    height_px = round(rgb.shape[0] * width_px / rgb.shape[1])
    buffer = io.BytesIO()
    Image.fromarray(rgb).resize((width_px, height_px), Image.Resampling.LANCZOS).save(buffer, kind, quality=80)
    return buffer.getvalue()


def plan_of(rgb: RgbImage, *, token_px: int = 28, threshold: float = 3.0) -> PoolPlan:
    """Plan a picture whose edges are multiples of ``token_px``; a threshold of 0 pools nothing."""
    rows, columns = rgb.shape[0] // token_px, rgb.shape[1] // token_px
    grid = (1, rows * 2, columns * 2)
    if threshold == 0:
        return plan_native(grid_thw=grid, merge_size=2)
    luma = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    scores = token_scores(luma, token_px)
    return plan_threshold(scores, grid_thw=grid, merge_size=2, threshold=threshold, block_tokens=4)


def keyframe(number: int, *, still: bool = False) -> Keyframe:
    """Return the keyframe at a place in the sample video (or a page of the sample still)."""
    return Keyframe(
        frame_index=number if still else round(TIMES_S[number] * 25),
        pts_ns=None if still else round(TIMES_S[number] * S),
        score=1.0 if number == 0 else 0.31 + 0.06 * number,
        reason=KeyframeReason.STILL if still else KeyframeReason(REASONS[number]),
        sharpness=412.5 - 23 * number,
        entropy_bits=6.1,
        image_uri=f"s3://results/keyframes/{MEDIA_ID}/{number:04d}.webp",
        width_px=1920,
        height_px=1080,
    )


def pooled_frame(frame: Keyframe, plan: PoolPlan, *, overlay_uri: str | None = None) -> PooledFrame:
    """Return a keyframe as the model sees it."""
    return PooledFrame(
        frame_index=frame.frame_index,
        image_uri=f"s3://results/pooling/{MEDIA_ID}/{frame.frame_index}.png",
        image_size_px=(896, 504),
        plan_uri=f"s3://results/pooling/{MEDIA_ID}/{frame.frame_index}.json",
        overlay_uri=overlay_uri,
        native_tokens=plan.native_tokens,
        pooled_tokens=plan.pooled_tokens,
    )


def request(**changes: object) -> MediaRequest:
    """Return a request whose address carries a patient's name, as addresses do."""
    values: dict[str, object] = {
        "uri": f"s3://archive/2026/{SECRET_NAME}.mp4",
        "case_id": "CASE-0417",
        "prompt": PromptSpec(prompt="When does an instrument touch tissue, and what happens next?"),
    }
    return MediaRequest.model_validate(values | changes)


def media(kind: MediaKind = MediaKind.VIDEO) -> MediaRef:
    """Return the pinned sample medium."""
    return MediaRef(
        uri=request().uri,
        etag="d41d8cd98f00b204e9800998ecf8427e-191",
        size_bytes=1_604_321_887,
        kind=kind,
        case_id="CASE-0417",
        media_id=MEDIA_ID,
    )


def provenance(**changes: object) -> Provenance:
    """Return where the sample report comes from."""
    values: dict[str, object] = {
        "scopeflow_version": "0.1.0",
        "request_digest": "5b1f0c9e77a2d4813e60",
        "flow_run_id": "0d6f6c1e-5a52-4a0e-9d0b-7c1f5f6f2a11",
        "flow_run_url": "http://127.0.0.1:4200/runs/flow-run/0d6f6c1e-5a52-4a0e-9d0b-7c1f5f6f2a11",
        "created_at": "2026-11-30T13:40:12Z",
    }
    return Provenance.model_validate(values | changes)


def timings() -> tuple[StageTiming, ...]:
    """Return the seconds of the seven stages."""
    seconds = {"stream-pull": 0.84, "decode": 41.7, "select-keyframes": 0.21, "extract-keyframes": 6.3}
    seconds |= {"pool-patches": 2.9, "infer": 88.4, "publish": 0.72}
    peaks = {"decode": 412_000_000, "infer": 1_310_000_000, "extract-keyframes": 388_000_000}
    return tuple(
        StageTiming(stage=stage, seconds=value, from_cache=stage == "stream-pull", peak_rss_bytes=peaks.get(stage))
        for stage, value in seconds.items()
    )


def _answer(frames: tuple[Keyframe, ...], texts: tuple[str, ...], *, partial: bool) -> Answer:
    groups = (frames[:4], frames[4:7], frames[7:])
    segments = tuple(
        InferenceResult(
            request_id=f"{number:020d}",
            segment_index=number,
            outcome="truncated" if partial and number == 1 else "complete",
            text=texts[number],
            start_ns=group[0].pts_ns,
            end_ns=group[-1].pts_ns,
            frame_indices=tuple(frame.frame_index for frame in group),
            prompt_tokens=1180 + 90 * number,
            output_tokens=61 + number,
            latency_ms=29_400.0 + 900 * number,
            prefill_steps=(1024, 156 + 90 * number),
            model="scopeflow-demo",
            model_revision="2026-11-demo-1",
            endpoint="embedded",
        )
        for number, group in enumerate(groups)
        if not (partial and number == 2)
    )
    return Answer(
        segments=segments,
        text="\n".join(segment.text for segment in segments),
        summary_method="timeline",
        outcome="partial" if partial else "complete",
        model="scopeflow-demo",
        model_revision="2026-11-demo-1",
        model_notice=NOTICE,
        endpoint="embedded",
    )


TEXTS = (
    "A grasping instrument enters from the lower right at 31 s and touches tissue; before that the field is empty.",
    "The jaws open and close twice. Tissue is lifted slightly, then released.",
    "The instrument is withdrawn. No instrument is visible in the last frame.",
)


@cache
def _pooled_frames() -> tuple[tuple[PooledFrame, ...], tuple[tuple[str, bytes], ...]]:
    """Draw the sample video's keyframes and overlays once; (pooled frames, pictures by URI)."""
    pooled, pictures = [], []
    for number in range(len(TIMES_S)):
        frame, rgb = keyframe(number), scene(number)
        plan = plan_of(rgb)
        overlay_uri = f"s3://results/pooling/{MEDIA_ID}/{number:04d}.webp"
        pooled.append(pooled_frame(frame, plan, overlay_uri=overlay_uri))
        pictures += [(str(frame.image_uri), encoded(rgb)), (overlay_uri, encoded(pool_overlay(rgb, plan)))]
    return tuple(pooled), tuple(pictures)


def complete_report(*, texts: tuple[str, ...] = TEXTS) -> tuple[MediaReport, dict[str, bytes]]:
    """Return a complete report of a video with gaps and warnings, and its pictures by URI."""
    frames = tuple(keyframe(number) for number in range(len(TIMES_S)))
    pooled, drawn = _pooled_frames()
    pictures = dict(drawn)
    report = MediaReport(
        outcome="complete",
        request=request(),
        media=media(),
        probe=MediaProbe(
            container="mp4",
            codec="h264",
            width_px=1920,
            height_px=1080,
            frame_count_from_header=7000,
            duration_ns_from_header=280 * S,
            average_fps_from_header=25.0,
            pixel_format="yuv420p",
            has_audio=True,
        ),
        signals=SignalsRef(
            uri=f"s3://results/signals/{MEDIA_ID}/x.parquet",
            frames_declared=7000,
            frames_delivered=6904,
            frames_corrupt=12,
            frames_scored=2210,
            duration_ns=280 * S,
            gaps=(Gap(start_ns=88 * S, end_ns=91_840_000_000, cause="damaged packets"),),
            warnings=("96 frames fewer were delivered than the header declares.",),
            decode_seconds=41.7,
            peak_rss_bytes=412_000_000,
            decoder="PyAV 18.0.0 / FFmpeg 8.0, 2 threads",
        ),
        keyframes=KeyframeSet(
            media_id=MEDIA_ID, spec=SelectionSpec(), keyframes=frames, frames_considered=2210, capped=True
        ),
        pooling=PoolAccount(
            frames=pooled,
            native_tokens=sum(frame.native_tokens for frame in pooled),
            pooled_tokens=sum(frame.pooled_tokens for frame in pooled),
        ),
        answer=_answer(frames, texts, partial=False),
        timings=timings(),
        provenance=provenance(),
    )
    return report, pictures


def partial_report() -> tuple[MediaReport, dict[str, bytes]]:
    """Return a report whose last segment has no answer, with one picture lost."""
    report, pictures = complete_report()
    assert report.keyframes is not None
    pictures.pop(str(report.keyframes.keyframes[2].image_uri))
    failure = StageFailure(
        stage="infer",
        cause="EndpointTimeout",
        message="Segment 3 of 3 ran past its deadline of 600 s.",
        retryable=True,
    )
    answer = _answer(report.keyframes.keyframes, TEXTS, partial=True)
    warning = "Segment 2 names a time that lies outside it."
    changes = {"outcome": "partial", "answer": answer, "failures": (failure,), "warnings": (warning,)}
    return report.model_copy(update=changes), pictures


def failed_report() -> tuple[MediaReport, dict[str, bytes]]:
    """Return a report that failed in ``decode``; its message carries the file's name."""
    failure = StageFailure(
        stage="decode",
        cause="CorruptMedia",
        message="CASE-0417: no frame could be decoded (moov atom not found)",
        retryable=False,
    )
    report = MediaReport(
        outcome="failed",
        request=request(),
        media=media(),
        timings=timings()[:1],
        failures=(failure,),
        provenance=provenance(flow_run_url=None),
    )
    return report, {}


def still_report() -> tuple[MediaReport, dict[str, bytes]]:
    """Return a complete report of one still picture without pooling."""
    rgb = scene(3)
    frame = keyframe(0, still=True)
    plan = plan_of(rgb, threshold=0)
    report, _ = complete_report()
    answer = _answer((frame,) * 10, ("One instrument is visible.",) * 3, partial=False)
    segment = answer.segments[0].model_copy(update={"frame_indices": (0,)})
    answer = answer.model_copy(update={"segments": (segment,), "text": segment.text, "summary_method": "single"})
    changes = {
        "media": media(MediaKind.IMAGE),
        "signals": None,
        "probe": MediaProbe(container="png", width_px=896, height_px=504, frame_count_from_header=1),
        "keyframes": KeyframeSet(media_id=MEDIA_ID, spec=SelectionSpec(), keyframes=(frame,), frames_considered=1),
        "pooling": PoolAccount(
            frames=(pooled_frame(frame, plan),),
            native_tokens=plan.native_tokens,
            pooled_tokens=plan.pooled_tokens,
        ),
        "answer": answer,
    }
    return report.model_copy(update=changes), {str(frame.image_uri): encoded(rgb, kind="PNG")}

"""From pooled keyframes to questions, and from answers to one text."""

from blocks.embedded_vlm import ModelCard
from tasks.algorithms.answers import answer_outcome, timeline_text, unmatched_times
from tasks.algorithms.prompts import cut_segments
from tasks.records.base import digest_of
from tasks.records.errors import BudgetExceeded
from tasks.records.inference import Answer, InferenceRequest, InferenceResult, SegmentFrame
from tasks.records.keyframes import KeyframeSet
from tasks.records.pooling import PoolAccount
from tasks.records.specs import PromptSpec


def inference_requests(
    chosen: KeyframeSet, pooled: PoolAccount, prompt: PromptSpec, card: ModelCard
) -> list[InferenceRequest]:
    """Cut a medium into questions of bounded size.

    A question's digest holds what determines its answer, the model included, and no deadline or chunk size: raising one
    after a failure asks only what is still unanswered.

    Raises:
        BudgetExceeded: the pictures alone take more than ``prompt.max_tokens_total``; nothing has been spent yet.
    """
    if prompt.max_tokens_total is not None and pooled.pooled_tokens > prompt.max_tokens_total:
        raise BudgetExceeded(
            f"the pictures take {pooled.pooled_tokens} tokens after pooling, over the limit of "
            f"{prompt.max_tokens_total}; pool more, keep fewer keyframes or raise the limit"
        )
    times = {keyframe.frame_index: keyframe.pts_ns for keyframe in chosen.keyframes}
    frames = [
        SegmentFrame(
            image_uri=frame.image_uri,
            plan_uri=frame.plan_uri,
            frame_index=frame.frame_index,
            pts_ns=times[frame.frame_index],
            tokens=frame.pooled_tokens,
        )
        for frame in pooled.frames
    ]
    segments = cut_segments(
        frames, max_tokens=prompt.max_segment_tokens, max_frames=min(card.max_segment_frames, prompt.max_segment_frames)
    )
    return [
        InferenceRequest(
            request_id=digest_of(
                index,
                *segment,
                prompt.algorithm_version,
                prompt.prompt,
                prompt.max_output_tokens,
                card.model,
                card.revision,
            ),
            media_id=chosen.media_id,
            segment_index=index,
            frames=segment,
            prompt=prompt.prompt,
            max_output_tokens=prompt.max_output_tokens,
            prefill_chunk_tokens=prompt.prefill_chunk_tokens,
            timeout_s=prompt.timeout_s,
        )
        for index, segment in enumerate(segments)
    ]


def combine(results: list[InferenceResult], *, segments_asked: int, notice: str | None) -> Answer:
    """Make one answer of the segments' answers, in order of time.

    Args:
        results: at least one.
        notice: what the model's card says a reader must know.
    """
    first = results[0]
    return Answer(
        segments=tuple(results),
        text=timeline_text(results),
        summary_method="single" if segments_asked == 1 else "timeline",
        outcome=answer_outcome(results, segments_asked=segments_asked),
        model=first.model,
        model_revision=first.model_revision,
        model_notice=notice,
        endpoint=first.endpoint,
    )


def time_warnings(questions: list[InferenceRequest], results: list[InferenceResult]) -> tuple[str, ...]:
    """Return a warning for each answer that names times which none of its frames has."""
    times = {question.request_id: [frame.pts_ns for frame in question.frames] for question in questions}
    found = ((result, unmatched_times(result.text, times[result.request_id])) for result in results)
    return tuple(
        f"The answer to segment {result.segment_index + 1} names times that none of its frames has: "
        f"{', '.join(wrong)} s. Trust the times of the keyframes."
        for result, wrong in found
        if wrong
    )

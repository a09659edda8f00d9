"""extract-keyframes: the chosen frames as pictures, and a contact sheet."""

from pathlib import Path
from typing import Any

from prefect import task

from blocks.media_store import MediaStore
from blocks.run_view import StageProgress, image_artifact
from blocks.scratch import scratch_folder
from tasks.algorithms.contact_sheet import contact_sheet
from tasks.algorithms.pictures import Pixels, luma_of, read_picture, webp_bytes
from tasks.algorithms.signals import difference
from tasks.children import run_on_medium
from tasks.policy import RETRIES, cached_as, sealed
from tasks.records.base import digest_of
from tasks.records.errors import CorruptMedia
from tasks.records.keyframes import Keyframe, KeyframeSet
from tasks.records.media import PulledMedia
from tasks.records.specs import DecodeSpec


def _digest(parameters: dict[str, Any]) -> tuple[str, str]:
    return parameters["pulled"].media.media_id, digest_of(parameters["chosen"], parameters["spec"].algorithm_version)


@task(name="extract-keyframes", **RETRIES, **cached_as("extract-keyframes", _digest))
@sealed
def extract_keyframes(pulled: PulledMedia, chosen: KeyframeSet, spec: DecodeSpec, store: MediaStore) -> KeyframeSet:
    """Extract exactly the chosen frames at full resolution, upright and with square pixels."""
    access = store.access()
    key = f"keyframes/{pulled.media.media_id}/{digest_of(chosen, spec.algorithm_version)}"
    with scratch_folder() as folder, StageProgress("extract-keyframes") as progress:
        found = run_on_medium(
            "extract",
            pulled,
            spec,
            store,
            on_progress=progress.show,
            keyframes=[{"frame_index": k.frame_index, "pts_ns": k.pts_ns} for k in chosen.keyframes],
            out_dir=str(folder),
        )
        pictures = {picture["frame_index"]: picture for picture in found["pictures"]}
        missing = [k.frame_index for k in chosen.keyframes if k.frame_index not in pictures]
        if missing:
            raise CorruptMedia(f"{len(missing)} of {len(chosen.keyframes)} chosen frames could not be decoded again")

        def picture_of(keyframe: Keyframe) -> Pixels:
            return read_picture(Path(pictures[keyframe.frame_index]["path"]).read_bytes())

        extracted: list[Keyframe] = []
        before: Pixels | None = None
        for keyframe in chosen.keyframes:
            found_picture = pictures[keyframe.frame_index]
            luma = luma_of(picture_of(keyframe))
            # Selection could only estimate it from steps over several references; here are both pictures.
            score = 1.0 if before is None else difference(before, luma, spec.analysis_width_px)
            before = luma
            name = f"{key}/{keyframe.frame_index:08d}.webp"
            uri = access.write_file(name, Path(found_picture["path"]), content_type="image/webp")
            size = {"width_px": found_picture["width_px"], "height_px": found_picture["height_px"]}
            extracted.append(keyframe.model_copy(update={"image_uri": uri, "score": score, **size}))
        shown = ((keyframe, picture_of(keyframe)) for keyframe in extracted)
        sheet = contact_sheet(shown, total=len(extracted))
    sheet_uri = access.write_bytes(f"{key}/sheet.webp", webp_bytes(sheet, quality=85), content_type="image/webp")
    image_artifact("contact-sheet", sheet, description=f"Contact sheet: {len(extracted)} keyframes")
    return chosen.model_copy(update={"keyframes": tuple(extracted), "sheet_uri": sheet_uri})

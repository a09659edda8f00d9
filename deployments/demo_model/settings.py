"""Every number that defines the demo model, its training scenes and its training, in one place."""

from dataclasses import dataclass, field
from pathlib import Path

WEIGHTS = Path(__file__).parent / "weights"
MODEL_NAME = "scopeflow-demo-2m"
NOTICE = (
    "This model knows only rendered scenes of laparoscopy: it was trained on drawings, never on a patient. "
    "Its answers about real pictures mean nothing. Not for clinical use."
)


@dataclass(frozen=True)
class DemoSettings:
    """Hyper-parameters of the demo model; sizes in pixels, tokens or examples as named."""

    width: int = 128
    heads: int = 4
    vision_layers: int = 4
    language_layers: int = 4
    language_mlp: int = 512
    vocabulary: int = 512
    rope_theta: float = 100.0
    mrope_section: tuple[int, int, int] = (4, 6, 6)
    max_positions: int = 8192
    initial_sigma: float = 0.05
    patch_px: int = 14
    merge: int = 2
    min_pixels: int = 56 * 28 * 28
    max_pixels: int = 84 * 28 * 28
    image_mean: tuple[float, float, float] = (0.48145466, 0.4578275, 0.40821073)  # as Qwen2-VL has them
    image_sigma: tuple[float, float, float] = (0.26862954, 0.26130258, 0.27577711)

    max_segment_frames: int = 2  # it answers up to four, but then 3 % of its times are wrong; with two none were
    # (width, height) of the pictures drawn for training; each becomes one grid after smart_resize.
    picture_sizes: tuple[tuple[int, int], ...] = ((640, 360), (560, 420), (504, 504), (600, 480))
    picture_shares: tuple[float, ...] = (0.5, 0.2, 0.15, 0.15)

    seed: int = 20
    steps: int = 2600
    frames_per_step: int = 16
    prompts_per_frame: int = 3  # the vision tower is the costly part: each picture is asked about several times
    tower_every: int = 6  # once it has learnt what covers each token, the vision tower need not learn in every step
    learning_rate: float = 1.5e-3
    warmup_steps: int = 120
    weight_decay: float = 0.02
    dense_weight: float = 1.0
    pool_scenes: int = 16000
    checkpoint_steps: int = 150
    frame_counts: tuple[int, ...] = field(default=(1, 2, 3, 4))
    frame_count_shares: tuple[float, ...] = field(default=(0.1, 0.35, 0.15, 0.4))

    @property
    def token_px(self) -> int:
        """Edge of a merged vision token in pixels."""
        return self.patch_px * self.merge


SETTINGS = DemoSettings()

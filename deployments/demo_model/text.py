"""The words of the demo model: stamps, questions, answers and the tokenizer trained on them."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tasks.algorithms.scenes import PLACED_KINDS, PLACES, Finding

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

IM_START, IM_END = "<|im_start|>", "<|im_end|>"
VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
IMAGE_PAD, VIDEO_PAD, END_OF_TEXT = "<|image_pad|>", "<|video_pad|>", "<|endoftext|>"
SPECIAL_TOKENS = (END_OF_TEXT, IM_START, IM_END, VISION_START, VISION_END, IMAGE_PAD, VIDEO_PAD)

DEFAULT_SYSTEM = "You are a helpful assistant."
DEFAULT_QUESTION = "Describe the instruments and events in each frame."
QUESTIONS = (
    DEFAULT_QUESTION,
    "Describe the instruments and events.",
    "What do you see in each frame?",
    "What is visible?",
    "Which instruments are in use, and where?",
    "List the instruments and findings of every frame.",
    "Is there any bleeding? Describe each frame.",
    "Describe this picture.",
    "Describe what happens in this part of the video.",
    "Report instruments, bleeding and smoke for each image with its time.",
    "Summarise the frames.",
    "Where are the tools?",
    "Name every tool and its position.",
    "Tell me what the surgeon is doing.",
    "When does the bleeding start?",
    "How many instruments are there?",
)
# fmt: off
_WORDS = (
    "what", "where", "when", "which", "how", "is", "are", "the", "a", "an", "of", "in", "on", "at", "and", "or",
    "each", "every", "any", "all", "frame", "frames", "image", "picture", "video", "clip", "scene", "instrument",
    "instruments", "tool", "tools", "grasper", "scissors", "needle", "bleeding", "smoke", "tissue", "surgeon",
    "event", "events", "place", "position", "time", "seconds", "please", "describe", "list", "name", "show", "tell",
    "me", "report", "explain", "find", "count", "summarise", "see", "visible", "used", "happening", "happens",
    "left", "right", "upper", "lower", "centre", "first", "last", "before", "after", "there", "this", "these",
    "with", "for",
)
# fmt: on

CHAT_TEMPLATE = (
    "{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}"
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\n" + DEFAULT_SYSTEM + "<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n"
    "{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "{% set image_count.value = image_count.value + 1 %}"
    "{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content['type'] == 'video' or 'video' in content %}{% set video_count.value = video_count.value + 1 %}"
    "{% if add_vision_id %}Video {{ video_count.value }}: {% endif %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def stamp(seconds: float | None, ordinal: int = 1) -> str:
    """Return the text before a frame: its time, or its number (from 1) where it has none."""
    return f"<frame {ordinal}>" if seconds is None else f"<{seconds:.1f} seconds>"


def answer_line(findings: Sequence[Finding], seconds: float | None, ordinal: int = 1) -> str:
    """Return the answer's line for one frame, e.g. ``12.3 s: grasper upper left, smoke.``."""
    head = f"frame {ordinal}" if seconds is None else f"{seconds:.1f} s"
    return f"{head}: {', '.join(str(finding) for finding in findings) or 'no instruments'}."


def draw_question(random: Random) -> str:
    """Return the default question, a paraphrase or a jumble of words."""
    roll = random.random()
    if roll < 0.4:
        return DEFAULT_QUESTION
    if roll < 0.8:
        return random.choice(QUESTIONS)
    words = " ".join(random.choices(_WORDS, k=random.randint(2, 12)))
    return words.capitalize() + random.choice("..??!") if random.random() < 0.7 else words


def train_tokenizer(vocabulary: int) -> "PreTrainedTokenizerFast":
    """Train the byte-level BPE on captions and prompts; every byte is a token, so any prompt encodes."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    split = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(_corpus(), trainer)
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bpe,
        eos_token=IM_END,
        pad_token=END_OF_TEXT,
        additional_special_tokens=list(SPECIAL_TOKENS),
        clean_up_tokenization_spaces=False,
        model_max_length=8192,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def load_tokenizer(folder: Path) -> "PreTrainedTokenizerFast":
    """Load a saved tokenizer."""
    from transformers import PreTrainedTokenizerFast

    loaded: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(folder)
    return loaded


def _corpus() -> list[str]:
    random = Random(0)
    lines = [stamp(random.uniform(0, 4000)) for _ in range(400)] + ["<frame 1>", "system\nuser\nassistant\n"] * 400
    for _ in range(4000):
        kinds = random.sample(PLACED_KINDS, random.randint(0, 3))
        findings = [Finding(kind, random.choice(PLACES)) for kind in kinds]
        if random.random() < 0.2:
            findings.append(Finding("smoke", None))
        lines.append(answer_line(findings, random.choice((None, random.uniform(0, 4000)))) + "\n")
    lines += [draw_question(random) for _ in range(2000)] + [DEFAULT_SYSTEM] * 400
    return lines

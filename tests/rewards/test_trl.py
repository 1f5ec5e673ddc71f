"""The block of docs/rewards.md in trl's GRPOTrainer, one update on a CPU: a model that reads, and one that sees."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uni_train.core.reading_limits import parse_json
from uni_train.data_gen.export import make
from uni_train.data_gen.maze.task import Maze
from uni_train.data_gen.task import Item

PAGE = Path(__file__).parents[2] / "docs/rewards.md"
SIZES = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<unk>", "<pad>", "<eos>", "<image>", "white", "black", "red"]
    core = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", pad_token="<pad>", eos_token="<eos>", padding_side="left",
        additional_special_tokens=["<image>"], extra_special_tokens={"image_token": "<image>"},
    )  # fmt: skip


def reader() -> tuple[Any, Any]:
    from transformers import LlamaConfig, LlamaForCausalLM

    words = tokenizer()
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(words), eos_token_id=2, pad_token_id=1, **SIZES)), words


def seer() -> tuple[Any, Any]:
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    words = tokenizer()
    images = CLIPImageProcessorPil(size={"shortest_edge": 24}, crop_size={"height": 24, "width": 24})
    template = (
        "{% for message in messages %}{% for part in message.content %}"
        "{{ '<image>' if part.type == 'image' else part.text }} {% endfor %}{% endfor %}"
    )
    processor = LlavaProcessor(
        images, words, patch_size=12, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=template,
    )  # fmt: skip
    text = LlamaConfig(vocab_size=len(words), eos_token_id=2, pad_token_id=1, **SIZES)
    vision = CLIPVisionConfig(image_size=24, patch_size=12, **SIZES)
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=3)
    return LlavaForConditionalGeneration(config), processor


@pytest.mark.slow
@pytest.mark.parametrize("sees", [False, True], ids=["reads", "sees"])
def test_trl_trains_with_our_reward_as_the_page_says(sees: bool, tmp_path: Path) -> None:
    from datasets import load_dataset
    from trl import GRPOConfig, GRPOTrainer

    block = re.search(r'^```python title="trl"\n(.*?)^```', PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert block is not None
    page: dict[str, Any] = {}
    exec(block[1], page)
    made = make(Maze("nano"), 3, 2, "train", 0, "nano", tmp_path / "data", False, "parquet")
    file = str(made.path / "train.parquet")
    rows = load_dataset("parquet", data_files=file, cache_dir=str(tmp_path / "cache"))["train"]
    called: list[dict[str, Any]] = []

    def reward(**columns: Any) -> list[float | None]:
        called.append(columns)
        return page["drawn_reward"](**columns)

    model, words = seer() if sees else reader()
    trainer = GRPOTrainer(
        model=model, reward_funcs=reward, processing_class=words,
        train_dataset=page["image_rows" if sees else "text_rows"](rows),
        args=GRPOConfig(
            output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=4, num_generations=2, logging_steps=1,
            max_completion_length=4, bf16=False, use_cpu=True, activation_checkpointing=False, report_to=[],
        ),
    )  # fmt: skip
    trainer.train()
    (log,) = (entry for entry in trainer.state.log_history if "rewards/reward/mean" in entry)
    assert log["rewards/reward/mean"] == 0 and trainer.state.global_step == 1
    (columns,) = called
    assert len(columns["completions"]) == 4 and not {"image_seed", "input_image"} & columns.keys()
    assert ("image" in columns) == sees
    # What it gave is what the page can read: the very target, in the form of trl's completions, is right.
    (completion, *_), (text, *_) = columns["completions"], columns["item"]
    item = Item.from_dict(parse_json(text, "item"))
    target = "\n".join(" ".join(f"#{bytes(p).hex()}" for p in row) for row in np.asarray(Maze("nano").render(item, 0)))
    answer = [{**completion[0], "content": target}] if sees else target
    assert page["drawn_reward"](**{**columns, "completions": [answer, *columns["completions"][1:]]}) == [1, 0, 0, 0]

"""Train a judge with trl on the rows of `data make --format judge`; docs/tutorials/train_judge.md has the commands.

    python examples/judge/train_judge.py judge_rows/train.parquet my_judge --held-out judge_test/seen.parquet
    transformers serve my_judge

It is a process of its own: trl's trainers are accelerate's, which share no process with Lightning's.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import transformers as hf
from datasets import Dataset, load_dataset
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer
from trl.data_utils import prepare_multimodal_messages

from uni_train.eval.reading import yes_no

TEMPLATE = (
    "{% for message in messages %}{{ '<answer>' if message.role == 'assistant' }}"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{{ '<image>' if part.type == 'image' else part.text }}{% endfor %}{% endif %}"
    "{{ '<eos>' if message.role == 'assistant' }}{% endfor %}{{ '<answer>' if add_generation_prompt }}"
)


def tiny(rows: Dataset, width: int, layers: int) -> tuple[Any, Any]:
    """A LLaVA with random weights, and its processor. Words are tokens, and so are runs of lines that recur."""
    texts = [message["content"] for name in ("prompt", "completion") for text in rows[name] for message in text]
    lined = [re.findall(r"\n*[^\n]+", text) for text in texts]
    lines = Counter(line for text in lined for line in text)
    often = {line for line, n in lines.items() if n > max(1, len(rows) / 100)}
    fixed = sorted({"".join(run) for text in lined for known, run in groupby(text, often.__contains__) if known})
    special = ["<unk>", "<pad>", "<eos>", "<image>", "<answer>"]
    words = [*special, *sorted({word for line in lines.keys() - often for word in line.split()})]
    core = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.add_tokens([AddedToken(line, normalized=False) for line in fixed])
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", pad_token="<pad>", eos_token="<eos>", padding_side="left",
        additional_special_tokens=["<image>", "<answer>"], extra_special_tokens={"image_token": "<image>"},
    )  # fmt: skip
    side = min(96, rows[0]["images"][-1].width // 8 * 8)
    images = hf.CLIPImageProcessorPil(size={"height": side, "width": side}, do_center_crop=False)
    processor = hf.LlavaProcessor(
        images, tokenizer, patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=TEMPLATE,
    )  # fmt: skip
    sizes = {"hidden_size": width, "intermediate_size": 3 * width, "num_attention_heads": 4}
    ends = {"vocab_size": len(tokenizer), "pad_token_id": 1, "eos_token_id": 2}
    config = hf.LlavaConfig(
        vision_config=hf.CLIPVisionConfig(image_size=side, patch_size=8, num_hidden_layers=2, **sizes),
        text_config=hf.LlamaConfig(num_hidden_layers=layers, **ends, **sizes),
        image_token_index=3, vision_feature_layer=-1,
    )  # fmt: skip
    return hf.LlavaForConditionalGeneration(config), processor


def right(completions: list[Any], verdict: list[str], **columns: Any) -> list[float]:
    """1 where the judge's verdict is the proved one."""
    said = [yes_no(messages[-1]["content"]) for messages in completions]
    return [float(answer == (proved == "pass")) for answer, proved in zip(said, verdict, strict=True)]


def report(judge: Any, processor: Any, rows: Dataset) -> None:
    """Print for each kind of image how often the judge's verdict is not the proved one; unreadable ones count."""
    errors = defaultdict(list)
    for start in range(0, len(rows), 32):
        some = rows.select(range(start, min(start + 32, len(rows))))
        chats = [prepare_multimodal_messages(row["prompt"], row["images"]) for row in some]
        texts = [processor.apply_chat_template(chat, add_generation_prompt=True) for chat in chats]
        images = [image for row in some for image in row["images"]]
        inputs = processor(text=texts, images=images, padding=True, return_tensors="pt").to(judge.device)
        ids = judge.eval().generate(**inputs, max_new_tokens=128, do_sample=False)[:, inputs["input_ids"].shape[1] :]
        for row, reply in zip(some, processor.batch_decode(ids, skip_special_tokens=True), strict=True):
            known = row["kind"] == "right" or row["kind"].startswith(("other ", "another "))
            kind = row["kind"] if known else f"attack, {'right' if row['verdict'] == 'pass' else 'wrong'}"
            errors[kind].append(yes_no(reply) != (row["verdict"] == "pass"))
    for kind, wrong in sorted(errors.items()):
        print(f"{kind:25} {sum(wrong):5} of {len(wrong)} judged wrongly ({sum(wrong) / len(wrong):.1%})")


@click.command()
@click.argument("rows", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--held-out", type=click.Path(exists=True, dir_okay=False), help="Rows on which errors are counted.")
@click.option("--model", default="tiny", show_default=True, help="tiny, or a folder or Hub id of a model that sees.")
@click.option("--width", default=160, show_default=True, help="Of tiny.")
@click.option("--layers", default=4, show_default=True, help="Of tiny's text model.")
@click.option("--updates", default=4800, show_default=True, help="Of supervised fine-tuning.")
@click.option("--batch", default=32, show_default=True, help="Rows an update.")
@click.option("--rate", default=1e-3, show_default=True, help="Learning rate; about 1e-5 for a pretrained model.")
@click.option("--grpo", default=0, show_default=True, help="Updates of GRPO afterwards, by the proved verdicts.")
def main(
    rows: Path, out: Path, held_out: str | None, model: str, width: int, layers: int, updates: int, batch: int,
    rate: float, grpo: int,
) -> None:  # fmt: skip
    """Train on ROWS, a Parquet file of `data make --format judge`, and write the judge to the folder OUT."""
    data = load_dataset("parquet", data_files=str(rows))["train"]
    if not {"images", "prompt", "completion", "verdict"} <= {*data.column_names}:
        raise click.UsageError(f"{rows} holds no rows of a judge: uni_train data make --format judge writes them")
    try:
        judge, processor = tiny(data, width, layers) if model == "tiny" else (
            hf.AutoModelForImageTextToText.from_pretrained(model), hf.AutoProcessor.from_pretrained(model)
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--model {model} is no model that sees: {str(error).splitlines()[0]}") from None
    # Where nobody says otherwise, trl computes in bfloat16 and cuts at 1024 tokens, where the verdict is.
    common = {
        "output_dir": str(out), "per_device_train_batch_size": batch, "report_to": [], "save_strategy": "no",
        "disable_tqdm": True, "bf16": False, "activation_checkpointing": False, "lr_scheduler_type": "cosine",
        "warmup_steps": 0.05,
    }  # fmt: skip
    trained = {"model": judge, "processing_class": processor}
    if updates:
        sft = SFTConfig(max_steps=updates, learning_rate=rate, max_length=None, logging_steps=100, **common)
        SFTTrainer(**trained, train_dataset=data, args=sft).train()
    if grpo:
        by = GRPOConfig(max_steps=grpo, learning_rate=rate / 30, max_completion_length=128, logging_steps=1, **common)
        shown = data.remove_columns("completion")
        GRPOTrainer(**trained, train_dataset=shown, reward_funcs=right, args=by).train()
    judge.save_pretrained(out)
    processor.save_pretrained(out)
    if held_out:
        report(judge, processor, load_dataset("parquet", data_files=held_out)["train"])


if __name__ == "__main__":
    main()

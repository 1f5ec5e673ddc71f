"""Skills of unified multimodal models, an abstract class each; a model inherits those that it has.

Nothing is emulated in silence: `expect_skill` raises `SkillMissing` for a model that lacks one. A skill that depends on
the checkpoint raises it in its methods.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from uni_train.core.errors import SkillMissing
from uni_train.flow.schedule import Schedule

OnStep = Callable[[int, int], None]
"""Called with (done, in all) after each step of an image or token of a text, for progress bars."""


@dataclass(frozen=True, slots=True)
class Request:
    """One thing a model is asked.

    Attributes:
        id: names the request in errors and files.
        prompt: what the user says.
        images: uint8 [H, W, 3] each, the input images, before the prompt.
        thought: for `draw`: the reasoning to draw by (CoT); None draws from the prompt alone (Normal).
        size: height and width in pixels of the image to draw; None: that of the last image (as the model resizes
            it), or the model's own where there is none.
        seed: decides all randomness of this request, so that its result does not depend on its batch.
    """

    id: str
    prompt: str
    images: tuple[np.ndarray, ...] = ()
    thought: str | None = None
    seed: int = 0
    size: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One text or one image of an interleaved example (one of the two is given).

    `learn`: with loss. An image that is learned and followed by more is shown after that, as if it had been given.
    """

    text: str | None = None
    image: np.ndarray | None = None
    learn: bool = False


@dataclass(frozen=True, slots=True)
class ImageSizes:
    """How large a model that resizes its images makes those of an example. None: as when it draws and answers.

    Attributes:
        latents: shortest and longest side in pixels of images that are learned or shown as latents.
        seen: the same of images that are looked at.
        seen_pixels: most pixels of all images of an example together that are looked at.
    """

    latents: tuple[int, int] | None = None
    seen: tuple[int, int] | None = None
    seen_pixels: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """D noised states of one image, and the velocity to be learned at each.

    Attributes:
        t: float [D], noise levels within (0, 1).
        clean, noise: float32 [D, G, C]. A state is (1 - t) clean + t noise, its velocity noise - clean; neither need be
            an image or noise that anybody has seen (uni_train.flow.distillation.as_noised).
        size: height and width of the image in pixels.
    """

    t: np.ndarray
    clean: np.ndarray
    noise: np.ndarray
    size: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Example:
    """One thing a model is trained on; which of the optional parts are there says what is learned.

    Shown images are conditions of editing if the example has an image to be drawn. Else they are only understood.

    Attributes:
        prompt: what the user says (no loss).
        images: uint8 [H, W, 3], the input images, before the prompt (no loss): captioning, verification, editing.
        thought: reasoning in think mode; trained with cross-entropy if `learn_thought`.
        target: uint8 [H, W, 3] to be drawn; trained with the rectified-flow loss.
        states: in place of a target: given states of an image, with given velocities; the same loss.
        answer: text reply; trained with cross-entropy.
        noise_draws: how many noised copies of the target follow the same text.
        noise_level: within (0, 1), of all copies, and nothing is left out (`Dropout`); None: drawn.
        learn_thought: False shows the thought without learning to say it.
        turns: any order of texts and images, in place of all the parts above but `noise_draws`.
        sizes: how its images are resized.
        seed: decides the noise of this example (levels, latents), whatever batch or rank it lands in.
    """

    prompt: str = ""
    images: tuple[np.ndarray, ...] = ()
    thought: str | None = None
    target: np.ndarray | None = None
    states: States | None = None
    answer: str | None = None
    noise_draws: int = 1
    noise_level: float | None = None
    learn_thought: bool = True
    turns: tuple[Turn, ...] = ()
    sizes: ImageSizes = ImageSizes()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Dropout:
    """Shares of the conditions of a drawn image that are left out in training, each by a draw of its own."""

    text: float = 0.0
    vit: float = 0.0
    vae: float = 0.0


@dataclass(slots=True)
class SupervisedLoss:
    """Sums and counts of a batch, scalars, so that the trainer can normalise by the counts of all ranks.

    Attributes:
        ce_sum, ce_tokens: cross-entropy in nats over the supervised text tokens, and their number.
        mse_sum, mse_tokens: squared velocity error (mean over channels) over the noised latent tokens, their number.
        mse_images: computes the mean of each noised image; its order does not depend on pixels. None: there is none.
    """

    ce_sum: Tensor
    ce_tokens: Tensor
    mse_sum: Tensor
    mse_tokens: Tensor
    mse_images: Callable[[], Tensor] | None = None


class Condition(Protocol):
    """What `FlowPolicy.encode` returns: requests as the model has read them, one row each."""

    def __len__(self) -> int:
        """The number of rows."""

    def select(self, rows: Sequence[int] | Tensor) -> Condition:
        """The given rows, in that order; a row may appear several times."""

    def repeat(self, times: int) -> Condition:
        """Every row `times` times in a row: a group of `times` candidates shares one reading."""


class UnifiedModel(nn.Module, ABC):
    """A model by its name and family; what it can do is in the skills that it inherits."""

    name: str
    family: ClassVar[str] = ""
    """By which models.family finds what saves and loads it."""
    sampling: Any = None
    """How it draws and writes, for models that have such settings."""
    skill: ClassVar[str]
    """What a model without this class cannot do, as `SkillMissing` says it."""

    def missing(self, kind: type[UnifiedModel]) -> SkillMissing:
        """The error of a caller that needs this skill."""
        return SkillMissing(self.name, kind.skill)

    def describe(self) -> dict[str, Any]:
        """What config.json says beside the weights: sizes, JSON-able."""
        return {}

    @property
    def vocabulary(self) -> int | None:
        """Number of token ids; None where a model counts none."""
        return None

    def tokenizer_problem(self, text: str) -> str | None:
        """What is wrong with the markers, or with `text` after encoding and decoding; None: nothing."""
        return None

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device


S = TypeVar("S", bound=UnifiedModel)


def expect_skill(model: Any, kind: type[S]) -> S:
    """The model, if it has this skill; what is no `UnifiedModel` refuses by itself.

    Raises:
        SkillMissing: the model does not inherit `kind`.
    """
    if isinstance(model, UnifiedModel) and not isinstance(model, kind):
        raise model.missing(kind)
    return model


class TextGenerator(UnifiedModel):
    """A model that reasons and answers in text, about images where a request has some."""

    skill = "write text"

    @abstractmethod
    def think(
        self, requests: Sequence[Request], temperature: float | None = None, on_step: OnStep | None = None
    ) -> list[str]:
        """The reasoning before drawing (CoT), one text a request; `temperature` replaces the model's own."""

    @abstractmethod
    def answer(self, requests: Sequence[Request], *, think: bool = False, on_step: OnStep | None = None) -> list[str]:
        """A text reply to the images and the prompt, one a request; `think` has it reason aloud first."""


class ImageGenerator(UnifiedModel):
    """A model that draws."""

    skill = "draw"

    @abstractmethod
    def draw(self, requests: Sequence[Request], on_step: OnStep | None = None) -> list[np.ndarray]:
        """One image a request, uint8 [H, W, 3], by `request.thought` where it has one."""

    def think_and_draw(
        self, requests: Sequence[Request], temperature: float | None = None, on_step: OnStep | None = None
    ) -> tuple[list[str], list[np.ndarray]]:
        """Thoughts and the images drawn by them; a model may spare itself the second reading of the requests.

        Raises:
            SkillMissing: it writes no thoughts.
        """
        thoughts = expect_skill(self, TextGenerator).think(requests, temperature, on_step)
        thoughtful = [replace(request, thought=thought) for request, thought in zip(requests, thoughts, strict=True)]
        return thoughts, self.draw(thoughtful, on_step)

    def sampling_at(self, guidance: float) -> Any:
        """What `sampling`, if a SamplingConfig, would be with this scale of the guidance by text; 1 is none."""
        return replace(self.sampling, cfg_text_scale=guidance, edit_text_scale=guidance)

    @contextmanager
    def guided_at(self, guidance: float | None) -> Iterator[None]:
        """Within this block it reads and draws with `sampling_at` this scale; None: as it is."""
        before = self.sampling
        self.sampling = before if guidance is None else self.sampling_at(guidance)
        try:
            yield
        finally:
            self.sampling = before


class InterleavedGenerator(UnifiedModel):
    """A model that writes and draws in one pass."""

    skill = "answer with text and images in one pass"

    @abstractmethod
    def compose(self, requests: Sequence[Request], on_step: OnStep | None = None) -> list[list[str | np.ndarray]]:
        """An answer of texts and images (uint8 [H, W, 3]) in one pass, in their order, one a request."""


class Trainable(UnifiedModel):
    """A model that is trained on examples."""

    skill = "be trained"
    trained_parts: ClassVar[Mapping[str, str]] = {}
    """Part that recipes may freeze (vit, connector, understanding, generation) -> what is searched in its parameters'
    names; trained=moe_gen trains `generation` alone."""
    adapter_layers: ClassVar[Mapping[str, str]] = {}
    """lora.targets (understanding, generation, both) -> a regular expression for whole names of linear layers."""
    adapter_alpha: bool = True
    """Whether diffusers' loader reads a scalar `alpha` beside each adapter of this model's transformer."""
    thread_safe_tokenizer: ClassVar[bool] = False  # those of transformers pad as was last asked

    @abstractmethod
    def collate(self, examples: Sequence[Example], seed: int) -> Any:
        """Examples to a batch of tensors, with all the batch's randomness drawn from `seed`."""

    @abstractmethod
    def supervised_loss(self, batch: Any) -> SupervisedLoss:
        """Cross-entropy and velocity error of a collated batch."""

    @abstractmethod
    def prepare_training(
        self,
        *,
        timestep_shift: float,
        text_dropout: float,
        vit_dropout: float = 0.0,
        vae_dropout: float = 0.0,
        activation_checkpointing: int = 0,
    ) -> None:
        """How examples are trained on from now on.

        Args:
            timestep_shift: of the noise levels.
            text_dropout, vit_dropout, vae_dropout: shares of the texts and of the two forms of input images to leave
                out. It applies where an image is drawn (for guidance).
            activation_checkpointing: recompute every n-th layer in the backward pass instead of keeping its
                activations; 0: none.
        """

    @abstractmethod
    def example_tokens(self, example: Example) -> int:
        """How many tokens an example has of which nothing is left out, by which batches are filled up.

        Raises:
            UserError: an example that this model cannot learn.
        """

    def read_often(self, examples: Iterable[Example]) -> None:
        """What frozen weights compute of these texts may be kept from now on; that of an earlier call is forgotten."""

    def replay_rows(
        self, tasks: Collection[str]
    ) -> Mapping[str, tuple[float, Callable[[random.Random], Example]]] | None:
        """Kinds of pretraining rows that keep old skills alive: name -> (share, maker); None if there are none.

        tasks: what it is trained on meanwhile.
        """
        return None


class FlowPolicy(ImageGenerator, Trainable):
    """A model that draws in steps of a flow, which Flow-GRPO reinforces and distillation follows.

    Shapes are B rows, G latent tokens of the largest image and C numbers a token. Rows of smaller images are padded
    with zeros:

        condition = model.encode(requests).repeat(k)         # each request is read once, without gradients
        x = model.noise(requests)                            # [B, G, C] at t = 1
        v = model.velocity(x, t, condition)                  # [B, G, C], noise - clean; gradients to weights and x
        images = model.decode(x, condition)                  # at t = 0
    """

    skill = "be trained by reinforcement: it draws in no steps"
    encoder_trained: ClassVar[bool] = True
    """Whether `encode` depends on weights that are trained; else an epoch's prompts are encoded once."""

    @abstractmethod
    def encode(self, requests: Sequence[Request]) -> Condition:
        """Read requests to draw from, with their thoughts; without gradients."""

    @abstractmethod
    def noise(self, requests: Sequence[Request]) -> Tensor:
        """float32 [B, G, C], where drawing starts (t = 1); each row from its request's seed alone."""

    @abstractmethod
    def velocity(self, x_t: Tensor, t: Tensor | float, condition: Any) -> Tensor:
        """float32 [B, G, C]: the guided velocity noise - clean at noise level `t` (a number, or [B]).

        G may be larger than the images ask for: rows taken from a larger batch.
        """

    @abstractmethod
    def decode(self, latents: Tensor, condition: Any = None) -> list[np.ndarray]:
        """Images uint8 [H, W, 3] of clean latents [B, G, C]; None: all of the model's own size."""

    @abstractmethod
    def schedule(self, condition: Any, row: int = 0, steps: int | None = None) -> Schedule:
        """The noise levels that drawing goes through for a row of `condition`; `steps` replaces the model's number."""

    @abstractmethod
    def picture_size(self, request: Request) -> tuple[int, int]:
        """Height and width in pixels of what `draw` makes of a request."""

    def check_size(self, height: int, width: int, where: str) -> None:
        """Raises UserError for an image in pixels that `draw` cannot make; `where`: who wants it."""


class ThoughtPolicy(TextGenerator):
    """A model whose thoughts can be reinforced, as ids of tokens."""

    skill = "learn to think by reinforcement"

    @abstractmethod
    def write_thoughts(self, requests: Sequence[Request]) -> list[list[int]]:
        """Token ids of a thought for each request, drawn from the model's own distribution (temperature 1) by the
        request's seed; the last one is the end marker, unless the thought was cut at `most_thought_ids` - 1."""

    @abstractmethod
    def thought_text(self, ids: Sequence[int]) -> str:
        """What such ids say, as `Request.thought` takes it."""

    @abstractmethod
    def thought_log_probs(self, requests: Sequence[Request], ids: Sequence[Sequence[int]]) -> Tensor:
        """float32 [tokens of all thoughts, in order]: log probabilities at temperature 1, with gradients."""

    @property
    @abstractmethod
    def most_thought_ids(self) -> int:
        """How many ids a thought may have, its end marker included."""


SKILLS = {"think": TextGenerator, "answer": TextGenerator, "draw": ImageGenerator, "compose": InterleavedGenerator}
"""Method that takes requests -> whose it is."""

"""Reading a context once, then writing text and drawing images on top of it.

Everything works on many rows at once, whose contexts and outputs differ in length. A row's result does not depend on
the other rows, up to rounding. Each row has its own random generator. `prefill` reads segments of any kind in one pass
with the mask of training. So keys and values are exactly those of the official segment-by-segment cache. Denoising runs
the two markers and the latent tokens only; the context is read from the cache.

Shapes: B rows, Q new tokens, G latent tokens, C numbers per latent token, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

import torch
import torch.nn.functional as F
from torch import Tensor

from uni_train.flow.euler import euler_step
from uni_train.flow.guidance import Guidance, guide
from uni_train.flow.schedule import inference_timesteps
from uni_train.models.bagel.attention import prepare, prepare_bool
from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.caches import KVCache, stacked
from uni_train.models.bagel.config import BagelConfig
from uni_train.models.bagel.packing import Encoded, PackedBatch, Segment, Text, encode, pack
from uni_train.models.bagel.positions import grid_position_ids
from uni_train.models.transfer import level_on, upload
from uni_train.models.writing import perturbed

LOOK_EVERY = 8
"""Text tokens after which a GPU is asked whether all rows have ended; each question waits for it."""
ONE_PASS = 256
"""Latent tokens of all images up to which the branches of guidance share a pass: where the gain ends on a CPU
(research/speed.md). Images differ by rounding from those of separate passes: float32 by at most 1 of 255."""


@torch.no_grad()
def prefill(
    model: Bagel, rows: Sequence[Sequence[Segment]] | Sequence[Encoded], cache: KVCache | None = None
) -> KVCache:
    """Read texts, ViT images and clean VAE images (or an encoded sample) per row, behind what the cache already holds.

    Raises:
        ValueError: a noised image, which nobody may see, among the segments.
    """
    encoded = [row if isinstance(row, Encoded) else encode(row, model.config) for row in rows]
    if any("noise" in row.split_modes for row in encoded):
        raise ValueError("a context cannot hold a noised image: only a clean one can be seen by later tokens")
    return prefill_packed(model, pack([[row] for row in encoded], model.config), cache)


@torch.no_grad()
def prefill_packed(model: Bagel, batch: PackedBatch, cache: KVCache | None = None) -> KVCache:
    """`prefill` for a batch of `pack` with one sample in every row."""
    batch = batch.to(model.vae2llm.weight.device)
    fresh = cache is None or cache.length == 0
    past = KVCache.empty(model.config, batch.rows, model.dtype, batch.und_id.device) if cache is None else cache
    new = batch.und_id.shape[1] + batch.gen_rope.shape[1]
    out = past.grown(new)
    if not new:
        return out
    x_BUD = model.embed_und(batch)
    time = model.time_embedder(torch.zeros(1, device=x_BUD.device))
    x_BGD = model.embed_latents(batch.clean_BGC, time, batch.gen_position)
    if fresh:
        attend = prepare(batch.mask, model.config.attention, x_BUD.dtype)
    else:
        own = batch.mask.allowed()
        earlier = past.valid[:, None, None, :].expand(-1, 1, new, -1)
        attend = prepare_bool(torch.cat([earlier, own], -1), model.config.attention, x_BUD.dtype)
    rope = [past.next_rope[:, None] + own for own in (batch.und_rope, batch.gen_rope)]
    model.language_model.model(x_BUD, x_BGD, *rope, attend, out)
    out.commit(torch.cat([batch.und_valid, batch.gen_valid], 1), batch.next_rope, batch.full)
    return out


def guidance_contexts(
    inputs: Sequence[Segment], system: Sequence[Segment] = (), thought: Sequence[Segment] = ()
) -> tuple[list[Segment], list[Segment], list[Segment]]:
    """BAGEL's three contexts of one request: all of it, without the last text, without images.

    The text-free one ends before the last text, or after the last image if that comes later. A system prompt goes
    into all three, a generated thought only into the first.
    """
    full, no_text, no_images = list(system), list(system), list(system)
    for segment in inputs:
        if isinstance(segment, Text):
            no_text = list(full)
            no_images.append(segment)
        full.append(segment)
        if not isinstance(segment, Text):
            no_text = list(full)
    return [*full, *thought], no_text, no_images


@torch.no_grad()
def generate_text(
    model: Bagel,
    cache: KVCache,
    max_new_tokens: int | Sequence[int],
    *,
    temperature: float = 0.0,
    generators: Sequence[torch.Generator] | None = None,
    stop: int | None = None,
    close: bool = True,
    on_step: Callable[[int, int], None] | None = None,
) -> tuple[list[list[int]], KVCache]:
    """Write a text behind the context: bos is fed first, then every chosen token.

    Args:
        max_new_tokens: the most new ids, one number a row or one for all. The official `max_length` counts bos too, so
            it is one more.
        temperature: 0 is greedy; otherwise one generator a row is needed, on the model's device.
        stop: the id that ends a text; default eos.
        close: also feed the final eos, so that the returned cache equals that of the finished segment bos + ids + eos.

    Returns:
        The new ids of every row, without bos and stop; and the context with the text in it.
    """
    if temperature > 0 and (generators is None or len(generators) != cache.rows):
        raise ValueError(f"sampling at temperature {temperature} needs one generator for each of {cache.rows} rows")
    marks = model.config.tokens
    stop = marks.eos if stop is None else stop
    device = cache.valid.device
    look_every = 1 if device.type == "cpu" else LOOK_EVERY
    limits = [max_new_tokens] * cache.rows if isinstance(max_new_tokens, int) else list(max_new_tokens)
    most, limit = max(limits), upload(torch.tensor(limits), device)
    static = None
    if model.static is not None or device.type == "cuda":
        from uni_train.models.bagel.recorded import static_text

        static = static_text(model, cache, most + 2)
    before, cache = cache, cache.grown(most + 2) if static is None else cache
    live = torch.ones(cache.rows, dtype=torch.bool, device=device)
    closing = torch.zeros_like(live)
    token = torch.full((cache.rows,), marks.bos, device=device)
    chosen: list[Tensor] = []
    for step in range(most + 2):
        fed = token[:, None], (live | closing)[:, None]
        hidden = _feed(model, cache, *fed) if static is None else static.feed(*fed)
        picked = torch.full_like(token, stop)
        if step < most:
            logits = model.language_model.lm_head(hidden[:, -1]).float()
            picked = torch.where(step < limit, perturbed(logits, temperature, generators).argmax(-1), picked)
        ended = live & (picked == stop)
        live = live & ~ended
        closing = ended if close else torch.zeros_like(ended)
        chosen.append(torch.where(live, picked, -1))
        token = torch.where(ended, marks.eos, picked)
        if on_step is not None and step < most:
            on_step(step + 1, most)
        if step % look_every == look_every - 1 and not bool((live | closing).any()):
            break
    ids = [[token for token in row if token >= 0] for row in torch.stack(chosen, 1).tolist()]
    lengths = [1 + len(row) + close for row in ids]
    cache = cache if static is None else static.context()
    return ids, cache.first(before.length + max(lengths), before.full and min(lengths) == max(lengths))


def _feed(model: Bagel, cache: KVCache, ids_BQ: Tensor, valid_BQ: Tensor) -> Tensor:
    """Put one more column of text into the cache (in place); hidden states [B, Q, D] after the final norm."""
    x_BQD = model.language_model.model.embed_tokens(ids_BQ)
    allowed = torch.cat([cache.valid, torch.ones_like(valid_BQ)], 1)[:, None, None, :]
    attend = prepare_bool(allowed, model.config.attention, x_BQD.dtype)
    rope = cache.next_rope[:, None]
    hidden, _ = model.language_model.model(x_BQD, x_BQD[:, :0], rope, rope[:, :0], attend, cache)
    cache.commit(valid_BQ, valid_BQ.sum(1))
    return hidden


@dataclass(frozen=True, slots=True)
class Contexts:
    """What images are drawn under: one row an image. It holds no gradients, and any number of velocities may use it.

    Attributes:
        full: all segments. no_text: without the last text. no_images: the texts alone. The latter two are there only
            where the guidance needs them.
        grids: latent rows and columns of every image; they may differ.
    """

    full: KVCache
    no_text: KVCache | None
    no_images: KVCache | None
    grids: tuple[tuple[int, int], ...]
    guidance: Guidance

    def __len__(self) -> int:
        return self.full.rows

    @property
    def caches(self) -> list[KVCache]:
        """Those that the guidance needs, the full one first."""
        by_text = self.guidance.text_scale > 1
        no_images = self.no_images if by_text and self.guidance.img_scale > 1 else None
        needed = (self.full, self.no_text if by_text else None, no_images)
        return [cache for cache in needed if cache is not None]

    def select(self, rows: Sequence[int] | Tensor) -> Contexts:
        """As `KVCache.select`, for all contexts."""
        index = torch.as_tensor(rows, dtype=torch.long).tolist()
        caches = {id(c): c.select(index) for c in (self.full, self.no_text, self.no_images) if c is not None}
        return Contexts(
            caches[id(self.full)],
            None if self.no_text is None else caches[id(self.no_text)],
            None if self.no_images is None else caches[id(self.no_images)],
            tuple(self.grids[row] for row in index),
            self.guidance,
        )

    def repeat(self, times: int) -> Contexts:
        """Every row `times` times in a row: several candidates of one request."""
        return self.select(torch.arange(len(self)).repeat_interleave(times))


def read_contexts(
    model: Bagel,
    requests: Sequence[tuple[Sequence[Segment], Sequence[Segment], Sequence[Segment]]],
    grids: Sequence[tuple[int, int]],
    guidance: Guidance,
) -> Contexts:
    """Read each request's `guidance_contexts` into caches, every token once.

    A context that the full one begins with is taken out of its cache: later tokens change nothing before them. That
    holds for the text-free one always, for the image-free one where there are no images.
    """
    full_rows, text_free, image_free = zip(*requests, strict=True)
    batch = pack([[encode(row, model.config)] for row in full_rows], model.config)
    full = prefill_packed(model, batch)
    order = torch.cat([batch.und_mask.order, batch.gen_mask.order], 1).to(full.valid.device)

    def unconditional(rows: Sequence[Sequence[Segment]]) -> KVCache:
        pairs = [pair for full, part in zip(full_rows, rows, strict=True) for pair in zip_longest(full, part)]
        if any(segment is not None and segment is not first for first, segment in pairs):
            return prefill(model, rows)
        parts = [encode(row, model.config) for row in rows]
        lengths = [part.length for part in parts]
        if lengths == [sum(row) for row in batch.sample_lengths]:
            return full
        ropes = upload(torch.tensor([part.next_rope for part in parts]), order.device)
        keep = order < upload(torch.tensor(lengths), order.device)[:, None]
        return full.masked(keep, ropes, full=len(set(lengths)) == 1)

    by_text = guidance.text_scale > 1
    return Contexts(
        full,
        unconditional(text_free) if by_text else None,
        unconditional(image_free) if by_text and guidance.img_scale > 1 else None,
        tuple(grids),
        guidance,
    )


class Branch:
    """The velocity of images under one context: markers and latents only, against the cache.

    Gradients flow where they are enabled (the cache is a constant).

    Args:
        grids: latent rows and columns of every row's image; they may differ.
        forward_only: these velocities are never computed again with gradients (drawing for its own sake).
    """

    def __init__(
        self, model: Bagel, cache: KVCache, grids: Sequence[tuple[int, int]], forward_only: bool = False
    ) -> None:
        if len(grids) != cache.rows:
            raise ValueError(f"{len(grids)} image sizes for {cache.rows} contexts")
        device = cache.valid.device
        self.model = model
        self.position_BG, self.valid_BG = _latent_grid(grids, model.config, device)
        self.cache = cache if torch.is_grad_enabled() else cache.grown(2 + self.position_BG.shape[1])
        marks = (model.config.tokens.start_of_image, model.config.tokens.end_of_image)
        self.marks_B2 = torch.cat([torch.full((cache.rows, 1), mark, device=device) for mark in marks], 1)
        allowed = torch.cat([cache.valid, torch.ones_like(self.marks_B2, dtype=torch.bool), self.valid_BG], 1)
        self.attend = prepare_bool(
            allowed[:, None, None, :],
            model.config.attention,
            model.dtype,
            full=cache.full and len({h * w for h, w in grids}) == 1,
            forward_only=forward_only,
        )
        self.rope_B1 = cache.next_rope[:, None]
        static = model.static if forward_only else None
        self.velocity = Branch._velocity if static is None else static.compiled(Branch._velocity)

    def __call__(self, x_t_BGC: Tensor, t: Tensor | float) -> Tensor:
        """float32 [B, G, C], zero in padding; `t` a number or [B]."""
        return self.velocity(self, x_t_BGC, level_on(t, x_t_BGC.device).reshape(-1))

    def _velocity(self, x_t_BGC: Tensor, t_B: Tensor) -> Tensor:
        model, gen = self.model, self.position_BG.shape[1]
        x_BUD = model.language_model.model.embed_tokens(self.marks_B2)
        x_BGD = model.embed_latents(x_t_BGC, model.time_embedder(t_B)[:, None], self.position_BG)
        rope_und, rope_gen = self.rope_B1.expand(-1, 2), self.rope_B1.expand(-1, gen)
        _, hidden_BGD = model.language_model.model(x_BUD, x_BGD, rope_und, rope_gen, self.attend, self.cache)
        velocity = model.velocity_head(hidden_BGD, x_t_BGC, t_B[:, None, None])
        return velocity * self.valid_BG[..., None]


class Denoiser:
    """The guided velocity of images: up to three branches, as many as the guidance needs at a noise level.

    Few latent tokens go through all branches in one pass, as the rows of one batch: a small product costs little more
    for twice the rows. It equals separate passes up to rounding.

    Args:
        forward_only: as for `Branch`; only these are drawn in one pass. Reinforcement computes its velocities again
            with gradients, in other batches, and wants the same rounding both times.
    """

    def __init__(self, model: Bagel, contexts: Contexts, forward_only: bool = False) -> None:
        self.guidance, caches, grids = contexts.guidance, contexts.caches, contexts.grids
        self.full = Branch(model, contexts.full, grids, forward_only)
        self.branches = len(caches)
        self.one_pass, self.unconditional = None, []
        if forward_only and self.branches > 1 and self.full.position_BG.numel() <= ONE_PASS:
            self.one_pass = Branch(model, stacked(caches), grids * self.branches, forward_only)
        else:
            self.unconditional = [Branch(model, cache, grids, forward_only) for cache in caches[1:]]

    def __call__(self, x_t_BGC: Tensor, t: Tensor | float) -> Tensor:
        """float32 [B, G, C], zero in padding; `t` a number, or [B] for rows at different noise levels.

        A number outside the guidance's interval spares the other branches. Levels on a GPU do not: asking for them
        would wait for it.
        """
        if self.branches == 1:
            return self.full(x_t_BGC, t)
        on = self.guidance.text_on(t)
        known = not isinstance(on, Tensor) or on.device.type == "cpu"
        if known and not bool(torch.as_tensor(on).any()):
            return self.full(x_t_BGC, t)
        if self.one_pass is not None:
            t_all = t.repeat(self.branches) if isinstance(t, Tensor) and t.numel() > 1 else t
            velocity, *others = self.one_pass(x_t_BGC.repeat(self.branches, 1, 1), t_all).chunk(self.branches)
        else:
            velocity, *others = (branch(x_t_BGC, t) for branch in (self.full, *self.unconditional))
        guided = guide(velocity, others[0], others[1] if len(others) > 1 else None, self.guidance)
        return torch.where(on.reshape(-1, 1, 1), guided, velocity) if isinstance(on, Tensor) else guided


@torch.no_grad()
def sample_latents(
    model: Bagel,
    contexts: Contexts,
    noise_BGC: Tensor,
    *,
    num_timesteps: int,
    timestep_shift: float,
    on_step: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Draw: Euler steps from noise to clean latent tokens, float32 [B, G, C].

    Args:
        noise_BGC: float32, x at t = 1; rows with smaller grids are padded at the end.
        num_timesteps: N points, N - 1 model steps.
    """
    denoiser = Denoiser(model, contexts, forward_only=True)
    times = inference_timesteps(num_timesteps, timestep_shift).tolist()
    x = noise_BGC.float()
    for step, (t, t_next) in enumerate(pairwise(times), start=1):
        x = euler_step(x, denoiser(x, t), t, t_next)
        if on_step is not None:
            on_step(step, num_timesteps - 1)
    return x


def _latent_grid(grids: Sequence[tuple[int, int]], config: BagelConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    """Grid positions int64 [B, G] and which of them are real; made on the device, without a copy from the host."""
    longest = max(h * w for h, w in grids)
    made = {}
    for h, w in dict.fromkeys(grids):
        ids = grid_position_ids(h, w, config.max_latent_size, device)
        made[h, w] = [F.pad(x, (0, longest - h * w)) for x in (ids, torch.ones_like(ids, dtype=torch.bool))]
    position, valid = ([made[grid][part] for grid in grids] for part in (0, 1))
    return torch.stack(position), torch.stack(valid)

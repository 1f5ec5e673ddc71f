"""Pretraining of nano: first its VAE, then mixtures of data_gen rows (models/nano/corpus.py)."""

from __future__ import annotations

from dataclasses import replace

from uni_train.config.schema import PretrainConfig
from uni_train.models.load import save_model
from uni_train.models.nano import corpus
from uni_train.models.nano.train_vae import train_vae
from uni_train.stages.finetune import fit, supervised_settings
from uni_train.stages.work import MODEL, StageRun, Work
from uni_train.training.curriculum import Constant


def vae(work: Work[PretrainConfig], stage: StageRun) -> None:
    """Train the VAE on rendered pictures and measure the scale of its latents."""
    config = work.config
    model = work.model(work.weights)
    # Seconds of work: the first rank does it, the others take what it has found.
    if work.ranks.is_main:
        with work.progress.bar("vae", config.vae.updates) as bar:
            stage.result = train_vae(model.vae.cpu(), config.vae, config.seed, bar.advance)  # type: ignore[arg-type, operator]
        save_model(model, stage.path / MODEL)
    work.weights = stage.path / MODEL
    work.ranks.barrier()
    stage.outputs = sorted((stage.path / MODEL).iterdir())


def part(work: Work[PretrainConfig], stage: StageRun, name: str) -> None:
    """Train everything but the VAE on the mixture of one part of the recipe."""
    config, asked = work.config, work.config.parts[name]
    model = work.model(work.weights)
    model.prepare_training(
        timestep_shift=config.timestep_shift,
        text_dropout=config.text_dropout,
        activation_checkpointing=config.activation_checkpointing,
    )
    rows = asked.mixture.rows
    total = sum(rows.values())
    sources = corpus.sources(asked.mixture.noise_draws, asked.mixture.levels)
    schedule = Constant({kind: count / total for kind, count in rows.items()})
    if asked.lr is not None:
        config = replace(config, optimizer=replace(config.optimizer, lr=asked.lr))
    settings = supervised_settings(config, asked.updates, total, stage.path.name, trained="all")
    result = fit(work, model, {kind: sources[kind] for kind in schedule.shares}, schedule, settings, stage.path)
    work.trained(model, stage)
    stage.outputs = sorted((stage.path / MODEL).iterdir())
    stage.result = {"updates": result.updates, "seconds": result.seconds}

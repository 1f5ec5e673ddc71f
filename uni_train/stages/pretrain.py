"""Pretraining of nano: first its VAE, then the whole mixture of data_gen rows (models/nano/corpus.py)."""

from __future__ import annotations

from dataclasses import asdict, replace

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
    with work.progress.bar("vae", config.vae.updates) as bar:
        stage.result = train_vae(model.vae, config.vae, config.seed, bar.advance)  # type: ignore[arg-type]
    save_model(model, stage.path / MODEL)
    work.changed(model, stage.path / MODEL)
    stage.outputs = sorted((stage.path / MODEL).iterdir())


def mixture(work: Work[PretrainConfig], stage: StageRun, finish: bool) -> None:
    """Train everything but the VAE on the mixture, or on the one that finishes the recipe."""
    config = work.config
    if finish and config.finish is not None:
        last = config.finish
        config = replace(
            config, updates=last.updates, mixture=last.mixture, optimizer=replace(config.optimizer, lr=last.lr)
        )
    model = work.model(work.weights)
    model.prepare_training(
        timestep_shift=config.timestep_shift,
        text_dropout=config.text_dropout,
        recompute=config.activation_checkpointing,
    )
    rows = {name: count for name, count in asdict(config.mixture).items() if name != "noise_draws"}
    total = sum(rows.values())
    sources = corpus.sources(config.mixture.noise_draws)
    schedule = Constant({name: count / total for name, count in rows.items() if count})
    settings = supervised_settings(config, config.updates, total, stage.path.name, trained="all")
    result = fit(work, model, {name: sources[name] for name in schedule.shares}, schedule, settings, stage.path)
    save_model(model, stage.path / MODEL)
    work.changed(model, stage.path / MODEL)
    stage.outputs = sorted((stage.path / MODEL).iterdir())
    stage.result = {"updates": result.updates, "seconds": result.seconds}

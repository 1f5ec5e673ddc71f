"""What a pipeline class of diffusers takes and makes, by the signature of its `__call__`."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from dataclasses import dataclass
from typing import Any

from uni_train.config.schema import SamplingConfig
from uni_train.core.errors import UserError

_IMAGES = ("image", "images")
_EXTRA = ("mask_image", "control_image", "controlnet_conditioning_scale", "adapter_conditioning_scale", "video_length")
"""Parameters of pipelines that need more than words and images."""
DIPTYCHS: dict[str, dict[str, Any]] = {"FluxFillPipeline": {"steps": 28, "edit_text_scale": 50.0}}
"""Pipelines that fill a mask and are asked for half of a diptych (diptych.py), with ICEdit's published sampling."""
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_HINT = "Give a pipeline that makes images or videos from words, or from words and images."


@dataclass(frozen=True, slots=True)
class Interface:
    """How one pipeline class is called.

    Attributes:
        pipeline: the class.
        parameters: default value by name of parameter.
        image: the parameter for input images; None: it takes none.
        needs_image: whether it draws from images only.
        several: whether it takes several images for one prompt.
        guidance: the parameter for the scale of guidance by text; None: it has none.
        image_guidance: the same for guidance by input images.
        video: whether it makes videos.
    """

    pipeline: Any
    parameters: dict[str, Any]
    image: str | None
    needs_image: bool
    several: bool
    guidance: str | None
    image_guidance: str | None
    video: bool = False

    @property
    def name(self) -> str:
        return str(self.pipeline.__name__)

    @property
    def sampling(self) -> dict[str, Any]:
        """The class's own defaults, by the names of SamplingConfig."""
        sources = {
            "steps": "num_inference_steps",
            "cfg_text_scale": self.guidance,
            "edit_text_scale": self.guidance,
            "edit_img_scale": self.image_guidance,
        }
        values = {key: self.parameters.get(source or "") for key, source in sources.items()}
        return {key: value for key, value in values.items() if value is not None} | DIPTYCHS.get(self.name, {})

    def arguments(self, sampling: SamplingConfig, images: bool) -> dict[str, Any]:
        """Arguments of one call by `sampling`; `images`: whether it draws from images."""
        scale = sampling.edit_text_scale if images else sampling.cfg_text_scale
        values = {
            "num_inference_steps": sampling.steps,
            self.guidance: scale,
            self.image_guidance: sampling.edit_img_scale,
        }
        return {key: value for key, value in values.items() if key is not None and key in self.parameters}


def interface(name: str) -> Interface:
    """The interface of diffusers' class `name`.

    Raises:
        UserError: diffusers is not installed or has no such pipeline, or it does not make images from a prompt.
    """
    try:
        import diffusers
    except ImportError as error:
        raise UserError(f"{name} needs diffusers ({error})", "Install it: pip install -e '.[hf]'.") from error
    pipeline = getattr(diffusers, name, None)
    if not (isinstance(pipeline, type) and issubclass(pipeline, diffusers.DiffusionPipeline)):
        raise UserError(f"diffusers {diffusers.__version__} has no pipeline {name}", "Install a newer diffusers.")
    parameters = inspect.signature(pipeline.__call__).parameters
    image = next((parameter for parameter in _IMAGES if parameter in parameters), None)
    extra = [
        parameter.name
        for parameter in list(parameters.values())[1:]
        if (parameter.name in _EXTRA and not (parameter.name == "mask_image" and name in DIPTYCHS))
        or (
            parameter.default is parameter.empty
            and parameter.name not in ("prompt", image)
            and parameter.kind not in _VARIADIC
        )
    ]
    outputs = _outputs(pipeline)
    if not outputs & {"images", "frames"} or extra or "prompt" not in parameters:
        reason = f"it needs {', '.join(extra)}" if extra else "it makes no images from a prompt"
        raise UserError(f"the pipeline {name} cannot be asked: {reason}", _HINT)
    annotation = str(parameters[image].annotation) if image is not None else ""
    defaults = {
        parameter.name: None if parameter.default is parameter.empty else parameter.default
        for parameter in parameters.values()
    }
    scales = [scale for scale in ("guidance_scale", "true_cfg_scale") if scale in defaults]
    return Interface(
        pipeline,
        defaults,
        image,
        image is not None and ("None" not in annotation or "strength" in parameters or "Edit" in name),
        image == "images" or ("ist[PIL" in annotation and "ensor" not in annotation),
        next((scale for scale in scales if defaults[scale] is not None), scales[0] if scales else None),
        "image_guidance_scale" if "image_guidance_scale" in defaults else None,
        "images" not in outputs,
    )


def _outputs(pipeline: type) -> set[str]:
    """Fields of the outputs that the class's module names."""
    from diffusers.utils import BaseOutput

    named = [member for member in vars(sys.modules[pipeline.__module__]).values() if isinstance(member, type)]
    outputs = [
        member for member in named if issubclass(member, BaseOutput) and member.__name__.endswith("PipelineOutput")
    ]
    return {field.name for output in outputs for field in dataclasses.fields(output)}

"""Seedance's tasks, as Volcano Engine's Ark takes them. https://www.volcengine.com/docs/82379/1520757"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uni_train.models.base import Request
from uni_train.models.batches import ModelDown
from uni_train.models.dialects import SEED_BITS, Call, Endpoint, Skill, dialect, whole_prompt
from uni_train.models.dialects.videos import LANDSCAPE, PORTRAIT, VideoDialect, at, succeeded
from uni_train.models.pictures import data_url, encode_png

_RATIOS = {"16:9": LANDSCAPE, "9:16": PORTRAIT, "4:3": (1024, 768), "3:4": (768, 1024), "1:1": (960, 960),
           "21:9": (1470, 630)}  # fmt: skip


@dialect("seedance")
class Seedance(VideoDialect):
    """/contents/generations/tasks. Frames have the ratio, of six, that is nearest to the image's."""

    sizes = tuple(_RATIOS.values())
    path, done = "contents/generations/tasks", '{"status": "succeeded", "content": {"video_url": "https://..."}}'

    def call(self, skill: Skill, request: Request, endpoint: Endpoint) -> Call:
        if not endpoint.settings.image_hosts:  # said before a clip is paid
            raise ModelDown("Ark keeps clips at another host", "Permit it: remote.image_hosts=[.volces.com].")
        content: list[dict[str, Any]] = [{"type": "text", "text": whole_prompt(request)}]
        wanted = _RATIOS.get(str(endpoint.settings.extra_body.get("ratio")))
        for image in self.first_frame(request, endpoint, wanted)[1]:
            content.append({"type": "image_url", "image_url": {"url": data_url(encode_png(image))}})
        body = {"model": endpoint.model, "content": content, "seed": request.seed & SEED_BITS}
        return Call(self.path, body, '{"id": "..."}')

    def clip(self, reply: Mapping[str, Any]) -> Any:
        return (at(reply, "content", "video_url") or False) if succeeded(reply) else None

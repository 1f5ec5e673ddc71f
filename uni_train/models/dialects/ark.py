"""Edits as JSON, as Volcano Engine's Ark takes them for Seedream and SeedEdit, and gateways like it.

Drawings and edits have one address. Images are data URLs in `image`: a text for one, a list for several.
https://www.volcengine.com/docs/82379/1541523
"""

from __future__ import annotations

from typing import Any

from uni_train.models.base import Request
from uni_train.models.dialects import SEED_BITS, Call, Dialect, Endpoint, Skill, dialect, size, whole_prompt
from uni_train.models.dialects.images import REPLY
from uni_train.models.pictures import data_url, encode_png


@dialect("ark")
class Ark(Dialect):
    """/images/generations, for edits too."""

    writes = False
    optional = (*Dialect.optional, "watermark")

    def call(self, skill: Skill, request: Request, endpoint: Endpoint) -> Call:
        body: dict[str, Any] = {"model": endpoint.model, "prompt": whole_prompt(request)}
        body |= {"seed": request.seed & SEED_BITS, "response_format": "b64_json"} | size(request)
        body["watermark"] = False  # Ark's default is a mark in the image, which readers of images would see
        urls = [data_url(encode_png(image)) for image in request.images]
        if urls:
            body["image"] = urls[0] if len(urls) == 1 else urls
        return Call("images/generations", body, REPLY)

"""OpenAI's Images API: a JSON body for a drawing, a form with PNG files for an edit."""

from __future__ import annotations

from typing import Any

from uni_train.models.base import Request
from uni_train.models.dialects import Call, Dialect, Endpoint, Skill, dialect, size, whole_prompt

REPLY = '{"data": [{"b64_json": "BASE64"}]}'


@dialect("images")
class Images(Dialect):
    """/images/generations, and /images/edits where the prompt has images."""

    writes = False

    def call(self, skill: Skill, request: Request, endpoint: Endpoint) -> Call:
        body: dict[str, Any] = {"model": endpoint.model, "prompt": request.prompt, "n": 1, "seed": request.seed}
        if endpoint.ours and request.thought is not None:
            body["thought"] = request.thought
        else:
            body["prompt"] = whole_prompt(request)
        body |= {"response_format": "b64_json"} | size(request)
        return Call("images/edits" if request.images else "images/generations", body, REPLY, request.images)

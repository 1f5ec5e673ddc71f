"""Google's Veo, `predictLongRunning` of the Gemini API. https://ai.google.dev/gemini-api/docs/video"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from uni_train.models.base import Request
from uni_train.models.completions import first
from uni_train.models.dialects import SEED_BITS, Call, Endpoint, Skill, dialect, given, whole_prompt
from uni_train.models.dialects.videos import LANDSCAPE, PORTRAIT, VideoDialect, at, failure
from uni_train.models.pictures import encode_png

_RATIOS = {"16:9": LANDSCAPE, "9:16": PORTRAIT}


@dialect("veo")
class Veo(VideoDialect):
    """/models/MODEL:predictLongRunning."""

    optional = ("seed", "aspectRatio")
    done = '{"response": {"generateVideoResponse": {"generatedSamples": [{"video": {"uri": "https://..."}}]}}}'

    def call(self, skill: Skill, request: Request, endpoint: Endpoint) -> Call:
        wanted = at(endpoint.settings.extra_body, "parameters", "aspectRatio")
        size, images = self.first_frame(request, endpoint, _RATIOS.get(str(wanted)))
        instance: dict[str, Any] = {"prompt": whole_prompt(request)}
        for image in images:
            data = b64encode(encode_png(image)).decode()
            instance["image"] = {"bytesBase64Encoded": data, "mimeType": "image/png"}
        ratio = next((ratio for ratio, known in _RATIOS.items() if known == size), None)
        parameters = given({"seed": request.seed & SEED_BITS, "aspectRatio": ratio})
        body = {"instances": [instance], "parameters": parameters}
        return Call(f"models/{endpoint.model}:predictLongRunning", body, '{"name": "..."}', parameters=parameters)

    def job(self, reply: Mapping[str, Any]) -> Any:
        return reply.get("name")

    def clip(self, reply: Mapping[str, Any]) -> Any:
        if not reply.get("done"):
            return None
        answer = at(reply, "response", "generateVideoResponse")
        if address := at(first(answer, "generatedSamples"), "video", "uri"):
            return address
        reasons = at(answer, "raiMediaFilteredReasons")
        raise failure(reply.get("error") or (reasons and {"code": "filter", "message": reasons}) or "it has no clip")

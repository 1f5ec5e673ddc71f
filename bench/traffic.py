"""What an update reads from a GPU's memory and writes to it, by operator, counted without a GPU.

    python bench/traffic.py [RECIPE [KEY=VALUE ...]]     (sft model=bagel_7b trained=lora)

The forward and the backward pass are followed on tensors without numbers, as `uni_train plan` does. Each operator
counts the numbers that it takes and makes, views excepted; a cache would save some of them. Attention, RMSNorm and the
optimizer's step, which are kernels of their own, are not counted. With adapters a second column says what the forward
pass of peft's layer would need.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from torch import Tensor
from torch.utils._pytree import tree_leaves

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.markdown import row, table
from uni_train.config.compose import compose
from uni_train.core.errors import UserError
from uni_train.plan.ready import ready
from uni_train.plan.trace import Trace
from uni_train.plan.updates import BACKWARD, FORWARD

DEFAULT = ["sft", "model=bagel_7b", "trained=lora"]
WITHOUT_TRAFFIC = {"aten::empty", "aten::empty_like", "aten::new_empty"}
SHOWN = 10


def counted(recipe: str, keys: Sequence[str]) -> Counter[str]:
    """Bytes by operator of the forward and the backward pass of an update."""
    made: Counter[str] = Counter()
    dispatch = Trace.__torch_dispatch__

    def counting(self: Trace, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        taken = _tensors((args, kwargs))
        storages = {tensor.untyped_storage()._cdata for tensor in taken}
        out = dispatch(self, func, types, args, kwargs)
        name = func._schema.name
        new = [tensor for tensor in _tensors(out) if tensor.untyped_storage()._cdata not in storages]
        in_place = name.endswith("_")
        if self.phase in (FORWARD, BACKWARD) and (new or in_place) and name not in WITHOUT_TRAFFIC:
            made[name] += sum(map(_bytes, [*taken, *new, *(taken[:1] if in_place else [])]))
        return out

    with mock.patch.object(Trace, "__torch_dispatch__", counting):
        ready(compose(recipe, list(keys)), 1).traced(1)
    return made


def pefts(recipe: str, keys: Sequence[str]) -> Counter[str]:
    """The same where adapted layers compute as peft's do."""
    from peft.tuners.lora import Linear

    from uni_train.training.added_product import AddedProduct

    with mock.patch.object(AddedProduct, "forward", Linear.forward):
        return counted(recipe, keys)


def _tensors(nest: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(nest) if isinstance(leaf, Tensor)]


def _bytes(tensor: Tensor) -> int:
    """Of the numbers that a kernel has to read: an expanded dimension is read once."""
    count = tensor.element_size()
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride else min(size, 1)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="*", metavar="RECIPE KEY=VALUE")
    recipe, *keys = parser.parse_args().recipe or DEFAULT
    try:
        ours = counted(recipe, keys)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    columns = [ours, pefts(recipe, keys)] if ours["aten::addmm_"] else [ours]
    totals = [sum(column.values()) for column in columns]
    print(f"GB that the passes of an update of `{' '.join([recipe, *keys])}` read and write:\n")
    print(*table("operator", *["ours", "peft's layer"][: len(columns)]), sep="\n")
    for name, _ in sum(columns, Counter()).most_common(SHOWN):
        print(row(f"`{name.removeprefix('aten::')}`", *(f"{column[name] / 1e9:,.0f}" for column in columns)))
    print(row("all", *(f"{total / 1e9:,.0f}" for total in totals)))
    if len(totals) > 1:
        print(f"\nours / peft's layer: {totals[0] / totals[1]:.2f}")


if __name__ == "__main__":
    main()

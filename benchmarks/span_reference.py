"""What every span of a model must answer: computed by Petals' own blocks, loaded as a server would and never moved."""

from __future__ import annotations

import os
import tempfile

from planner.agent.compat import prepare

prepare()

import torch  # noqa: E402  # after prepare, as petals is
from petals import AutoDistributedConfig  # noqa: E402
from petals.constants import DTYPE_MAP  # noqa: E402
from petals.server.from_pretrained import load_pretrained_block  # noqa: E402
from petals.utils.convert_block import QuantType, convert_block  # noqa: E402

from planner.agent.parts import free  # noqa: E402


class Reference:
    """Inputs, and the answer of every span to them; one block at a time is on the device, and none in the end.

    Whole sequences are computed at once, so that this takes none of the CUDA graphs that single tokens take.

    Parameters
    ----------
    folder
        The model.
    length
        Number of tokens.
    device, torch_dtype, quant_type
        As of a Petals server; lower case.
    """

    def __init__(
        self, folder: str, length: int, device: str = "cpu", torch_dtype: str = "float32", quant_type: str = "none"
    ) -> None:
        config, dtype = AutoDistributedConfig.from_pretrained(folder), DTYPE_MAP[torch_dtype]
        target = torch.device(device)
        random = torch.randn(1, length, config.hidden_size, generator=torch.Generator().manual_seed(0))
        self.num_blocks = config.num_hidden_layers
        self.inputs = random.to(dtype).float()
        self._answers: dict[tuple[int, int], torch.Tensor] = {}
        hidden: dict[int, torch.Tensor] = {}
        for block in range(self.num_blocks):
            read = load_pretrained_block(
                folder,
                block,
                config=config,
                torch_dtype=dtype,
                cache_dir=os.path.join(tempfile.gettempdir(), "cache"),
            )
            module = convert_block(read, block, config, (target,), target, QuantType[quant_type.upper()])
            hidden[block] = self.inputs.to(target, dtype)
            with torch.inference_mode():
                for start in hidden:
                    hidden[start] = module(hidden[start])[0]
                    self._answers[start, block + 1] = hidden[start].float().cpu()
            del read, module
            free()
        hidden.clear()
        free()

    def expected(self, start: int, end: int, length: int) -> torch.Tensor:
        """What blocks `start` to `end` make of the first `length` inputs; of shape (1, length, hidden size)."""
        return self._answers[start, end][:, :length]


def distance(answer: torch.Tensor, expected: torch.Tensor) -> float:
    """How far an answer is from what is expected: the greatest difference, as a share of the greatest value."""
    return ((answer - expected).abs().max() / expected.abs().max()).item()

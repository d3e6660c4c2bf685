"""A slot for every block of the model: what handlers are forked with, whether a block is there or not.

All blocks of a model have the same shapes, so a slot needs none of them to know its schemas: it is built around a
shell, the block's structure without weights. Handlers are forked before any block is loaded and hold shells only. A
change of span puts modules into slots or takes them out, in the runtime's process, between two batches.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Mapping
from typing import Any

from planner.agent.compat import prepare

prepare()

import torch  # noqa: E402
from accelerate import init_empty_weights  # noqa: E402
from hivemind import BatchTensorDescriptor  # noqa: E402
from petals.server import block_utils  # noqa: E402
from petals.server.backend import TransformerBackend, merge_inference_pools_inplace  # noqa: E402
from petals.server.server import RuntimeWithDeduplicatedPools  # noqa: E402
from petals.utils.convert_block import make_tensor_parallel  # noqa: E402

from planner.agent.gate import NotServed  # noqa: E402


class Slot(TransformerBackend):
    """A backend whose block comes and goes."""

    def __init__(self, uid: str, shell: Any, **options: Any) -> None:
        super().__init__(uid, shell, **options)
        self.shell = shell

    @property
    def held(self) -> bool:
        """Whether a block is in it."""
        return self.module is not self.shell

    def put(self, module: Any) -> None:
        """Put a block in, loaded and converted, unless it does not compute: then it is out again, and that is raised.

        To be called between two batches. On CUDA, Petals captures graphs at a block's first single token, and what
        another thread does on the device meanwhile, such as loading the next block, spoils them.
        """
        self.module = module
        try:
            # In single precision a capture would have Petals write into its own table of rotations.
            if not (self.dtype == torch.float32 and module.devices[0].type == "cuda"):
                self._compute_a_token()
        except BaseException:
            self.module = self.shell
            raise

    def take(self) -> weakref.ref[Any]:
        """Take the block out and forget it; whoever holds it still is seen by the reference that is given."""
        module, self.module = self.module, self.shell
        return weakref.ref(module)

    def forward(self, *inputs: Any) -> Any:
        """As of `TransformerBackend`; refused where no block is."""
        self._check()
        return super().forward(*inputs)

    def backward(self, *inputs: Any) -> Any:
        """As of `TransformerBackend`; refused where no block is."""
        self._check()
        return super().backward(*inputs)

    def inference_step(self, *inputs: Any) -> Any:
        """As of `TransformerBackend`; refused where no block is."""
        self._check()
        return super().inference_step(*inputs)

    @torch.inference_mode()
    def _compute_a_token(self) -> None:
        """Nobody's, and with a cache of its own, as `inference_step` does it."""
        cache = [descriptor.make_zeros() for descriptor in self.get_inference_cache_descriptors(1, 1)]
        token = torch.zeros(1, 1, self.config.hidden_size, dtype=self.dtype, device=self.module.devices[0])
        with self._peft_module.using_adapter(""):
            self.module.forward(token, layer_past=self._select_layer_past(cache, 0), use_cache=True)

    def _check(self) -> None:
        if not self.held:
            raise NotServed(self.name)


class Runtime(RuntimeWithDeduplicatedPools):
    """Petals' runtime, which holds a lock while a batch is computed: whoever has the lock may change the slots."""

    def __init__(self, slots: Mapping[str, Slot], **options: Any) -> None:
        self.between_batches = threading.Lock()
        self._over = False
        super().__init__(slots, device=None, **options)

    def process_batch(self, pool: Any, batch_index: int, *batch: Any) -> Any:
        """As of `Runtime`; refused once it is over."""
        with self.between_batches:
            if self._over:
                raise RuntimeError("the server is being started again")
            return super().process_batch(pool, batch_index, *batch)

    def stop(self, timeout: float) -> bool:
        """Compute no batch any more; whether the last one has ended in time."""
        if not self.between_batches.acquire(timeout=timeout):
            return False
        self._over = True
        self.between_batches.release()
        return True


def make_slots(server: Any, memory_cache: Any) -> dict[str, Slot]:
    """Make a slot for every block of a Petals server's model, all around one shell.

    Parameters
    ----------
    server
        A `petals.server.server.Server` that has read its options.
    memory_cache
        The attention cache that all slots share.
    """
    shell = _shell(server)
    schema = (
        BatchTensorDescriptor(
            1, 2048, server.block_config.hidden_size, dtype=server.torch_dtype, compression=server.compression
        ),
    )
    slots = {
        uid: Slot(
            uid,
            shell,
            config=server.block_config,
            memory_cache=memory_cache,
            backend_dtype=server.torch_dtype,
            max_chunk_size_bytes=server.max_chunk_size_bytes,
            args_schema=schema,
            kwargs_schema={},
            outputs_schema=schema,
            min_batch_size=server.min_batch_size,
            max_batch_size=server.max_batch_size,
        )
        for uid in server.module_uids
    }
    merge_inference_pools_inplace(slots)
    return slots


def _shell(server: Any) -> Any:
    config = server.block_config
    # Petals' git main makes blocks by a function of its own.
    make_block = getattr(block_utils, "get_model_block", config.block_class)
    with init_empty_weights(include_buffers=True), torch.no_grad():
        block = make_block(config)
    block.requires_grad_(False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "for .*: copying from a non-meta parameter")  # it has none, and needs none
        return make_tensor_parallel(block, config, server.tensor_parallel_devices, output_device=server.device)

"""FSDP2 on a CPU. Accelerate offers it on accelerators only; told that it is on, it shards over gloo as well."""

from typing import Any

import torch
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

__all__ = ["FSDPModule", "gathered", "sharded"]


def sharded(accelerator: Any, **options: Any) -> None:
    """Makes an accelerator of several processes shard what it prepares."""
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, cpu_ram_efficient_loading=False, **options)
    accelerator.state.distributed_type, accelerator.state.fsdp_plugin = DistributedType.FSDP, plugin


@torch.no_grad()
def gathered(model: nn.Module) -> dict[str, Tensor]:
    """The whole parameters; every process must ask."""
    state = model.state_dict()
    return {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in state.items()}

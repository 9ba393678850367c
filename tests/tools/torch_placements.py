"""Applies exported placements with PyTorch, all devices in one process (LocalTensorMode); prints what differs.

    python torch_placements.py FILE.py TILES.json

TILES.json has by tensor its shape and, by worker, where its tile begins and ends. For each tensor that is no partial
sum, ``distribute_tensor`` must give each rank that tile. Products are then computed on tensors that lie as the file
says, and must be the products. Needs PyTorch 2.13, which has the mode; nothing of tofu's.
"""

from __future__ import annotations

import json
import runpy
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed._local_tensor import LocalTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore


def main(file: Path, tiles: Path) -> None:
    told = json.loads(tiles.read_text())
    given = runpy.run_path(str(file))
    shape, placements = given["MESH_SHAPE"], given["PLACEMENTS"]
    count = 1
    for ways in shape:
        count *= ways
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=count)
    tried, products, differing = 0, 0, []
    with LocalTensorMode(count):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=given["MESH_NAMES"])
        for name, tile in told["tensors"].items():
            if name in given["UNEVEN"] or any(isinstance(one, Partial) for one in placements[name]):
                continue
            whole = torch.arange(max(1, torch.Size(tile["shape"]).numel())).reshape(tile["shape"])
            local = distribute_tensor(whole, mesh, placements[name]).to_local()
            tried += 1
            for rank, (lo, hi) in enumerate(tile["regions"]):
                part = whole[tuple(slice(a, b) for a, b in zip(lo, hi, strict=True))] if tile["shape"] else whole
                if not torch.equal(local._local_tensors[rank], part):
                    differing.append(f"{name} on rank {rank}")
        for name, (left, right, made) in told["products"].items():
            generator = torch.Generator().manual_seed(0)
            arrays = [torch.randn(told["tensors"][one]["shape"], generator=generator) for one in (left, right)]
            needed = given["NEEDED"].get(name, {})
            operands = [
                distribute_tensor(array, mesh, placements[one]).redistribute(mesh, needed.get(one, placements[one]))
                for array, one in zip(arrays, (left, right), strict=True)
            ]
            product = (operands[0] @ operands[1]).redistribute(mesh, placements[made]).full_tensor()
            products += 1
            if not torch.allclose(product.reconcile(), arrays[0] @ arrays[1], rtol=1e-4, atol=1e-4):
                differing.append(f"product {name}")
    print(json.dumps({"tensors": tried, "products": products, "differing": differing}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""What PyTorch makes of training by micro-batches: a GPT and a CNN with BatchNormalization, 20 updates of 4 each.

``python tests/tools/accumulated.py`` writes ``tests/models/accumulated`` anew, where PyTorch is installed: each model,
and the losses of a loop as trainers have it, with a scheduler's step for each update. Data are drawn by ``data``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

MODELS = Path(__file__).parents[1] / "models" / "accumulated"
UPDATES, BATCHES, SAMPLES = 20, 4, 2
RATES = {"gpt": 0.2, "cnn": 0.05}
"""The first of a cosine to 0 over all updates."""


def data(name: str) -> dict[str, np.ndarray]:
    """Samples of all updates."""
    rng, samples = np.random.default_rng(7), UPDATES * BATCHES * SAMPLES
    if name == "gpt":
        tokens = rng.integers(0, 32, (samples, 8))
        return {"x": tokens, "labels": np.roll(tokens, -1, 1)}
    return {"x": rng.standard_normal((samples, 2, 8, 8), np.float32), "labels": rng.integers(0, 5, samples)}


def write() -> None:
    """Writes models and losses."""
    import torch  # type: ignore[import-not-found]
    from torch import nn  # type: ignore[import-not-found]
    from torch.nn import functional

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, width: int) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, time, width = x.shape
            parts = self.qkv(self.before(x)).split(width, 2)
            heads = [part.reshape(batch, time, 2, -1).transpose(1, 2) for part in parts]
            mask = torch.triu(torch.full((time, time), -1e9), 1)
            scores = torch.softmax(heads[0] @ heads[1].transpose(-1, -2) / (width // 2) ** 0.5 + mask, -1)
            x = x + self.out((scores @ heads[2]).transpose(1, 2).reshape(batch, time, width))
            return x + self.down(functional.gelu(self.up(self.between(x))))

    class GPT(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(32, 16), nn.Embedding(8, 16)
            self.blocks = nn.Sequential(Block(16), Block(16))
            self.head = nn.Linear(16, 32, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.blocks(self.tokens(x) + self.places.weight[None]))

    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2)]
    layers += [nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(72, 5)]
    models = {"gpt": GPT(), "cnn": nn.Sequential(*layers)}
    MODELS.mkdir(exist_ok=True)
    losses: dict[str, list[float]] = {}
    for name, model in models.items():
        arrays = {key: torch.from_numpy(array) for key, array in data(name).items()}
        exported = torch.onnx.export(
            model.eval(), (arrays["x"][:SAMPLES],), dynamo=True, optimize=False, opset_version=21, input_names=["x"],
            output_names=["y"], verbose=False,
        ).model_proto  # fmt: skip
        for one in (exported, exported.graph, *exported.graph.node, *exported.graph.value_info):
            del one.metadata_props[:]  # where each line of code lay
        (MODELS / f"{name}.onnx").write_bytes(exported.SerializeToString())
        optimizer = torch.optim.SGD(model.train().parameters(), lr=RATES[name], momentum=0.9)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, UPDATES)
        losses[name] = []
        for update in range(UPDATES):
            total = 0.0
            for batch in range(update * BATCHES, (update + 1) * BATCHES):
                rows = slice(batch * SAMPLES, (batch + 1) * SAMPLES)
                found = model(arrays["x"][rows]).flatten(0, -2)
                loss = functional.cross_entropy(found, arrays["labels"][rows].flatten()) / BATCHES
                loss.backward()
                total += loss.item()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses[name].append(total)
    np.savez(MODELS / "losses.npz", gpt=losses["gpt"], cnn=losses["cnn"])


if __name__ == "__main__":
    write()

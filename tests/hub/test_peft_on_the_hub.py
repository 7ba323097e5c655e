"""An adapter of our tuner is pushed to and loaded from a hub by PEFT's own means."""

import pytest
import torch
from hub_stand_in import REPO, TOKEN
from torch import nn

from impresslearn.errors import MissingDependencyError
from impresslearn.streams.torchvision import import_extra

try:
    peft = import_extra("peft", "PEFT")
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def test_an_adapter_comes_back_from_the_hub_with_equal_logits(hub):
    from impresslearn.integrations.peft import ImpressConfig

    config = ImpressConfig(num_masks=4, target_modules=["0", "2"])
    model = peft.get_peft_model(network(), config)
    for number, parameter in enumerate(each for each in model.parameters() if each.requires_grad):
        parameter.data = torch.randn(
            parameter.shape, generator=torch.Generator().manual_seed(number)
        )
    model.push_to_hub(REPO, token=TOKEN)
    assert {"adapter_config.json", "adapter_model.safetensors"} <= set(hub.files)
    again = peft.PeftModel.from_pretrained(network(), REPO)
    inputs = torch.randn(5, 6)
    assert torch.equal(again.eval()(inputs), model.eval()(inputs))
    assert not torch.equal(again(inputs), network()(inputs))

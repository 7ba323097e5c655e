"""A tuner for PEFT: masks over a trained network's weights, mixed by a few coefficients an adapter.

Importing this makes the method known to PEFT, under the name IMPRESS; from then on whatever PEFT
does with adapters works, and a saved one loads like any other.

    from impresslearn.integrations.peft import ImpressConfig
    from peft import PeftModel, get_peft_model

    model = get_peft_model(model, ImpressConfig(num_masks=16, target_modules="all-linear"))
    ...                                       # train: a learning rate of about 0.02, by Adam
    model.save_pretrained("adapter")          # coefficients and settings; no masks
    model = PeftModel.from_pretrained(base, "adapter")
    model.load_adapter("another", "b")        # shares the masks, if its seed and number are equal
    model.set_adapter("b")

`config` holds the settings, `layer` wraps one layer and draws its masks, `tuner` registers. Raises
MissingDependencyError where PEFT is not installed.
"""

from impresslearn.streams.torchvision import import_extra

import_extra("peft", "PEFT")  # or says how to get it

from impresslearn.integrations.peft.config import ImpressConfig  # noqa: E402
from impresslearn.integrations.peft.layer import ImpressLayer  # noqa: E402
from impresslearn.integrations.peft.tuner import ImpressModel  # noqa: E402

__all__ = ["ImpressConfig", "ImpressLayer", "ImpressModel"]

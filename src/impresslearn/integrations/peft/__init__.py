"""A tuner for PEFT: each adapter mixes masks over a trained network by a few coefficients.

Importing this package registers the method in PEFT under the name IMPRESS. Afterwards you can use,
save and load its adapters like any others of PEFT.

    from impresslearn.integrations.peft import ImpressConfig
    from peft import PeftModel, get_peft_model

    model = get_peft_model(model, ImpressConfig(num_masks=16, target_modules="all-linear"))
    ...                                       # train: a learning rate of about 0.02, by Adam
    model.save_pretrained("adapter")          # coefficients and settings; no masks
    model = PeftModel.from_pretrained(base, "adapter")
    model.load_adapter("another", "b")        # shares the masks, if its seed and number are equal
    model.set_adapter("b")

`config` has the settings, `layer` wraps a layer and draws its masks, `tuner` registers the method.
Raises MissingDependencyError if PEFT is not installed.
"""

from impresslearn.streams.torchvision import import_extra

import_extra("peft", "PEFT")  # raises with a hint if it is missing

from impresslearn.integrations.peft.config import ImpressConfig  # noqa: E402
from impresslearn.integrations.peft.layer import ImpressLayer  # noqa: E402
from impresslearn.integrations.peft.tuner import ImpressModel  # noqa: E402

__all__ = ["ImpressConfig", "ImpressLayer", "ImpressModel"]

"""Files as examples: what the command line needs between a path and a learner.

`read_examples` gives labelled data from image folders, .npz, .npy and .csv; `read_inputs` gives
inputs without labels, and a name for each; `data_fingerprint` tells whether two data sets are the
same. Nothing is unpickled, and no header is trusted with more memory than a limit.
"""

from impresslearn.data.files.fingerprint import data_fingerprint
from impresslearn.data.files.reading import NamedInputs, holds_images, read_examples, read_inputs

__all__ = ["NamedInputs", "data_fingerprint", "holds_images", "read_examples", "read_inputs"]

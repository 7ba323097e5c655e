"""Files as examples: .npz, .npy, .csv and images become labelled data, or inputs with names.

Nothing is unpickled, and no header is trusted with more memory than a limit.
"""

from impresslearn.data.files.reading import FileReader, NamedInputs, holds_images

__all__ = ["FileReader", "NamedInputs", "holds_images"]

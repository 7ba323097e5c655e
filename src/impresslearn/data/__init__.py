"""Turns a user's data into labelled examples, from which training draws batches.

`as_examples` turns tensors, arrays, data sets and image folders into `Examples` (held in memory,
which is fast) or `StreamedExamples` (read anew each epoch). Streams make examples, learners take
them, and `to_batches` puts them on a device. Labels stay as the user gave them (integers or
strings); `encode_labels` maps them to 0..K-1.
"""

from impresslearn.data.batches import BatchSource as BatchSource
from impresslearn.data.batches import TensorBatches as TensorBatches
from impresslearn.data.batches import even_parts as even_parts
from impresslearn.data.batches import to_batches as to_batches
from impresslearn.data.conversion import as_examples as as_examples
from impresslearn.data.examples import Augmentation as Augmentation
from impresslearn.data.examples import Examples as Examples
from impresslearn.data.examples import Features as Features
from impresslearn.data.examples import Inputs as Inputs
from impresslearn.data.examples import StreamedExamples as StreamedExamples
from impresslearn.data.examples import as_network_inputs as as_network_inputs
from impresslearn.data.examples import inputs_behind as inputs_behind
from impresslearn.data.labels import Label as Label
from impresslearn.data.labels import classes_of as classes_of
from impresslearn.data.labels import encode_labels as encode_labels
from impresslearn.data.labels import label_array as label_array
from impresslearn.data.preprocessing import Prepared as Prepared
from impresslearn.data.preprocessing import Preprocessing as Preprocessing

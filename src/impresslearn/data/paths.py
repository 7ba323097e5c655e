"""The place of these before they moved to `conversion`, `images` and `labels`."""

from impresslearn.data.conversion import users_code as users_code
from impresslearn.data.images import naming as naming
from impresslearn.data.labels import some as some

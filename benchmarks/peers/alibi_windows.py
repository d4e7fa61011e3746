"""Alibi-Detect: the share of windows in which MMDDrift finds a drift: `alibi_windows WINDOWS.npz`."""

import json
import os
import sys

os.environ["TF_USE_LEGACY_KERAS"] = "1"
import numpy as np
from alibi_detect.cd import MMDDrift

LEVEL, PERMUTATIONS = 0.005, 200  # the least level that so many permutations can test

with np.load(sys.argv[1]) as arrays:
    detector = MMDDrift(arrays["reference"], backend="tensorflow", p_val=LEVEL, n_permutations=PERMUTATIONS)
    found = {
        name: float(np.mean([detector.predict(window)["data"]["is_drift"] for window in arrays[name]]))
        for name in arrays.files
        if name != "reference"
    }
print(json.dumps(found))

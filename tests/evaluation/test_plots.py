"""Pictures and tables of scores."""

import io

import numpy as np
import PIL.Image

from perennial.evaluation import plots


def test_the_table_has_a_line_an_example_with_names() -> None:
    assert plots.confusion_csv([0, 1], [1, 1], ["cat", "dog"]) == b"actual,predicted\ncat,dog\ndog,dog\n"


def test_the_picture_is_a_png_of_the_same_bytes_each_time() -> None:
    counts = np.array([[3, 1], [0, 4]])
    one, other = (plots.confusion_png(counts, ["cat", "dog"], "title") for _ in range(2))
    assert PIL.Image.open(io.BytesIO(one)).format == "PNG"
    assert one == other

import io

import numpy as np
import pytest
from rich.console import Console

from perennial.images.terminal import Picture, fitted


def drawn(pixels, *, colours="truecolor", width=40, height=20, **options):
    """The lines that a terminal of this size gets."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        color_system=colours,
        force_terminal=True,
        width=width,
        height=height,
        _environ={},
        **options,
    )
    console.print(Picture(np.array(pixels, np.uint8)))
    return stream.getvalue().splitlines()


def grey(*rows):
    return np.array(rows, np.uint8)[..., np.newaxis]


def test_a_character_holds_two_pixels_one_above_the_other():
    lines = drawn([[[255, 0, 0]], [[0, 0, 9]]], width=1, height=3)
    assert lines == ["\x1b[38;2;255;0;0;48;2;0;0;9m▀\x1b[0m"]


def test_grey_is_drawn_in_grey():
    assert drawn(grey([7], [8]), width=1) == ["\x1b[38;2;7;7;7;48;2;8;8;8m▀\x1b[0m"]


def test_equal_neighbours_share_their_colours():
    assert drawn(grey([7, 7, 7], [8, 8, 8]), width=3) == ["\x1b[38;2;7;7;7;48;2;8;8;8m▀▀▀\x1b[0m"]


def test_below_the_last_odd_line_the_ground_stays():
    assert drawn(grey([1], [2], [3]), width=1)[1] == "\x1b[38;2;3;3;3m▀\x1b[0m"


@pytest.mark.parametrize("options", [{"colours": None}, {"no_color": True}])
def test_without_colours_bright_pixels_are_dense_characters(options):
    assert drawn(grey([0, 128, 255], [0, 128, 255], [255, 0, 0]), width=3, **options) == [" +@", "@  "]


@pytest.mark.parametrize(
    ("shape", "room", "expected"),
    [
        ((28, 28), (80, 50), (28, 28)),
        ((28, 28), (80, 96), (56, 56)),
        ((8, 8), (40, 100), (40, 40)),
        ((333, 500), (80, 200), (53, 80)),
        ((500, 333), (80, 100), (100, 66)),
        ((1, 1000), (80, 20), (1, 80)),
        ((1000, 1), (80, 20), (20, 1)),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_fits_its_room_and_keeps_its_proportions(shape, room, expected, channels):
    pixels = np.zeros((*shape, channels), np.uint8)
    assert fitted(pixels, *room).shape == (*expected, channels)


def test_a_small_picture_is_enlarged_by_a_whole_factor():
    assert fitted(grey([1, 2]), 5, 9)[..., 0].tolist() == [[1, 1, 2, 2]] * 2


def test_the_picture_leaves_the_terminal_a_line_or_two():
    assert len(drawn(np.zeros((500, 300, 3)), width=100, height=24)) == 22

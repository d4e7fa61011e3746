"""Images as a command line names them."""

import tracemalloc

from perennial.prediction import sources

FILES = 5000


def test_of_a_large_folder_names_alone_are_held(tmp_path) -> None:
    for number in range(FILES):
        (tmp_path / f"{number:07}.jpg").touch()
    tracemalloc.start()
    try:
        images = sources.named([str(tmp_path)])
        assert [len(images), sum(1 for _ in images)] == [FILES, FILES]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / FILES < 100  # bytes


def test_images_are_the_same_each_time_they_are_gone_through(tmp_path) -> None:
    (tmp_path / "below").mkdir()
    files = [tmp_path / "b.jpg", tmp_path / "below" / "a.jpg", tmp_path / "c.jpg"]
    for file in files:
        file.touch()
    images = sources.named([str(tmp_path), str(files[0])])
    expected = [str(files[index]) for index in (0, 2, 1, 0)]
    assert [[image.name for image in images] for _ in range(2)] == [expected] * 2

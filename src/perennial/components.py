"""What a project's own components are made of: `from perennial.components import Dataset, Examples, Source`.

Data sets are read in processes without TensorFlow, so the names are imported once they are used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perennial.base.config.data import ModelConfig
    from perennial.base.config.training import ScheduleConfig
    from perennial.base.errors import DataError
    from perennial.data.datasets.dataset import Dataset, Examples, Source, SourceFile
    from perennial.data.images import Image
    from perennial.data.images.png import encode_all
    from perennial.data.preprocessing.randomness import Draws
    from perennial.data.preprocessing.transforms import Distortion, Preprocessing, Target, Window
    from perennial.model.export.export_formats import Format
    from perennial.model.models.architecture import Architecture
    from perennial.model.models.layers import Dropout

__all__ = [
    "Architecture",
    "DataError",
    "Dataset",
    "Distortion",
    "Draws",
    "Dropout",
    "Examples",
    "Format",
    "Image",
    "ModelConfig",
    "Preprocessing",
    "ScheduleConfig",
    "Source",
    "SourceFile",
    "Target",
    "Window",
    "encode_all",
]
MODULES = {
    "base.config.data": ("ModelConfig",),
    "base.config.training": ("ScheduleConfig",),
    "base.errors": ("DataError",),
    "data.datasets.dataset": ("Dataset", "Examples", "Source", "SourceFile"),
    "data.images": ("Image",),
    "data.images.png": ("encode_all",),
    "data.preprocessing.randomness": ("Draws",),
    "data.preprocessing.transforms": ("Distortion", "Preprocessing", "Target", "Window"),
    "model.export.export_formats": ("Format",),
    "model.models.architecture": ("Architecture",),
    "model.models.layers": ("Dropout",),
}
_PLACES = {name: module for module, names in MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"perennial.{_PLACES[name]}"), name)

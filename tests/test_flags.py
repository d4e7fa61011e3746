"""Where each flag of the replaced programs went: docs/reference/flags.csv, which flags.md beside it shows."""

import csv
from dataclasses import asdict
from functools import reduce
from itertools import groupby
from pathlib import Path

from ruamel.yaml import YAML

from perennial.base.config.paths import Paths
from perennial.cli import all_commands

ROOT = Path(__file__).parents[1]
PROGRAMS = {
    "mnist": "TensorFlow's official MNIST program",
    "mnist_eager": "The official MNIST program with eager execution",
    "mnist_tpu": "The official MNIST program for TPUs",
    "slim/download_and_convert_data": "TF-Slim: download_and_convert_data.py",
    "slim/train": "TF-Slim: train_image_classifier.py",
    "slim/eval": "TF-Slim: eval_image_classifier.py",
    "slim/export": "TF-Slim: export_inference_graph.py",
    "cifar10_train": "CIFAR-10 tutorial: cifar10_train.py",
    "cifar10_multi_gpu_train": "CIFAR-10 tutorial: cifar10_multi_gpu_train.py",
    "cifar10_eval": "CIFAR-10 tutorial: cifar10_eval.py",
}
with (ROOT / "docs" / "reference" / "flags.csv").open(encoding="utf-8") as _file:
    FLAGS = list(csv.DictReader(_file))
FILES = set(map(str, asdict(Paths()).values()))
COMMANDS = sorted({flag["here"].strip("`") for flag in FLAGS if flag["here"].startswith("`")})


def keys(flag):
    """The parameters and files that took a flag's place."""
    return [] if flag["here"].startswith("`") else flag["here"].split()


def table(flags):
    """The rows of one program in Markdown."""
    lines = ["| flag | its default | equivalent in perennial | notes |", "|---|---|---|---|"]
    for flag in flags:
        here = flag["here"] if flag["here"].startswith("`") else " ".join(f"`{key}`" for key in keys(flag))
        cells = (f"`{flag['flag']}`", f"`{flag['default']}`", here or "removed", flag["why"])
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def test_a_flag_has_a_key_of_params_or_a_reason_why_it_is_gone():
    params = YAML(typ="safe").load(ROOT / "params.yaml")
    for flag in FLAGS:
        assert flag["here"] or flag["why"], flag
        for key in {*keys(flag)} - FILES:
            reduce(dict.__getitem__, key.split("."), params)  # is there


def test_a_command_that_took_a_flags_place_has_these_options():
    commands = all_commands()
    for command in COMMANDS:
        _, name, *words = command.split()
        known = {option for each in commands[name].params for option in each.opts}
        assert {word for word in words if word.startswith("--")} <= known, command


def test_no_flag_is_listed_twice():
    assert len({(flag["program"], flag["flag"]) for flag in FLAGS}) == len(FLAGS)


def test_the_documentation_shows_the_list():
    text = (ROOT / "docs" / "reference" / "flags.md").read_text(encoding="utf-8")
    shown = [
        f"## {PROGRAMS[program]}\n\n{table(list(flags))}\n"
        for program, flags in groupby(FLAGS, key=lambda flag: flag["program"])
    ]
    assert text.partition("\n## ")[2] == "\n".join(shown).removeprefix("## ")

"""The generated texts: params.yaml and the reference are what the fields say."""

from pathlib import Path

from ruamel.yaml import YAML

from perennial.base.config import Config
from perennial.base.params import options

ROOT = Path(__file__).parents[3]


def test_the_projects_params_are_the_generated_ones():
    assert (ROOT / "params.yaml").read_text(encoding="utf-8") == options.defaults()


def test_the_reference_page_is_the_generated_one():
    assert (ROOT / "docs" / "reference" / "options.md").read_text(encoding="utf-8") == options.markdown()


def test_the_generated_params_hold_the_defaults(workspace):
    assert YAML(typ="safe").load(options.defaults()) == options.values(())
    assert Config.model_validate(options.values(())) == Config()


def test_every_option_has_a_type_and_a_description():
    assert [each.key for each in options.options() if not each.type or not each.description] == []


def test_a_comment_line_fits_the_line_length():
    assert max(map(len, options.defaults().splitlines())) <= options.WIDTH

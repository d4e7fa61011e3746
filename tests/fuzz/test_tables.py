"""Random tables are read as their owners mean them, or refused: never otherwise without a word."""

import os
import shutil
from collections import Counter

from fuzz import table_worlds

from perennial.base.config.data import TableConfig
from perennial.base.errors import DataError
from perennial.data import archives
from perennial.data.datasets.own import image_assignment
from perennial.project.start import proposals
from perennial.project.start.candidates import Named

SEEDS = int(os.environ.get("PERENNIAL_FUZZED_TABLES", "60"))
LEAST = 0.6  # share of the meaningful tables that are read without help


def as_found(found):
    return {
        item.member.name: (found.shown(item), split) for split, part in found.splits.items() for item in part
    }


def outcome(world, folder):
    """`read`, `refused` or `wrong`."""
    world.write(folder, table_worlds.picture)

    def read(member):
        return (folder / member.name).read_bytes()

    try:
        table, found, _ = proposals.choose(archives.folder_contents(folder), read, folder, Named())
    except DataError:
        return "refused"
    named = None if table is None else TableConfig(**table.block)
    staged = image_assignment.find(archives.folder_contents(folder), read, folder, table=named, task=found.task)
    assert as_found(staged) == as_found(found)  # the stages do what start says
    right = found.task == "multiclass" and table_worlds.meant(as_found(found), world.truth)
    return "read" if right else "wrong"


def test_no_random_table_is_read_otherwise_than_its_owner_means(tmp_path):
    counts = Counter[tuple[bool, str]]()
    wrong = []
    for seed in range(SEEDS):
        world = table_worlds.world(seed)
        result = outcome(world, tmp_path / str(seed))
        counts[world.meaningful, result] += 1
        if result == "wrong":
            wrong.append(seed)
        shutil.rmtree(tmp_path / str(seed))
    meaningful = counts[True, "read"] + counts[True, "refused"]
    assert wrong == []
    assert counts[True, "read"] >= LEAST * meaningful, dict(counts)

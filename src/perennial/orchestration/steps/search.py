"""The search of settings in a run, before it trains with the best ones."""

import json
from collections.abc import Mapping
from typing import Any

from perennial.orchestration.engine import this_run
from perennial.orchestration.work.dvc_repo import Results
from perennial.orchestration.work.parameters import search_arguments
from perennial.orchestration.work.perennial_command import call_perennial
from perennial.orchestration.work.stage_failures import StageFailed


def search(results: Results, tune: Mapping[str, Any]) -> Results:
    """Search settings, and write the best ones into params.yaml, which the run commits with its results.

    A retry, or a run that starts again, goes on with the search.
    """
    log = this_run.log()
    done = call_perennial("tune", "--json", *search_arguments(tune), log=log.info)
    if done.exit_code:
        raise StageFailed("tune", done.exit_code, "\n".join(done.log[-1:]), done.kind)
    found = json.loads(done.output)
    if found["written"]:
        best = found["trials"][found["best"]]
        log.info("tune: validation %s %.4f with %s", found["metric"], best["score"], best["settings"])
    else:
        log.info("tune: no trial was better than the present settings, which stay")
    return results

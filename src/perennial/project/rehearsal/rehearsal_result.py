"""The result of a rehearsal as a table and as JSON."""

from collections.abc import Iterator, Mapping
from typing import Any

from perennial.project.rehearsal.fault_trial import GUARANTEES
from perennial.project.rehearsal.rehearse import NAMES, Rehearsal, Tried

Count = tuple[int, int]  # held, tries


def document(result: Rehearsal) -> dict[str, Any]:
    """The JSON document of `perennial rehearse --json`."""
    rows = by_fault(result)
    return {
        "ok": not result.broken,
        "promises": [  # the key is a contract
            {"name": name, "means": meaning, "tries": tries, "held": held}
            for name, meaning in GUARANTEES.items()
            for held, tries in [_sum(rows, name)]
        ],
        "faults": [
            {
                "name": name,
                "tries": sum(trial.fault == name for trial in result.tried),
                "held": sum(trial.fault == name and not trial.broken for trial in result.tried),
                "skipped": result.skipped.get(name),
                "promises": {
                    guarantee: {"held": held, "tries": tries} for guarantee, (held, tries) in row.items()
                },
            }
            for name, row in rows.items()
        ],
        "failures": [_failure(trial) for trial in result.broken],
        "seed": result.seed,
        "seconds": round(result.seconds, 1),
        "unbroken_s": round(result.unbroken_s, 1),
        "folder": None if result.folder is None else str(result.folder),
    }


def by_fault(result: Rehearsal) -> dict[str, dict[str, Count]]:
    """Count for each fault in how many trials each guarantee held; omits guarantees that were not checked."""
    rows: dict[str, dict[str, Count]] = {
        name: {}
        for name in NAMES
        if name in result.skipped or any(trial.fault == name for trial in result.tried)
    }
    for trial in result.tried:
        row = rows[trial.fault]
        for guarantee in dict.fromkeys(check.guarantee for check in trial.checks):
            held, tries = row.get(guarantee, (0, 0))
            broken = any(check.guarantee == guarantee for check in trial.broken)
            row[guarantee] = (held + (not broken), tries + 1)
    return rows


def lines(result: Rehearsal) -> Iterator[str]:
    """Format the result as lines of text."""
    rows = by_fault(result)
    guarantees = [name for name in GUARANTEES if _sum(rows, name)[1]]
    widths = [len(name) for name in guarantees]
    yield f"{'':<22} {'tries':>5}  {'  '.join(guarantees)}".rstrip()
    for name, row in rows.items():
        tries = sum(trial.fault == name for trial in result.tried)
        if not tries:
            yield f"{name:<22} {'-':>5}  skipped: {result.skipped[name]}"
            continue
        cells = (
            f"{'{}/{}'.format(*row[guarantee]) if guarantee in row else '':>{width}}"
            for guarantee, width in zip(guarantees, widths, strict=True)
        )
        yield f"{name:<22} {tries:>5}  {'  '.join(cells)}".rstrip()
    total = ("{}/{}".format(*_sum(rows, guarantee)) for guarantee in guarantees)
    cells = (f"{cell:>{width}}" for cell, width in zip(total, widths, strict=True))
    yield f"{'all':<22} {len(result.tried):>5}  {'  '.join(cells)}".rstrip()
    for trial in result.broken:
        yield f"\n{trial.fault} ({', '.join(trial.notes)}), in {trial.folder}"
        yield from (f"  {check.guarantee}: {check.broken}" for check in trial.broken)


def _sum(rows: Mapping[str, Mapping[str, Count]], guarantee: str) -> Count:
    counts = [row[guarantee] for row in rows.values() if guarantee in row]
    return sum(held for held, _ in counts), sum(tries for _, tries in counts)


def _failure(tried: Tried) -> dict[str, Any]:
    return {
        "fault": tried.fault,
        "trial": tried.number,
        "did": list(tried.notes),
        "broken": [{"promise": check.guarantee, "seen": check.broken} for check in tried.broken],
        "folder": str(tried.folder),
    }

"""Write the tables of measurements.md, fine-tuning.md, index.md and README.md from benchmarks/results.

`python -m docs.measurements` replaces what stands between the markers `<!-- SUBJECT -->` and `<!-- end -->` by
what the results say. A subject whose results are missing keeps its text.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from benchmarks import photographs
from benchmarks.drift_pools import CHANGES

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (
    ROOT / "docs" / "reference" / "measurements.md",
    ROOT / "docs" / "how-to" / "fine-tuning.md",
    ROOT / "docs" / "index.md",
    ROOT / "README.md",
)
BLOCK = re.compile(r"(<!-- (?P<subject>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
PEERS = {"TFDS": "TensorFlow Datasets", "TFDV": "TensorFlow Data Validation"}
SCORES = (
    "359 fixed",
    "2,000 fixed",
    "2,000 fixed, 500 for audit",
    "2,000, and 5 more each night",
    "2,000, and 20 more each night",
    "2,000, and 5 more each night; seeds matter",
)
MIXED = (
    *(f"{share} % of new classes" for share in (5, 10, 20)),
    "a class twice as often",
    "a class four times as often",
)
Results = Mapping[str, Any]


def main() -> None:
    """Write all pages."""
    for page in PAGES:
        page.write_text(documented(page.read_text(encoding="utf-8")), encoding="utf-8")


def documented(text: str) -> str:
    """A page with the tables of the results that there are."""

    def written(block: re.Match[str]) -> str:
        name, table = SUBJECTS[block["subject"]]
        file = RESULTS / f"{name}.json"
        if not file.exists():
            return block[0]
        measured = json.loads(file.read_text(encoding="utf-8"))
        return f"{block[1]}\n{table(measured).rstrip()}\n\n{block[3]}"

    return BLOCK.sub(written, text)


def _origin(results: Results, of: str = "Medians of {runs} rounds") -> str:
    """Where and with what code the results were measured."""
    commit, changed = results["revision"].removesuffix("-dirty"), results["revision"].endswith("-dirty")
    code = (
        "" if commit == "unknown" else f", code of commit `{commit[:10]}`{' with changes' if changed else ''}"
    )
    measured = f"{of.format(runs=results['runs'])}, {_machine(results)}"
    return f"{measured}, TensorFlow {results['versions']['tensorflow']}{code}.\n"


def _machine(results: Results) -> str:
    machine = results["machine"]
    return f"{machine['cores']} cores ({machine['processor'].replace('(R)', '').removesuffix(' Processor')})"


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)) + "\n"


def _convert(results: Results) -> str:
    names = {
        "mnist": "MNIST, 70,000 images",
        "cifar10": "CIFAR-10, 60,000 images",
        "flowers": "flowers, 3,670 photographs",
    }
    rows = []
    for name, shown in names.items():
        case = results["cases"][f"convert {name}"]
        times = case["medians"]
        peers = [
            f"{PEERS.get(peer, peer)} {seconds:.1f} s ({case['median_ratios'][peer]:.1f})"
            for peer, seconds in times.items()
            if peer != "perennial"
        ]
        rows.append([shown, f"{times['perennial']:.1f} s", "; ".join(peers)])
    return _origin(results) + "\n" + _table(["convert", "perennial", "peers (times as long)"], rows)


def _validate(results: Results) -> str:
    rows = []
    for name, case in results["cases"].items():
        if "megabytes_per_second_past_start" in case:
            unit, of = " MB/s", case["megabytes_per_second"]
            own = (
                f"{of['perennial']:.0f}{unit}, {case['megabytes_per_second_past_start']:.0f} without its start"
            )
        else:
            unit, of = " s", case["medians"]
            own = f"{of['perennial']:.1f}{unit}"
        peers = [
            f"{PEERS.get(peer, peer)} {value:.{0 if 'MB' in unit else 1}f}{unit}"
            for peer, value in of.items()
            if not peer.startswith("perennial")
        ]
        rows.append([name.removeprefix("validate "), own, ", ".join(peers)])
    return _origin(results) + "\n" + _table(["validate, on one core", "perennial", "peers"], rows)


def _ray(results: Results) -> str:
    rows = [
        [stage, f"{case['medians']['processes']:.1f} s"]
        + [
            f"{case['medians'][name]:.1f} s ({case['median_ratios'][name]:.1f})"
            if name in case["medians"]
            else ""
            for name in ("Ray, cluster there", "Ray, started for it", "plain Ray tasks")
        ]
        for stage, case in results["cases"].items()
    ]
    head = ["flowers, 3,670 photographs", "processes", "Ray, cluster there", "Ray, started", "plain Ray tasks"]
    return _origin(results) + "\n" + _table(head, rows)


def _memory(results: Results) -> str:
    rows = [
        [stage, *(f"{peak:.0f} MB" for peak in peaks.values())] for stage, peaks in results["medians"].items()
    ]
    counts = next(iter(results["medians"].values()))
    return (
        _origin(results)
        + "\n"
        + _table(["peak of all processes", *(f"{count} images" for count in counts)], rows)
    )


def _train(results: Results) -> str:
    batches = {"mnist_cnn": 100, "cifar10_tutorial": 128}
    rows, notes = [], []
    for network, case in results["cases"].items():
        rates, measured = case["examples_per_second"], case["measured"]
        for ours in ("perennial", "perennial, not deterministic"):
            ratios = [
                theirs["seconds_per_step"] / own["seconds_per_step"]
                for own, theirs in zip(measured[ours], measured["Keras fit"], strict=False)
            ]
            rows.append(
                [
                    f"`{network}`, batches of {batches[network]}"
                    if ours == "perennial"
                    else "the same, `deterministic: false`",
                    f"{rates[ours]:,.0f}",
                    f"{rates['Keras fit']:,.0f}",
                    f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                    f"{case['median_processor_ratios'][ours]['Keras fit']:.2f}",
                ]
            )
        waits, held = (
            median(run[key] for run in measured["perennial"]) for key in ("input_wait", "checkpoint_holds_s")
        )
        notes.append(
            f"- `{network}`: {_percent(case['profile']['matmul_share'])} of a step on one thread are matrix "
            f"products and convolutions. Steps wait {_percent(waits, 1)} of their time for input; "
            f"a checkpoint holds them for {held:.2f} s."
        )
    head = [
        "network",
        "perennial, examples/s",
        "Keras `fit`, examples/s",
        "speed-up by rounds (range)",
        "CPU time, Keras / perennial",
    ]
    return _origin(results) + "\n" + _table(head, rows) + "\n" + "\n".join(notes) + "\n"


PHOTOGRAPHS = {
    "inception": "`inception`, 299",
    "slow": "the same, `fast: false`",
    "vgg": "`vgg`, 224",
    "standard": "`standard`, 224",
    "plain": "`plain`, 224",
    "evaluation": "evaluation of `inception`, 299",
}
PROGRAMS = {"full": "tf.data, whole", "crop": "tf.data, part", "keras": "Keras' layers", "pillow": "Pillow"}
COMPARED = {"crop": "part", "full": "whole", "decode": "`decode_jpeg`"}


def _photographs(results: Results) -> str:
    measured = results["photographs"]
    small, large, reduced = (measured[name] for name in ("small", "12 megapixels", "12 megapixels, reduced"))
    rows = []
    for case, name in PHOTOGRAPHS.items():
        own, step, medians = small["medians"]["perennial"][case], small["in_the_step"][case], small["medians"]
        ratio, of = small["over_peer"].get(case), photographs.CASES[case].of
        rows.append(
            [
                name,
                f"{own:.2f}",
                *(f"{medians[peer][case]:.2f}" if case in photographs.PEERS[peer] else "" for peer in PROGRAMS),
                f"{step:.2f}" if step else "",
                f"{small['images_per_second']['perennial'][case]:,.0f}",
                *(("", "") if ratio is None or of is None else _ratios(ratio, own, step, case, of)),
            ]
        )
    head = ["", "perennial", *PROGRAMS.values(), "in the step", "images/s", "ratio", "with the step"]
    reductions = [
        [
            PHOTOGRAPHS[case],
            *(f"{part['medians']['perennial'][case]:.2f}" for part in (small, large)),
            f"{large['medians'][peer][case]:.2f}",
            f"{reduced['medians']['perennial'][case]:.2f}",
            f"{measured['reduced_over_small'][case]:.2f}",
        ]
        for case, peer in (("inception", "crop"), ("evaluation", "full"))
    ]
    alone = f"`decode_jpeg` alone takes {small['medians']['decode']['plain']:.2f} ms."
    between = f"{alone} Photographs of 12 megapixels, and reduced to {photographs.MAX_SIDE} pixels:"
    return "\n".join(
        (
            _origin(results),
            _table(head, rows),
            between,
            "",
            _table(["", "small", "12 megapixels", "tf.data", "reduced", "reduced / small"], reductions),
        )
    )


def _ratios(ratio: float, own: float, step: float, case: str, of: tuple[str, str]) -> tuple[str, str]:
    """Ours over a peer, without and with what the training step takes."""
    peer, peers_case = of
    other = "" if peers_case in (case, "plain") else f" of {PHOTOGRAPHS[peers_case]}"
    return f"{ratio:.2f} of {COMPARED[peer]}{other}", f"{ratio * (own + step) / own:.2f}" if step else ""


def _input(results: Results) -> str:
    rows = []
    for network, case in results["cases"].items():
        rates, over = case["images_per_second"], case["over_peer"]
        rows.append(
            [
                f"`{network}`",
                *(f"{rates[cache]:,.0f}" for cache in ("memory", "none")),
                f"{rates['tf.data']:,.0f}",
                f"{over['memory']:.1f}",
            ]
        )
    head = ["images/s for", "cache in memory", "no cache", "tf.data", "memory / tf.data"]
    return _origin(results) + "\n" + _table(head, rows)


def _labels(results: Results) -> str:
    def spread(name: str, key: str, digits: int, factor: float = 1) -> str:
        values = [factor * each[key] for each in results["measured"][name]]
        return f"{mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"

    rows = [
        [name, spread(name, "map", 2, 100), spread(name, "seconds", 1), spread(name, "processor_seconds", 1)]
        for name in results["measured"]
    ]
    ratios, seeds = results["median_ratios"], len(results["measured"]["perennial"])
    return (
        _origin(results, f"Means of {seeds} seeds (range)")
        + "\n"
        + _table(["program", "test mAP, %", "seconds", "CPU seconds"], rows)
        + f"\nperennial takes {ratios['seconds']:.2f} times as long, with "
        f"{ratios['processor_seconds']:.2f} times the CPU time (medians of the rounds).\n"
    )


def _head(results: Results) -> str:
    names = {"20 classes x 200": "4,000 of 96 pixels", "120 photographs": "120 photographs of 224 pixels"}
    rows = []
    for name, shown in names.items():
        case = results["cases"][name]
        ours, keras = (
            f"{median(run['seconds'] for run in case['measured'][program]):.1f} s"
            for program in ("perennial", "Keras fit")
        )
        rows.append([shown, ours, keras, f"{case['ratio']:.1f}", f"{case['ratio_with_decoding']:.1f}"])
    return (
        _origin(results)
        + "\n"
        + _table(["images", "perennial", "Keras `fit`", "speed-up", "with decoding"], rows)
    )


def _transfer(results: Results) -> str:
    starts = sorted(results["then"], reverse=True)  # random weights, then the others by their layer decay
    row = [f"{mean(scores):.1%} ± {100 * stdev(scores):.1f}" for scores in map(results["then"].get, starts)]
    measured = f"Test accuracy, mean and standard deviation of {results['seeds']} seeds"
    shown = [f"`layer_decay: {start}`" if start[0].isdigit() else start for start in starts]
    return _origin(results, measured) + "\n" + _table(shown, [row])


def _tune(results: Results) -> str:
    names = {
        "perennial": "`perennial tune`",
        "a process a trial": "Optuna, `perennial train`",
        "Keras fit": "Optuna, `fit` in one process",
    }
    ratios, seconds = results["case"]["median_ratios"], results["seconds_per_trial"]
    rows = [[shown, f"{seconds[name]:.1f} s", f"{ratios.get(name, 1):.1f}"] for name, shown in names.items()]
    return _origin(results, "Rounds: {runs}") + "\n" + _table(["search", "a trial", "times as long"], rows)


def _fast(results: Results) -> str:
    runs = results["trainings"]
    rows = [
        [
            str(run["seed"]),
            f"{run['images']:,}",
            _percent(run["test_accuracy"], 2),
            f"{run['processor_seconds']:.0f} s",
        ]
        for run in runs
    ]
    scores = [100 * run["test_accuracy"] for run in runs]
    table = _table(["seed", "images seen", "test accuracy", "CPU time of the training run"], rows)
    end = f"The mean is {mean(scores):.2f} %, the standard deviation {stdev(scores):.2f} points.\n"
    return _origin(results, "{runs} seeds") + "\n" + table + "\n" + end


def _race(results: Results) -> str:
    rows = []
    for preset, race in results["races"].items():
        evaluations = race["evaluations"]
        seconds, processor, images, _ = next(each for each in evaluations if each[3] >= results["reached"])
        name = f"`{preset}`" + (", shortened" if preset == "fast_cifar10" else "")
        rows.append([name, f"{images:,}", f"{seconds:.0f} s", f"{processor:,.0f} s"])
    measured = f"One run of each until {_percent(results['reached'])} of the validation images were right"
    return _origin(results, measured) + "\n" + _table(["preset", "images seen", "time", "CPU time"], rows)


def _predict(results: Results) -> str:
    rows = []
    for name, case in results["cases"].items():
        ours, keras = (
            f"{median(run['images_per_second'] for run in case['measured'][program]):.0f}"
            for program in ("perennial", "Keras predict")
        )
        first = median(run["first_answer_s"] for run in case["measured"]["perennial"])
        rows.append(
            [
                f"{name.split()[-1]} x {name.split()[-1]}",
                ours,
                keras,
                f"{case['median_ratio']:.2f} ({min(case['ratios']):.2f} to {max(case['ratios']):.2f})",
                f"{case['median_processor_ratio']:.2f}",
                f"{first:.1f} s",
                f"{median(case['command_s']):.1f} s",
            ]
        )
    head = [
        "images",
        "perennial, images/s",
        "Keras `predict`, images/s",
        "speed-up by rounds (range)",
        "CPU time, perennial / Keras",
        "first prediction after the import of TensorFlow",
        "the whole command",
    ]
    return _origin(results) + "\n" + _table(head, rows)


def _serve(results: Results) -> str:
    changing = results["changing"]
    rows = [_served(f"`perennial serve`, {results['switches']} new versions", changing)]
    names = {
        "perennial serve": "`perennial serve`",
        "FastAPI and the signature": "FastAPI, and the exported signature for each request",
        "FastAPI and Keras": "FastAPI, and Keras' `predict` for each request",
        "Keras alone": f"Keras' `predict` from {results['clients']} threads, without HTTP",
    }
    rows += [
        _served(shown, results["compared"][name][0])
        for name, shown in names.items()
        if name in results["compared"]
    ]
    first = sum(changing["answers"].values())
    asked = f"{first:,} requests of the first row, {results['requests']:,} of each other one"
    peak = f"The server took at most {changing['server_peak_mb']:.0f} MB.\n"
    table = _table(["server", "requests/s", "median", "99 % within"], rows)
    return _origin(results, f"{results['clients']} clients, {asked}") + "\n" + table + "\n" + peak


def _served(name: str, run: Results) -> list[str]:
    times = run["milliseconds"]
    return [name, f"{run['requests_per_second']:,.0f}", f"{times['p50']:,.0f} ms", f"{times['p99']:,.0f} ms"]


def _gate(results: Results) -> str:
    names = {
        "digits": "the digits of `params.yaml`, 359 test examples",
        "unsettled": "training runs that end before they have converged, 10,000 test examples",
    }
    rows = []
    for name, shown in names.items():
        scores = results["retrainings"][name]["accuracies"]
        promoted = [
            f"{results['retrainings'][name][of]['promoted']} of {len(scores) - 1}"
            for of in ("champion", "model before")
        ]
        rows.append([shown, f"{mean(scores):.3f} ± {stdev(scores):.3f}", *promoted])
    head = [
        "equally good models",
        "test accuracy and its standard deviation",
        "promoted, compared with the champion",
        "promoted, compared with the previous run",
    ]
    gains = results["gains"]
    power = _table(
        [
            "examples that only one of the models classifies correctly",
            *(_percent(float(share)) for share in gains),
        ],
        [["a model that is better by 1 point is promoted", *(_percent(rate) for rate in gains.values())]],
    )
    return (
        _origin(results, f"{len(scores)} training runs a row that differ only in their seed")
        + "\n"
        + _table(head, rows)
        + "\n"
        + power
    )


def _gate_labels(results: Results) -> str:
    names = {
        "permutation": "permutation of ranks (used)",
        "sign": "sign test of Jaccard indices",
        "jackknife": "jackknife",
        "drop of a class": "a class drops beyond chance (used)",
    }

    def table(
        head: str, column: str, found: Mapping[str, Mapping[str, Mapping[str, float]]], digits: int
    ) -> str:
        shares = next(iter(next(iter(found.values())).values()))
        rows = [
            [size, names[test], *(_percent(share, digits) for share in of.values())]
            for size, tests in found.items()
            for test, of in tests.items()
        ]
        return _table([head, "test", *(column.format(100 * float(share)) for share in shares)], rows)

    pairs = results["pairs"]
    return (
        _origin(
            results,
            f"{pairs} pairs of equally good models ({pairs // 5} of the larger), {pairs // 20} of a gain",
        )
        + "\n"
        + table("equally good models", "below {:g} %", results["nulls"], 1)
        + "\n"
        + table("better models, level 0.2 %", "gain of {:g} points", results["power"], 0)
    )


def _first_labels(results: Results) -> str:
    rows = [
        [name, way, *(f"{_percent(each['mean'], 1)} ± {100 * each['deviation']:.1f}" for each in scores)]
        for name, ways in results["rows"].items()
        for way, scores in ways.items()
    ]
    head = ["images", "labels of", *map(str, results["labels"])]
    return _origin(results, f"{results['repeats']} draws") + "\n" + _table(head, rows)


def _negative_flips(results: Results) -> str:
    def apart(found: Mapping[str, float]) -> str:
        differs = f"{100 * found['difference']:+.1f} ± {100 * found['interval']:.1f}"
        return _percent(found["mean"], 1) + (f" ({differs})" if found["interval"] else "")

    rows = [
        [name, each["way"], apart(each["accuracy"]), apart(each["flips"]), f"{each['time']:.2f}"]
        for name, ways in results["rows"].items()
        for each in ways
    ]
    head = ["images", "successor", "accuracy", "negative flips", "time"]
    return _origin(results, f"{results['seeds']} draws") + "\n" + _table(head, rows)


def _replaced(results: Results) -> str:
    fast = json.loads((RESULTS / "fast.json").read_text(encoding="utf-8"))
    rows = [
        [old, here, _mean_and_deviation(measured), _minutes(measured)]
        for old, here, measured in (
            ("MNIST program, 40 epochs: 99.2 to 99.4 %", "`mnist`, 40 epochs", results),
            ("CIFAR-10 tutorial, 256 epochs: 86 %", "`fast_cifar10`, 5.7 epochs", fast),
        )
    ]
    seeds = min(len(measured["trainings"]) for measured in (results, fast))
    how = (
        f'{seeds} seeds, {_machine(results)}, CIFAR-10 as JPEG files; `make bench SUBJECTS="replaced fast"`.\n'
    )
    return _table(["TensorFlow's", "here", "test accuracy", "CPU minutes"], rows) + "\n" + how


def _mean_and_deviation(results: Results) -> str:
    """Of the test accuracies of several seeds, %."""
    scores = [100 * run["test_accuracy"] for run in results["trainings"]]
    return f"{mean(scores):.2f} ± {stdev(scores):.2f} %"


def _minutes(results: Results) -> str:
    return f"{median(run['processor_seconds'] for run in results['trainings']) / 60:.0f}"


def _scores(results: Results) -> str:
    years = results["years"]
    rows = []
    for name in SCORES:
        found = years[name]
        known = found["coverage"] is not None
        error = f" ± {100 * found['coverage_error']:.1f}" if known else ""
        rows.append(
            [
                name,
                f"{found['promotions']:.2f}",
                f"{100 * found['inflation']:.2f}",
                f"{100 * found['bias']:.2f}" if known else "-",
                f"{100 * found['coverage']:.1f}{error}" if known else "-",
            ]
        )
    head = [
        "test examples",
        "promotions a year",
        "score that chose the champion, points too high",
        "unbiased score, points too high",
        "its 95 % intervals that contain the true accuracy, %",
    ]
    slices = _table(
        ["examples that change sides by chance", *(_percent(float(share)) for share in results["slices"])],
        [
            [shown, *(_percent(found[name], 1) for found in results["slices"].values())]
            for name, shown in (
                ("found", "a slice of 200 lost 10 points: rejected"),
                ("rejected without a loss", "nothing lost: rejected for a drop"),
            )
        ],
    )
    origin = f"{results['number']} years of {results['nights']} nights for each row, {_machine(results)}.\n"
    return origin + "\n" + _table(head, rows) + "\n" + slices


def _examples(split: str) -> int:
    """The number at the start of the name of a test split."""
    return int(split.split(maxsplit=1)[0].replace(",", ""))


def _years(results: Results) -> str:
    """False promotions and found gains, by test split and rule of the gate."""
    shown = {
        "fixed": "`significance` 0.002",
        "validation": "the same, after a gain on validation (default)",
        "budget": "`false_share` 0.1",
        "both": "the same, after a gain on validation",
    }
    splits = results["splits"]
    gains = sorted(next(iter(splits.values()))["fixed"]["found"], key=float)
    rows = [
        [
            split,
            rule,
            _percent(found[name]["years_with_a_false_promotion"], 1),
            *(_percent(found[name]["found"][gain]) for gain in gains),
            f"{found[name]['rising_promotions']:.2f}",
            _percent(found[name]["rising_false_share"], 1),
        ]
        for split, found in sorted(splits.items(), key=lambda item: _examples(item[0]))
        for name, rule in shown.items()
    ]
    columns = [f"found: {100 * float(gain):g} points" for gain in gains]
    rising = ["rising: promotions a year", "of them false"]
    head = ["test examples", "rule", "equal: years with a promotion", *columns, *rising]
    return _origin(results, f"{results['number']} years for each row") + "\n" + _table(head, rows)


def _nights(results: Results) -> str:
    """The score in office of a real history: by git, by a count of each night, and by new predictions."""
    nights = results["nights"]
    by_git, by_night, again = ("{} of {}".format(*each) for each in (
        nights[-1]["by_git"], nights[-1]["by_night"], results["by_answers"]
    ))  # fmt: skip
    equal = sum(each["by_git"] == each["by_night"] for each in nights)
    return (
        f"{len(nights) - 1} nights of the digits, {results['first']} images at first and {results['joining']} "
        f"more each night, {len({each['champion'] for each in nights})} champions, {_machine(results)}.\n\n"
        f"By `perennial status` in a clone: {by_git}; counted night by night: {by_night}; predicted again by "
        f"the champions' exports: {again}. The first two were equal after {equal} of {len(nights)} runs.\n"
    )


def _in_office(results: Results) -> str:
    """Errors of the score in office and of the last champion's on the test split, in points."""
    rules = {"fixed": "`significance` 0.002", "both": "`false_share` 0.1, after a gain on validation"}
    rows = [
        [
            split,
            kind,
            rule,
            f"{found[kind][name]['promotions']:.2f}",
            f"{100 * found[kind][name]['today']:.2f}",
            f"{100 * found[kind][name]['bias']:.2f} ± {100 * found[kind][name]['bias_error']:.2f}",
            _percent(found[kind][name]["coverage"], 1),
        ]
        for split, found in sorted(results["splits"].items(), key=lambda item: len(item[0]))
        for kind in found
        for name, rule in rules.items()
    ]
    head = [
        "test examples",
        "candidates",
        "rule",
        "promotions a year",
        "last champion on the test split, points too high",
        "score in office, points too high",
        "its 95 % intervals that contain the true accuracy",
    ]
    return _origin(results, f"{results['number']} years for each row") + "\n" + _table(head, rows)


def _traffic_gate(results: Results) -> str:
    """How often each value of gate.traffic promotes a candidate, by its gains and the number of labels."""
    modes = ("None", "protects", "decides")
    rows = [
        [
            f"{100 * row['traffic']:+g} / {100 * row['source']:+g}",
            row["kind"],
            f"{row['labels']:,}",
            *(_percent(row["promoted"][way][mode], 2) for way in ("alone", "first") for mode in modes),
        ]
        for row in results["rows"]
    ]
    shown = ["`null`", "`protects`", "`decides`"]
    head = ["points on traffic / old images", "candidate", "random labels", *shown]
    head += [f"{each}, validation first" for each in shown]
    return _origin(results, f"{results['nights']:,} nights for each cell") + "\n" + _table(head, rows)


def _drift(results: Results) -> str:
    sizes, size = sorted(results["false_alarms"], key=int), str(results["size"])
    false = _table(
        [
            f"without drift, of {results.get('windows', 10_000):,} windows with",
            *(f"{each} images" for each in sizes),
        ],
        [
            [shown, *(_percent(results["false_alarms"][each][name], 2) for each in sizes)]
            for name, shown in (
                ("windows", "windows beyond the threshold"),
                ("alarms", "windows at which an alarm lasts"),
                ("windows of drawn references", f"{results['references']} references: windows beyond it"),
                ("alarms of drawn references", f"{results['references']} references: an alarm lasts"),
                ("windows of the worst reference", "the worst of them: of 100 windows, beyond it"),
            )
        ],
    )
    rows = []
    for name in ("none", *CHANGES, *MIXED):
        found = results["drifts"][name]
        delay = found["windows until the alarm"]
        rows.append(
            [
                name,
                _percent(found["accuracy"]),
                *(_percent(found["found"][each]) for each in sizes),
                "-" if delay is None else f"{delay:.1f}",
                _percent(found["domain classifier"]),
                _percent(found["Alibi-Detect"]),
            ]
        )
    head = [
        "drift",
        "accuracy",
        *(f"found in {each} images" for each in sizes),
        f"windows of {size} until the alarm",
        f"domain classifier, {size}",
        f"Alibi-Detect, {size}",
    ]
    origin = (
        f"Test accuracy {results['test_accuracy']:.3f}. Windows of each drift: {results['found_of']:,}, of the "
        f"domain classifier {results['classified_of']}, of Alibi-Detect {results['alibi_of']} "
        f"({results['peer_versions']['alibi-detect']}). {_machine(results)}.\n"
    )
    return origin + "\n" + false + "\n" + _table(head, rows)


def _main_job(results: Results) -> str:
    rows = [
        [
            name,
            *(
                f"{times[stage]:.1f}" if stage in times else ""
                for stage in ("start", "train", "export", "total", "cpu")
            ),
        ]
        for name, times in results["medians"].items()
    ]
    head = ["seconds", "before the first stage", "train", "export", "total", "CPU"]
    of = results["medians"]
    ratios = (
        of["flow, first"]["cpu"] / of["Keras program"]["cpu"],
        of["flow, first"]["total"] / of["dvc repro, first"]["total"],
    )
    predict = of["perennial predict"]["total"] / of["SavedModel in a script"]["total"]
    said = (
        f"The first run takes {ratios[0]:.1f} times the CPU of the Keras program, and the flow {ratios[1]:.2f} "
        f"times as long as `dvc repro`; `perennial predict` takes {predict:.2f} times as long as the script.\n"
    )
    return _origin(results) + "\n" + _table(head, rows) + "\n" + said


def _run_times(results: Results) -> str:
    first, second = (
        sorted(run["total"] for run in results["seconds"][f"flow, {which}"]) for which in ("first", "second")
    )
    shown = [f"{median(first):.0f} s ({first[0]:.0f} to {first[-1]:.0f})", f"{median(second):.1f} s"]
    return (
        f"On {_machine(results)} without a GPU, with the packages installed, this takes {shown[0]}. "
        f"A second run takes {shown[1]}, because every stage is up to date\n"
        f"(median and range of {results['runs']} runs; `make bench SUBJECTS=main_job`)."
    )


SUBJECTS: Mapping[str, tuple[str, Callable[[Results], str]]] = {
    "convert": ("convert", _convert),
    "validate": ("validate", _validate),
    "ray": ("ray", _ray),
    "memory": ("memory", _memory),
    "train": ("train", _train),
    "input": ("input", _input),
    "photographs": ("input", _photographs),
    "labels": ("labels", _labels),
    "head": ("head", _head),
    "transfer": ("transfer", _transfer),
    "tune": ("tune", _tune),
    "fast": ("fast", _fast),
    "race": ("race", _race),
    "predict": ("predict", _predict),
    "serve": ("serve", _serve),
    "gate": ("gate", _gate),
    "gate-labels": ("gate_labels", _gate_labels),
    "first-labels": ("first_labels", _first_labels),
    "negative-flips": ("negative_flips", _negative_flips),
    "scores": ("scores", _scores),
    "years": ("years", _years),
    "traffic-gate": ("traffic_gate", _traffic_gate),
    "in-office": ("in_office", _in_office),
    "nights": ("nights", _nights),
    "replaced": ("replaced", _replaced),
    "drift": ("drift", _drift),
    "main-job": ("main_job", _main_job),
    "run-times": ("main_job", _run_times),
}

if __name__ == "__main__":
    main()

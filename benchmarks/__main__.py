"""`make bench`: measures every subject, or those that are named: `python -m benchmarks convert validate`.

Each subject prints a table and writes benchmarks/results/<subject>.json. Environment:

RUNS            rounds; medians are of so many (default 5), of two for peers that take longer than 10 s
SCALE           share of each generated data set (default 1); other results go to .work/benchmarks/results
MNIST_FOLDER    holds the four IDX files with their original names, *.gz
CIFAR10_FOLDER  holds cifar-10-binary.tar.gz
CIFAR10_IMAGES  holds train/ and test/ with a folder of JPEG files for each class, for transfer, fast and drift,
                and for first_labels and negative_flips
FLOWERS_FOLDER  holds flower_photos.tgz; a smaller archive is repeated until it has 3,670 photographs
REQUESTS        of the subject serve while versions change, of each row of traffic (default 100000)
SEEDS           trainings of the subjects fast (default 5; 0: only its race to 80 %) and replaced, draws of
                negative_flips
TUTORIAL_MINUTES  until the subject fast stops the tutorial's network (default 60)
TRAININGS       of each task of the subject gate (default 200)
NULLS           of the subject gate_labels, pairs of equally good models of each row (default 2000)
WINDOWS, ALIBI  of the subject drift: windows without drift of each size (default 1000), and Alibi-Detect's
                windows of each drift (default 10)
DRAWN           of the subject drift_references: windows without drift of each row (default 1000)
PLACES          of the subject label_queues (default 200)
REPEATS         of each row of the subjects cross_validation (default 2000) and first_labels (default 10)
YEARS           of each row of the subjects scores, years and in_office (default 200)
GROWTH          of the subject nights: how the digits grow: split, folder or labels (default split)
NIGHTS          of each cell of the subject traffic_gate (default 2000)
PEAK_TFLOPS     what the GPU's data sheet promises for bfloat16, where gpu_speed.py does not know it

Without a folder the data are generated, in the same format and number, under .work/benchmarks/data. The peers
install once, from requirements/peers.txt and benchmarks/peers/*.txt, under .work/benchmarks.
"""

import sys

from benchmarks import (
    convert,
    cross_validation,
    drift,
    drift_references,
    fast,
    first_labels,
    gate,
    gate_labels,
    gpu,
    head,
    in_office,
    label_queues,
    labels,
    main_job,
    memory,
    negative_flips,
    nights,
    orchestration,
    predict,
    ray_engine,
    replaced,
    scores,
    serve,
    traffic,
    traffic_gate,
    train,
    transfer,
    tune,
    validate,
    years,
)
from benchmarks import input as input_pipeline

SUBJECTS = {
    "convert": convert.measure,
    "validate": validate.measure,
    "ray": ray_engine.measure,
    "memory": memory.measure,
    "input": input_pipeline.measure,
    "train": train.measure,
    "labels": labels.measure,
    "head": head.measure,
    "transfer": transfer.measure,
    "tune": tune.measure,
    "negative_flips": negative_flips.measure,
    "fast": fast.measure,
    "replaced": replaced.measure,
    "gpu": gpu.measure,
    "predict": predict.measure,
    "serve": serve.measure,
    "traffic": traffic.measure,
    "gate": gate.measure,
    "gate_labels": gate_labels.measure,
    "scores": scores.measure,
    "years": years.measure,
    "in_office": in_office.measure,
    "nights": nights.measure,
    "traffic_gate": traffic_gate.measure,
    "first_labels": first_labels.measure,
    "label_queues": label_queues.measure,
    "cross_validation": cross_validation.measure,
    "drift": drift.measure,
    "drift_references": drift_references.measure,
    "main_job": main_job.measure,
    "orchestration": orchestration.measure,
}


def main() -> None:
    """Measures the subjects that the command line names."""
    names = sys.argv[1:] or list(SUBJECTS)
    if unknown := [name for name in names if name not in SUBJECTS]:
        sys.exit(f"unknown: {', '.join(unknown)}; known: {', '.join(SUBJECTS)}\n\n{__doc__}")
    for name in names:
        SUBJECTS[name]()


if __name__ == "__main__":
    main()

"""What the programs that prepare photographs for a training share: their files, and how they are timed."""

import json
import multiprocessing
import os
import resource
import struct
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

BATCH = 32
SIZES = {"inception": 299, "slow": 299, "evaluation": 299, "vgg": 224, "standard": 224, "plain": 224}
CORES = len(os.sched_getaffinity(0))
Batches = Generator[int, None, None]  # prepares images, and yields how many


def measure(batches: Callable[[str, list[bytes]], Batches], arguments: list[str]) -> None:
    """Prints images a second and processor seconds an image for `RECORDS SECONDS CASE...`."""
    records, seconds, *cases = arguments
    files, found = photographs(Path(records)), {}
    for case in cases:
        images = batches(case, files)
        for _ in range(6):
            next(images)
        begun, used, count = time.monotonic(), processor_seconds(), 0
        while time.monotonic() - begun < float(seconds):
            count += next(images)
        rate, used = count / (time.monotonic() - begun), processor_seconds() - used
        found[case] = {"rate": rate, "processor_seconds": used / count}
        images.close()
    print(json.dumps(found))
    sys.stdout.flush()


def photographs(folder: Path) -> list[bytes]:
    """The JPEG files in the training records, found by the bytes they begin and end with."""
    found = []
    for file in sorted(folder.glob("*_train_*.tfrecord")):
        with file.open("rb") as stream:
            while header := stream.read(12):  # length and its checksum; after the record, its checksum
                record = stream.read(struct.unpack("<Q", header[:8])[0])
                stream.read(4)
                start = record.find(b"\xff\xd8\xff")
                found.append(record[start : record.rfind(b"\xff\xd9") + 2])
    return found


def processor_seconds() -> float:
    """Of this process and those that it started, which still run."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    total = own.ru_utime + own.ru_stime
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total

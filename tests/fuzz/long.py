"""A long run over every decoder, split over the processors (`make fuzz`, `python -m tests.fuzz`)."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.fuzz.run import Outcome, run
from tests.fuzz.targets import targets

PART = 50_000


def _part(name: str, inputs: int, seed: int, part: int) -> tuple[str, int, Outcome]:
    return name, inputs, run(targets()[name], inputs, seed, part)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=int(os.environ.get("RSTORE_FUZZ_INPUTS", "1000000")))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("RSTORE_FUZZ_SEED", "0")))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("target", nargs="*", help=f"one or more of {', '.join(targets())} (default: all)")
    options = parser.parse_args()
    names: list[str] = options.target or list(targets())
    if unknown := [name for name in names if name not in targets()]:
        parser.error(f"no such target: {', '.join(unknown)}")
    total = options.inputs * len(names)
    print(f"{options.inputs:,} inputs for each of {len(names)} decoders, seed {options.seed}, {options.jobs} processes")
    started, done, found = time.monotonic(), 0, 0
    left = dict.fromkeys(names, options.inputs)
    sums = {name: Outcome() for name in names}
    # spawn: the workers share no state with this process, and a crash of one is seen as such
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        parts = [
            pool.submit(_part, name, min(PART, options.inputs - at), options.seed, at // PART)
            for name in names
            for at in range(0, options.inputs, PART)
        ]
        for future in as_completed(parts):
            try:
                name, inputs, outcome = future.result()
            except AssertionError as error:
                found += 1
                print(f"\nFOUND {error}", flush=True)
                continue
            done += inputs
            left[name] -= inputs
            sums[name].values += outcome.values
            sums[name].errors.update(outcome.errors)
            sums[name].measured += outcome.measured
            if sys.stderr.isatty():
                rate = done / (time.monotonic() - started)
                print(f"\r{done * 100 // total:3d} %  {rate:,.0f} inputs/s ", end="", file=sys.stderr, flush=True)
            if left[name] == 0:
                errors = ", ".join(f"{kind} {count:,}" for kind, count in sums[name].errors.most_common())
                print(f"{name:12}  values {sums[name].values:,}, {errors or 'no errors'}", flush=True)
    print(f"{done:,} of {total:,} inputs in {time.monotonic() - started:.0f} s: {found or 'nothing'} found")
    return 1 if found else 0

"""How far copies to the host hide behind matrix products: products on one stream, copies on one of high priority.

    python run_sdma_prototype.py --device 0 --matrix-size 4096 --copy-mb 64 --iterations 20 [--cold-iters 3] [--json]

Runs on ROCm and CUDA. A megabyte is 1,000,000 bytes, and exactly as many as were asked for are copied.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

EXIT_FAILED = 1
EXIT_REFUSED = 2


def main() -> int:
    """Measure and print; gives the exit code."""
    options = _parse()
    if importlib.util.find_spec("torch") is None:
        return _refuse(f"torch is not installed for {sys.executable}; install it, or start another Python")
    torch: Any = importlib.import_module("torch")
    num_devices = torch.cuda.device_count()
    if options.device >= num_devices:
        return _refuse(
            f"--device {options.device}: torch sees {num_devices} GPUs, expected a number below that; check the driver "
            "(rocm-smi, nvidia-smi) and HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES"
        )
    torch.cuda.set_device(options.device)
    bench: Any = importlib.import_module("aorta_train.copy_overlap").Bench
    try:
        device = torch.device("cuda", options.device)
        found = bench(device, options.matrix_size, options.copy_mb).measure(options.iterations, options.cold_iters)
    except torch.cuda.OutOfMemoryError as error:
        _refuse(
            f"--matrix-size {options.matrix_size} with --copy-mb {options.copy_mb} does not fit into device "
            f"{options.device}; take less: {str(error).splitlines()[0]}"
        )
        return EXIT_FAILED
    _tell(options, torch.cuda.get_device_name(options.device), found)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run_sdma_prototype.py", description=(__doc__ or "").splitlines()[0])
    for name, least, default, meaning in (
        ("--device", 0, 0, "number of the GPU"),
        ("--matrix-size", 1, 4096, "rows and columns of the bf16 matrices"),
        ("--copy-mb", 1, 64, "MB of one copy"),
        ("--iterations", 1, 20, "measured iterations"),
        ("--cold-iters", 0, 3, "iterations before them"),
    ):
        parser.add_argument(name, type=_number(least), default=default, help=f"{meaning} (default: {default})")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser.parse_args()


def _number(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < least:
            raise argparse.ArgumentTypeError(f"seen {text!r}, expected a whole number of at least {least}")
        return int(text)

    return number


def _refuse(why: str) -> int:
    print(f"run_sdma_prototype.py: {why}", file=sys.stderr)
    return EXIT_REFUSED


def _tell(options: argparse.Namespace, device_name: str, found: Any) -> None:
    if options.json:
        asked = {name: getattr(options, name) for name in ("matrix_size", "iterations", "cold_iters")}
        times = ("compute_ms", "copy_ms", "sequential_ms", "overlapped_ms")
        derived = ("savings_percent", "overlap_fraction", "copy_gb_per_s", "copy_bytes", "activity")
        print(
            json.dumps({"device": device_name, **asked, **{name: getattr(found, name) for name in (*times, *derived)}})
        )
        return
    print(f"{device_name}: bf16 products of {options.matrix_size} rows, copies of {options.copy_mb} MB to the host")
    print(f"{options.iterations} iterations after {options.cold_iters} cold ones, ms an iteration:")
    print(f"  compute alone    {found.compute_ms:10.3f}")
    print(f"  copy alone       {found.copy_ms:10.3f}")
    print(f"  sequential       {found.sequential_ms:10.3f}")
    print(f"  overlapped       {found.overlapped_ms:10.3f}")
    print(f"savings            {found.savings_percent:10.2f} %")
    print(f"overlap fraction   {found.overlap_fraction:10.2f}")
    print(f"copy rate          {found.copy_gb_per_s:10.2f} GB/s, done by: {found.activity or 'not seen'}")


if __name__ == "__main__":
    sys.exit(main())

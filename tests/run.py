"""Run every test: the serial ones, then the MPI ones on several numbers of ranks, and sum up.

Usage: python tests/run.py [GROUP ...] [-- PYTEST OPTIONS], a group being ``serial`` or a number of ranks.  Needs the
package installed with its ``test`` extra, and ``mpirun`` of the same MPI library on PATH; ``make test`` sees to both.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

GROUPS = ["serial", "1", "2", "3", "4", "5", "8"]
NARROW = [  # what more than three ranks would only repeat, at the price of minutes
    "tests/bench", "tests/runtime/test_device.py", "tests/overlap/test_driver.py", "tests/overlap/test_capability.py",
]  # fmt: skip
LIMIT = 1200  # seconds for one group, on a busy machine; a hang ends earlier, by faulthandler
ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "test-results"


def main(arguments: list[str]) -> int:
    split = arguments.index("--") if "--" in arguments else len(arguments)
    groups, options = arguments[:split] or GROUPS, arguments[split + 1 :]
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    rows = [run_group(group, options) for group in groups]
    return summarise(rows)


def run_group(group: str, options: list[str]) -> tuple[str, Counter, float, int]:
    name = "serial" if group == "serial" else f"{group} rank{'s' * (group != '1')}"
    print(f"\n===== {name} =====", flush=True)
    pytest = [sys.executable, "-m", "pytest", "-q", "--color=no", *options]
    if group == "serial":
        command = [*pytest, "-m", "not mpi", f"--junit-xml={RESULTS / 'serial.xml'}"]
    else:
        ignored = [f"--ignore={path}" for path in NARROW] if int(group) > 3 else []
        command = ["mpirun", "-n", group, *pytest, *ignored, "--only-mpi", "-m", "mpi"]
    environment = {
        **os.environ,
        "MPI_TEST_RANKS": "0" if group == "serial" else group,
        "MPI_TEST_RESULTS": str(RESULTS),
    }
    started = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL) as process:
        try:
            status = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            print(f"{name}: not finished after {LIMIT} s; ended", flush=True)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
            status = -1
    return name, count(RESULTS / f"{group}.xml"), time.monotonic() - started, status


def count(report: Path) -> Counter:
    """Outcomes in the report of one group (of its rank 0, where every rank's failure counts)."""
    if not report.exists():
        return Counter()
    outcomes = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        outcomes[outcome] += 1
    return outcomes


def summarise(rows: list[tuple[str, Counter, float, int]]) -> int:
    print(f"\n{'':10}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    total = Counter()
    for name, outcomes, seconds, status in rows:
        broken = status != 0 or not outcomes["passed"]
        if broken and not outcomes["failed"]:
            outcomes["failed"] = 1  # it crashed, hung, or ran nothing
        total += outcomes
        print(
            f"{name:10}{outcomes['passed']:8}{outcomes['failed']:8}{outcomes['skipped']:9}{seconds:9.1f}"
            + (f"  exit status {status}" if broken else "")
        )
    print(f"\n{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

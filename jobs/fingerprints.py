"""Which algorithm did the vendor really run?  Compare the fingerprints of the launches in some records.

Usage: python jobs/fingerprints.py RECORD.h5...  A fingerprint is a hash of MPI_Allreduce's result on float32 numbers of
very different size, where every order of adding rounds in its own way.  A forced algorithm whose fingerprints equal the
default's did not take effect, or is what the library chooses anyway.  It needs at least 3 ranks.
"""

import sys

from mpi_allreduce.bench import read, read_launches
from mpi_allreduce.units import format_bytes


def main(paths: list[str]) -> None:
    """Print a row for each launch: its label, the family of fingerprint at each size, and its time at the largest."""
    launches = [(facts, read(path, name)) for path in paths for name, facts in read_launches(path).items()]
    launches.sort(key=lambda launch: launch[0]["label"] != "default")
    sizes = sorted({int(s) for facts, _ in launches for s in facts["environment"]["vendor_fingerprint"]})
    families: dict[tuple[int, str], str] = {}
    print(f"{'label':28}" + "".join(f"{format_bytes(size):>9}" for size in sizes) + "   same letter: same bits")
    for facts, rows in launches:
        prints = facts["environment"]["vendor_fingerprint"]
        letters = []
        for size in sizes:
            seen = [key for key in families if key[0] == size]
            key = (size, prints.get(str(size), ""))
            letters.append(families.setdefault(key, chr(ord("a") + len(seen))))
        timed = [row for row in rows if "median" in row]
        largest = max(timed, key=lambda row: row["bytes"], default=None)
        time = f"   {format_bytes(largest['bytes'])}: {largest['median'] * 1e6:.0f} us" if largest else ""
        same = facts["label"] != "default" and all(letter == "a" for letter in letters)
        verdict = "   as the default: no effect, or its own choice" if same else ""
        print(f"{facts['label']:28}" + "".join(f"{letter:>9}" for letter in letters) + time + verdict)


if __name__ == "__main__":
    main(sys.argv[1:])

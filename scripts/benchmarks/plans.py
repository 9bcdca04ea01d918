"""How many plans a second a search goes through, in this Python: `make bench` prints it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "calculator"))

from training_memory import Run  # found through the line above
from training_memory.estimate import peak_bytes
from training_memory.plans import every, search

#: What is searched, for how many GPUs and sequences a step.
SEARCHES: tuple[tuple[dict[str, object], int, int], ...] = (
    ({"model": "llama-2-70b", "gpu": "h100-80gb"}, 64, 1024),
    (
        {
            "model": "llama-3-8b",
            "implementation": "huggingface",
            "recipe": "autocast-adam",
            "gpu": "h100-80gb",
        },
        8,
        64,
    ),
)
#: So many estimates are timed.
ESTIMATES = 500


def main() -> None:
    """Print, for each search, plans a second from beginning to end, and estimates a second.

    Times are the processor's, since a machine may be shared.
    """
    for request, gpus, batch in SEARCHES:
        run = Run.from_json(request)
        *_, _first = search(run, gpus=gpus, batch=batch)  # recordings are made once
        start = time.process_time()
        *_, last = search(run, gpus=gpus, batch=batch)
        took = time.process_time() - start
        some = [one for one, _ in every(run, gpus=gpus, batch=batch)][:ESTIMATES]
        for _ in range(2):
            start = time.process_time()
            for one in some:
                peak_bytes(one)
        each = (time.process_time() - start) / len(some)
        print(
            f"{run.implementation}, {run.model.name} on {gpus} GPUs: {last.priced:,} plans, "
            f"{last.priced / took:,.0f} a second; {1 / each:,.0f} estimates a second"
        )


if __name__ == "__main__":
    main()

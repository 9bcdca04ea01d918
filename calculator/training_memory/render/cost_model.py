"""How costs are worked out: the model's rules with their sources, and the rates of a run's GPU."""

from __future__ import annotations

from ..cost import ACHIEVED, MACHINE, rates_of
from ..run import Run
from .svg import escape

#: What is counted, and where that is from; see :mod:`..cost`.
RULES = (
    (
        "A token takes 6 operations a parameter and 12·s·h a layer; a layer done again its forward",
        "Chowdhery et al. 2022, arXiv:2204.02311, appendix B",
    ),
    (
        f"{round(100 * ACHIEVED)} % of the data sheet's rate is reached",
        "the best measured on an H100: stas00/ml-engineering, compute/accelerator",
    ),
    (
        "A ring of n GPUs sends (n - 1)/n of what is gathered or scattered, twice that of a sum",
        "NCCL tests, doc/PERFORMANCE.md",
    ),
    (
        "Tensor-parallel GPUs wait for four sums a layer",
        "Shoeybi et al. 2019, arXiv:1909.08053, section 3",
    ),
    (
        "Replicas scatter gradients beside the backward pass; ZeRO-3 gathers weights beside both",
        "Rajbhandari et al. 2019, arXiv:1910.02054, section 7",
    ),
    (
        "Of a pipeline's m + p - 1 turns p - 1 are waited, fewer with several parts on a stage",
        "Narayanan et al. 2021, arXiv:2104.04473, section 2.2",
    ),
    (
        "The step waits for every copy to the CPU and back",
        "PyTorch, torch/autograd/graph.py, save_on_cpu",
    ),
)


def rates(run: Run) -> str:
    """The rates that a run's costs are worked out with, and whose they are."""
    found = rates_of(run)
    of = run.gpu.name if run.gpu else "the textbook's GPU"
    if run.gpu and run.gpu.rates is None:
        of = f"the textbook's GPU, since of {of} none are known ({run.gpu.no_rates})"
    flops = found.fp32_flops if run.recipe.precision == "fp32" else found.flops
    return (
        f"Rates of {of}: {flops / 1e12:,g}·10¹² operations a second; {found.link_bytes / 1e9:g} GB "
        f"a second to the {MACHINE} GPUs of a machine, {found.network_bytes / 1e9:g} to others, "
        f"{found.host_bytes / 1e9:g} to the CPU ({found.source})."
    )


def fold(run: Run) -> str:
    """All of it, to open."""
    rules = "".join(
        f"<li>{escape(rule)} <small>({escape(source)})</small></li>" for rule, source in RULES
    )
    return (
        '<details class="tm-cost-model"><summary>How time is worked out</summary>'
        '<p class="tm-caption">The least that a step can take, to rank changes by; a real one '
        f"takes longer.</p><ul>{rules}</ul>"
        f'<p class="tm-caption">{escape(rates(run))}</p></details>'
    )

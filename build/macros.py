"""What the pages' expressions can use: the one module that MkDocs loads (mkdocs-macros).

Thin on purpose: each name comes from the module that owns its idea.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# MkDocs loads this file by its path, so its neighbours and the calculator cannot be found yet.
_ROOT = Path(__file__).parent.parent
for folder in (_ROOT / "build", _ROOT / "scripts", _ROOT / "calculator"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import calculator_page  # noqa: E402
import content  # noqa: E402
import decoder_page  # noqa: E402
import downloads  # noqa: E402
import expressions  # noqa: E402
import figures  # noqa: E402
import gpu_page  # noqa: E402
import licenses  # noqa: E402
import mathematics  # noqa: E402
import plan_expressions  # noqa: E402
import player_page  # noqa: E402
import scatter  # noqa: E402
import start_page  # noqa: E402


def define_env(env: Any) -> None:
    """Give the pages their functions and filters. ``env`` is mkdocs-macros' own."""

    def fact(name: str, *, badge: bool = True) -> str:
        return content.fact(name, badge=badge, page=env.page.file.src_uri)

    def evidence(paper: str, where: str = "") -> str:
        return content.evidence(paper, where, page=env.page.file.src_uri)

    def header_strip() -> str:
        return content.header_strip(env.page.meta)

    functions = {
        **expressions.FUNCTIONS,
        "plan": plan_expressions.plan,
        "math": mathematics.math,
        "math_block": mathematics.math_block,
        "formula": mathematics.formula,
        "calculator": calculator_page.calculator,
        "small_calculator": calculator_page.small_calculator,
        "step_player": player_page.step_player,
        "start_trace": start_page.start_trace,
        "start_measured": start_page.start_measured,
        "gpu_runs": gpu_page.gpu_runs,
        "gpu_differences": gpu_page.gpu_differences,
        "decoder_numbers": decoder_page.decoder_numbers,
        "decoder_figure": decoder_page.decoder_figure,
        "decoder_run": decoder_page.decoder_run,
        "concept_list": content.concept_list,
        "paper_cards": content.paper_cards,
        "figure": figures.figure,
        "scatter": scatter.scatter,
        "coefficient": figures.coefficient,
        "downloads": downloads.downloads,
        "licenses": licenses.licenses,
        "fact": fact,
        "evidence": evidence,
        "header_strip": header_strip,
    }
    for name, function in functions.items():
        env.macro(function, name)
    for name, function in expressions.FILTERS.items():
        env.filter(function, name)

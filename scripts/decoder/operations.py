"""The operations of a transformer: what each computes going forward, and needs going back.

Every function here has the same three parts: compute the output, ``keep`` it on the tape, and leave
an ``undo`` that turns the output's gradient into gradients of the inputs. Each ``tape.recall`` in
an ``undo`` is a reason why training needs memory; what is never recalled was not needed.

In the formulas ``dy`` stands for dloss/dy. Tokens are rows: b·s rows for b sequences of s tokens.
"""

from __future__ import annotations

from math import erf, exp, log, pi, sqrt

from .matrix import (
    Row,
    Rows,
    added,
    columns,
    dot,
    merge_heads,
    scaled,
    split_heads,
    times,
    times_transposed,
)
from .parameter import Parameter
from .tape import Tape

_ROOT_2 = sqrt(2)
_ROOT_2_PI = sqrt(2 * pi)

NORM_EPSILON = 1e-5
"""ε, added to the variance so that a constant row divides by something; PyTorch's default."""


def embed(
    tape: Tape, tokens: list[list[int]], table: Parameter, positions: Parameter, *, name: str
) -> str:
    """Look up x = table[token] + positions[place]; (b, s, h)."""
    places = [(token, place) for line in tokens for place, token in enumerate(line)]
    rows = [
        [t + p for t, p in zip(table.rows[token], positions.rows[place], strict=True)]
        for token, place in places
    ]
    tape.keep(name, (len(tokens), len(tokens[0]), len(rows[0])), rows)

    def undo() -> None:
        # Which rows were looked up is known from the tokens; no activation is needed.
        for dy, (token, place) in zip(tape.gradient(name), places, strict=True):
            table.add_to_row(token, dy)
            positions.add_to_row(place, dy)

    tape.on_backward(undo, name)
    return name


def linear(tape: Tape, source: str, weight: Parameter, *, name: str) -> str:
    """Multiply y = x Wᵀ, without a bias; x (b, s, in), W (out, in), y (b, s, out)."""
    y = times_transposed(tape.rows(source), weight.rows)
    tape.keep(name, (*tape.shape(source)[:-1], len(weight.rows)), y)

    def undo() -> None:
        dy = tape.gradient(name)
        x = tape.recall(source, use=f"the {weight.short_name}'s gradient", formula="dW = dyᵀ·x")
        weight.add(times_transposed(columns(dy), columns(x)))
        tape.add_gradient(source, times(dy, weight.rows))

    tape.on_backward(undo, name)
    return name


def normalise(tape: Tape, source: str, *, name: str, deviation_name: str) -> str:
    """Normalise n = (x − mean) · r, r = 1/√(variance + ε) for each token; (b, s, h) and (b, s)."""
    normalised: Rows = []
    inverse_deviations: Row = []
    for row in tape.rows(source):
        mean = sum(row) / len(row)
        centred = [x - mean for x in row]
        r = 1 / sqrt(dot(centred, centred) / len(row) + NORM_EPSILON)
        inverse_deviations.append(r)
        normalised.append([c * r for c in centred])
    tape.keep(name, tape.shape(source), normalised)
    tape.keep(deviation_name, tape.shape(source)[:-1], [inverse_deviations])

    def undo() -> None:
        # Moving x moves the mean and the deviation as well: the last two terms in the formula.
        n = tape.recall(
            name,
            use="the gradient of the norm's input",
            formula="dx = r·(dn − mean(dn) − n·mean(dn·n))",
        )
        (r,) = tape.recall(
            deviation_name,
            use="the gradient of the norm's input",
            formula="dx = r·(dn − mean(dn) − n·mean(dn·n))",
        )
        dx: Rows = []
        for dn_row, n_row, r_token in zip(tape.gradient(name), n, r, strict=True):
            mean = sum(dn_row) / len(dn_row)
            along = dot(dn_row, n_row) / len(dn_row)
            dx.append(
                [r_token * (d - mean - x * along) for d, x in zip(dn_row, n_row, strict=True)]
            )
        tape.add_gradient(source, dx)

    tape.on_backward(undo, name, deviation_name)
    return name


def scale_and_shift(
    tape: Tape, source: str, scale: Parameter, shift: Parameter, *, name: str
) -> str:
    """Scale and shift y = n · g + c, element by element; n and y (b, s, h), g and c (h)."""
    g, c = scale.rows[0], shift.rows[0]
    y = [
        [n * g_i + c_i for n, g_i, c_i in zip(row, g, c, strict=True)] for row in tape.rows(source)
    ]
    tape.keep(name, tape.shape(source), y)

    def undo() -> None:
        dy = tape.gradient(name)
        n = tape.recall(source, use=f"the {scale.short_name}'s gradient", formula="dg = Σ dy·n")
        scale.add([[dot(d, x) for d, x in zip(columns(dy), columns(n), strict=True)]])
        shift.add([[sum(d) for d in columns(dy)]])
        tape.add_gradient(
            source, [[d * g_i for d, g_i in zip(row, scale.rows[0], strict=True)] for row in dy]
        )

    tape.on_backward(undo, name)
    return name


def attention_scores(tape: Tape, queries: str, keys: str, heads: int, *, name: str) -> str:
    """Score S = q kᵀ / √d for every head; q and k (b, s, h), S (b, a, s, s), d = h/a."""
    b, s, h = tape.shape(queries)
    factor = 1 / sqrt(h // heads)
    scores: Rows = []
    for q, k in zip(
        split_heads(tape.rows(queries), s, heads),
        split_heads(tape.rows(keys), s, heads),
        strict=True,
    ):
        scores += scaled(times_transposed(q, k), factor)
    tape.keep(name, (b, heads, s, s), scores)

    def undo() -> None:
        q_rows = tape.recall(queries, use="the keys' gradient", formula="dk = dSᵀ·q/√d")
        k_rows = tape.recall(keys, use="the queries' gradient", formula="dq = dS·k/√d")
        dq: list[Rows] = []
        dk: list[Rows] = []
        blocks = zip(
            _blocks(scaled(tape.gradient(name), factor), s),
            split_heads(q_rows, s, heads),
            split_heads(k_rows, s, heads),
            strict=True,
        )
        for ds, q, k in blocks:
            dq.append(times(ds, k))
            dk.append(times(columns(ds), q))
        tape.add_gradient(queries, merge_heads(dq, heads))
        tape.add_gradient(keys, merge_heads(dk, heads))

    tape.on_backward(undo, name)
    return name


def causal_softmax(tape: Tape, source: str, *, name: str) -> str:
    """Weigh P = softmax(S) over the places up to one's own, zero after; S and P (b, a, s, s)."""
    s = tape.shape(source)[-1]
    weights: Rows = []
    for index, row in enumerate(tape.rows(source)):
        seen = index % s + 1
        weights.append(_softmax(row[:seen]) + [0.0] * (s - seen))
    tape.keep(name, tape.shape(source), weights)

    def undo() -> None:
        # It takes the softmax's output and nothing of its input: the scores were not needed.
        p = tape.recall(name, use="the scores' gradient", formula="dS = P·(dP − Σ dP·P)")
        ds: Rows = []
        for dp_row, p_row in zip(tape.gradient(name), p, strict=True):
            along = dot(dp_row, p_row)
            ds.append([x * (d - along) for d, x in zip(dp_row, p_row, strict=True)])
        tape.add_gradient(source, ds)

    tape.on_backward(undo, name)
    return name


def attend(tape: Tape, weights: str, values: str, *, name: str) -> str:
    """Weigh the values, c = P v, the heads side by side; P (b, a, s, s), v and c (b, s, h)."""
    _, heads, s, _ = tape.shape(weights)
    blocks = zip(
        _blocks(tape.rows(weights), s), split_heads(tape.rows(values), s, heads), strict=True
    )
    context = merge_heads([times(p, v) for p, v in blocks], heads)
    tape.keep(name, tape.shape(values), context)

    def undo() -> None:
        p_rows = tape.recall(weights, use="the values' gradient", formula="dv = Pᵀ·dc")
        v_rows = tape.recall(values, use="the weights' gradient", formula="dP = dc·vᵀ")
        dp: Rows = []
        dv: list[Rows] = []
        blocks = zip(
            split_heads(tape.gradient(name), s, heads),
            _blocks(p_rows, s),
            split_heads(v_rows, s, heads),
            strict=True,
        )
        for dc, p, v in blocks:
            dp += times_transposed(dc, v)
            dv.append(times(columns(p), dc))
        tape.add_gradient(weights, dp)
        tape.add_gradient(values, merge_heads(dv, heads))

    tape.on_backward(undo, name)
    return name


def add(tape: Tape, left: str, right: str, *, name: str) -> str:
    """Add y = l + r: the residual connection; all three (b, s, h)."""
    tape.keep(name, tape.shape(left), added(tape.rows(left), tape.rows(right)))

    def undo() -> None:
        # A sum passes its gradient on as it is: nothing to recall.
        tape.add_gradient(left, tape.gradient(name))
        tape.add_gradient(right, tape.gradient(name))

    tape.on_backward(undo, name)
    return name


def gelu(tape: Tape, source: str, *, name: str) -> str:
    """Apply y = x Φ(x), Φ being the normal distribution, by the exact error function.

    Hendrycks and Gimpel 2016, arXiv:1606.08415, §2.
    """
    y = [[x * _normal_distribution(x) for x in row] for row in tape.rows(source)]
    tape.keep(name, tape.shape(source), y)

    def undo() -> None:
        x_rows = tape.recall(
            source, use="the gradient of GELU's input", formula="dx = dy·(Φ(x) + x·φ(x))"
        )
        dx = [
            [
                d * (_normal_distribution(x) + x * _normal_density(x))
                for d, x in zip(p, q, strict=True)
            ]
            for p, q in zip(tape.gradient(name), x_rows, strict=True)
        ]
        tape.add_gradient(source, dx)

    tape.on_backward(undo, name)
    return name


def cross_entropy(tape: Tape, logits: str, targets: list[list[int]], *, name: str) -> float:
    """The mean of −log p(next token) over all tokens, in nats; keeps every p, (b, s, V)."""
    wanted = [token for line in targets for token in line]
    probabilities: Rows = []
    loss = 0.0
    for row, token in zip(tape.rows(logits), wanted, strict=True):
        highest = max(row)
        # log Σ exp, and not the log of a probability that may have been rounded to zero.
        loss += highest + log(sum(exp(x - highest) for x in row)) - row[token]
        probabilities.append(_softmax(row))
    tape.keep(name, tape.shape(logits), probabilities)

    def undo() -> None:
        p = tape.recall(
            name, use="the logits' gradient", formula="dz = (p − 1 at the target)/tokens"
        )
        dz = scaled(p, 1 / len(wanted))
        for row, token in zip(dz, wanted, strict=True):
            row[token] -= 1 / len(wanted)
        tape.add_gradient(logits, dz)

    tape.on_backward(undo, name)
    return loss / len(wanted)


def _blocks(rows: Rows, size: int) -> list[Rows]:
    """Rows in groups of ``size``: the s × s block of each sequence and head."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _softmax(row: Row) -> Row:
    """exp(x)/Σ exp(x), with the largest taken off first so that nothing overflows."""
    highest = max(row)
    exponentials = [exp(x - highest) for x in row]
    total = sum(exponentials)
    return [x / total for x in exponentials]


def _normal_distribution(x: float) -> float:
    return 0.5 * (1.0 + erf(x / _ROOT_2))


def _normal_density(x: float) -> float:
    return exp(-0.5 * x * x) / _ROOT_2_PI

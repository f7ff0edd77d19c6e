"""Words and symbols of a page: symbols are typeset, and a word is explained where it first occurs."""

from __future__ import annotations

import re
from html import escape

from dpp2.adversary.attacks import ATTACKS
from dpp2.adversary.style import raised

_ATTACKS = {one.name: one.summary for one in ATTACKS}
# What is explained, by the expression that finds it in the text of a page.
_MEANINGS = {
    r"tier one": "The paper's first protection: a message hides x behind the sum of earlier x, mixed by the secret η.",
    r"tier two": "The paper's second protection: Laplace noise on every message, which decays.",
    r"eavesdropper": "Somebody who hears messages and changes none.",
    r"neighbour\b": "A participant who also listens: it knows η and its own state.",
    r"relative error": "How far an estimate is from the truth, divided by the size of the truth. 1 is as good as not "
    "listening; 1e-2 is two right digits.",
    r"\bη": "The secret number of tier one, between 0 and 1: one for the whole network, a new one in every round.",
    r"gradients?\b": "The derivative of an agent's private objective at its x: it is made of the agent's data.",
    r"\bgap\b": "How far the agents disagree, plus how far their gradients are from a sum of zero: 0 at a solution.",
    r"\bε(?!-)": "The price of a run in privacy: what was overheard can change anybody's odds about one agent by a "
    "factor of e^ε at most. Smaller is better; above 10 it promises little.",
    r"exact account": "The formula of this project that says what a run costs in ε.",
    r"worst-off agent": "The agent for which ε is largest.",
    r"Theorem 3": "The paper's own formula for ε. It leaves out round 0.",
    r"adjacent objective": "An objective whose gradient differs from the agent's by at most δ everywhere. ε is about "
    "telling such two apart.",
    r"Hessians": "The second derivatives of the objectives.",
    r"\bgames\b": "In a game an agent has one of two adjacent objectives; somebody who sees everything guesses which.",
    r"(?<![.\w])damp(?:ing|ed)": "Our repair of the paper's algorithm, with the number τ.",
    r"δ<sub>dp</sub>": "Roughly, the chance that ε fails; it has to be far below one over the number of people.",
    r"(?<![)\w])α(?![ᵢ\w])": "The step size: how far an agent follows its gradient in a round.",
    r"(?<![)\w])β(?!\w)": "The weight of the neighbours' z in a step.",
    r"\bu<sub>w</sub>|\bu_w": "The scale of the noise w that is added to the message y.",
    r"\bu<sub>e</sub>|\bu_e": "The scale of the noise e that is added to the message z.",
    r"privacy-loss distribution": "How often each change of the odds happens; ε and its chance to fail follow from it.",
    **{rf"\b{name}(?= attack|, an |, agent )": meaning for name, meaning in _ATTACKS.items()},
    r"ciphertext": "What TLS leaves on the wire: who talks to whom, how much and when.",
}
_SYMBOL = re.compile(r"(?<![\w./-])(∇f|[xfMyzdqewup]|δ|λ|c|b)_(dp|max|ij|[ijwexyv0-9])(?![\w/]|\.\w)")
_POWER = re.compile(r"(?<![\w.])(10|2|[xweryz]|R)\^((?:[−-]?\d+(?:\.\d+)?)|ε|K|k)(?!\w|\.\w)")
_SCIENTIFIC = re.compile(r"(?<![\w.])(-?\d(?:\.\d+)?)e([+-]\d+)(?!\w)")
_NUMBER = re.compile(r"-?\d(?:\.\d+)?·10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+(?: %)?")  # a phone would break it at the dot or at the exponent
_CODE = re.compile(r"`([^`]+)`")
# Subscripts and powers stay inside a piece of text: a symbol is explained as a whole.
_MARKUP = re.compile(
    r"(<svg.*?</svg>|<details.*?</details>|<h[12]>.*?</h[12]>|<code>.*?</code>|<(?!/?su[bp]>)[^>]+>)", re.DOTALL
)


def typeset(text: str) -> str:
    """Plain text as markup, with subscripts and powers where they belong; `words like these` are code.

    >>> typeset("x_i < 10^23.7, δ_dp, truth.npz, run.largest_value")
    'x<sub>i</sub> &lt; 10<sup>23.7</sup>, δ<sub>dp</sub>, truth.npz, run.largest_value'
    >>> typeset("off by 2e-13, see `noise.u_w`")
    'off by <span class="n">2·10⁻¹³</span>, see <code>noise.u_w</code>'
    """
    pieces = _CODE.split(text)  # what stood between backticks is at odd places
    return "".join(code(piece) if n % 2 else _typeset(piece) for n, piece in enumerate(pieces))


def code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def scientific(text: str) -> str:
    """Numbers as axes write them.

    >>> scientific("2.0e-13, 1.0e+00, 0.0e+00")
    '2.0·10⁻¹³, 1.0, 0'
    """
    return _SCIENTIFIC.sub(lambda found: _power(found[1], int(found[2])), text)


def _power(digits: str, exponent: int) -> str:
    if float(digits) == 0:
        return "0"
    return f"{digits}·10{raised(exponent)}" if exponent else digits


def _typeset(text: str) -> str:
    marked = _POWER.sub(r"\1<sup>\2</sup>", _SYMBOL.sub(r"\1<sub>\2</sub>", escape(text)))
    return _NUMBER.sub(r'<span class="n">\g<0></span>', scientific(marked))


def explained(markup: str) -> str:
    """The same page: a word carries its meaning where it first occurs, and all such words are listed at the end."""
    pieces, used = _MARKUP.split(markup), dict[str, str]()
    for expression, meaning in _MEANINGS.items():
        for n in range(0, len(pieces), 2):  # the others are markup
            found = re.search(expression, pieces[n])
            if found:
                pieces[n : n + 1] = [
                    pieces[n][: found.start()],
                    f'<abbr title="{escape(meaning.replace("δ_dp", "δ"))}">',
                    found[0],
                    "</abbr>",
                    pieces[n][found.end() :],
                ]
                used[found[0]] = meaning
                break
    return "".join(pieces) + _listed(used)


def _listed(used: dict[str, str]) -> str:
    if not used:
        return ""
    entries = "".join(f"<dt>{word}</dt><dd>{typeset(meaning)}</dd>" for word, meaning in used.items())
    return f'<section><h2>Words</h2><dl class="words">{entries}</dl></section>'

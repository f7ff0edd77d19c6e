"""What attacks on methods other than DPP² share: the algorithm's own update, solved for the gradient.

Everything in such an update but the gradient is made of messages, of P and of public parameters. Each algorithm says
how its update is solved (`AlgorithmSection.recovered`); an attack here says which algebra it rests on.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from dpp2.adversary.attacks.algebra import mix
from dpp2.adversary.attacks.base import Attack, Estimate, lacks_parameters, lacks_start, only
from dpp2.adversary.views import View
from dpp2.algorithms.declared import Algebra, Heard


class Solved(Attack):
    algebra: ClassVar[Algebra]
    rests_on: ClassVar[str]  # that algebra, in words

    def needs(self, view: View) -> str | None:
        algorithm = view.knowledge.algorithm
        if algorithm.algebra != self.algebra:
            return f"rests on {self.rests_on}, but {algorithm.own_name} was run"
        if not view.agents:
            return "no agent was overheard"
        return lacks_start(view) or lacks_parameters(view)

    def run(self, view: View) -> Estimate:
        heard = Heard(view.observation.phases, partial(mix, view.observation.P))
        found = view.knowledge.algorithm.recovered(heard)
        assert found is not None  # every algebra but DPP²'s has one
        return Estimate(self.name, x=only(view, found.x), grad=only(view, found.gradient))

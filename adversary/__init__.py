"""The eavesdropper: taps channels, attacks what it overheard, and measures what leaked. It never sees an agent's state.

observation → view (what this attacker sees and knows) → attack → estimate → scoring, the only reader of the truth
"""

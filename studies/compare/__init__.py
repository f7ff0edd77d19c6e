"""Methods against each other at equal ε, on terms that a sceptic accepts (docs/comparison.md says which).

What is compared on (`tasks`), who is compared (`contenders`) and with what (`references`), how noise is fitted
(`fair`), where runs are made (`laboratory`), how settings are searched (`space`, `search`), what is kept on disk
(`kept`), how far it is (`tally`), what is to be done (`plan`), how all of it is put together (`comparison`), what may
be concluded (`claims`, `verdicts`), and what is written down (`pictures`, `page`).
"""

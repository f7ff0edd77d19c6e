"""The paper's figures and its table, measured here. A new study is a new file and one more entry in `STUDIES`."""

from studies.registry import LazyRegistry

STUDIES = LazyRegistry(
    "WHAT",
    {
        "fig1": "studies.reproduce.curves:FIG1",
        "fig2": "studies.reproduce.curves:FIG2",
        "fig3": "studies.reproduce.fig3:FIG3",
        "table1": "studies.reproduce.table1:TABLE1",
        "tier3": "studies.reproduce.tier3:TIER3",
        "zero-sum": "studies.reproduce.zero_sum:ZERO_SUM",
        "overview": "studies.reproduce.overview:OVERVIEW",
    },
)

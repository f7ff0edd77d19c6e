"""The paper's figures and its table, measured here. A new study is a new file and one more entry in `STUDIES`."""

from dpp2.studies.registry import LazyRegistry

STUDIES = LazyRegistry(
    "WHAT",
    {
        "fig1": "dpp2.studies.reproduce.curves:FIG1",
        "fig2": "dpp2.studies.reproduce.curves:FIG2",
        "fig3": "dpp2.studies.reproduce.fig3:FIG3",
        "table1": "dpp2.studies.reproduce.table1:TABLE1",
        "tier3": "dpp2.studies.reproduce.tier3:TIER3",
        "zero-sum": "dpp2.studies.reproduce.zero_sum:ZERO_SUM",
        "overview": "dpp2.studies.reproduce.overview:OVERVIEW",
    },
)

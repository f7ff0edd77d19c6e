"""Benchmarks of this machine. A new one is a new file and one more entry in `BENCHMARKS`."""

from dpp2.studies.registry import LazyRegistry

BENCHMARKS = LazyRegistry(
    "WHAT",
    {
        "core": "dpp2.studies.bench.core:CORE",
        "network": "dpp2.studies.bench.network:NETWORK",
        "audit": "dpp2.studies.bench.audit:AUDIT",
        "hostile": "dpp2.studies.bench.hostile:HOSTILE",
        "scale": "dpp2.studies.bench.scale:SCALE",
        "page": "dpp2.studies.bench.page:PAGE",
    },
)

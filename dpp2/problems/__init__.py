"""The problems. A new kind is a new file and one more entry in `PROBLEMS`."""

from dpp2.problems.base import Objective, ProblemSection
from dpp2.schema import Registry

PROBLEMS: Registry[ProblemSection] = Registry(
    "dpp2.problems",
    {
        "logistic": "logistic:LogisticSection",
        "quadratic": "quadratic:QuadraticSection",
        "least-squares": "least_squares:LeastSquaresSection",
        "sine": "sine:SineSection",
        "classification": "classification:ClassificationSection",
        "file": "userfile:FileSection",
    },
    from_outside={"objects": "objects:ObjectsSection"},
)

__all__ = ["PROBLEMS", "Objective", "ProblemSection"]

"""The problems. A new kind is a new file and one more entry in `PROBLEMS`."""

from dpp2.problems.base import Objective, ProblemSection
from dpp2.problems.classification import ClassificationSection
from dpp2.problems.least_squares import LeastSquaresSection
from dpp2.problems.logistic import LogisticSection
from dpp2.problems.quadratic import QuadraticSection
from dpp2.problems.sine import SineSection
from dpp2.problems.userfile import FileSection

PROBLEMS: tuple[type[ProblemSection], ...] = (
    LogisticSection,
    QuadraticSection,
    LeastSquaresSection,
    SineSection,
    ClassificationSection,
    FileSection,
)

__all__ = ["PROBLEMS", "Objective", "ProblemSection"]

"""The experiment file: read once, into typed trials."""

from disklab.spec.experiment import Experiment, Mode, Refusal, Trial, load, parse
from disklab.spec.feasible import resolve_volumes
from disklab.spec.model import ExperimentFile, TrialSpec, Volume
from disklab.spec.price import MonthlyPrice, PricedItem, monthly_price
from disklab.spec.share import Figure, Share

__all__ = [
    "Experiment",
    "ExperimentFile",
    "Figure",
    "Mode",
    "MonthlyPrice",
    "PricedItem",
    "Refusal",
    "Share",
    "Trial",
    "TrialSpec",
    "Volume",
    "load",
    "monthly_price",
    "parse",
    "resolve_volumes",
]

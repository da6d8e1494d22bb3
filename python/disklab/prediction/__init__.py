"""Predictions: a matrix simulated at full scale, with its error beside it."""

from disklab.databases.calibration import Calibration, calibration_for, read_calibration
from disklab.prediction.run import Options, predict

__all__ = ["Calibration", "Options", "calibration_for", "predict", "read_calibration"]

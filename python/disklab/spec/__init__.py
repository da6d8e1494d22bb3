"""The experiment file: read once, into typed trials."""

from disklab.spec.experiment import Experiment, Mode, Refusal, Trial, load, parse
from disklab.spec.feasible import resolve_volumes
from disklab.spec.model import Cluster, ClusterTrial, DeviceTrial, TrialSpec, Volume
from disklab.spec.share import Figure, Share
from disklab.spec.timetable import TimedEvent, newcomers

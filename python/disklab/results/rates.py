"""A result's rate as that of the described cluster, or of one of its nodes.

Most loads do as much as the disks let them: a node does here what it does there, so rates are not
scaled down. TPC-C's terminals rest between their transactions: its rate is that of its warehouses,
which shrink with the data.
"""

from __future__ import annotations

from collections.abc import Mapping

from disklab.results.records import TrialResult


def of_cluster(result: TrialResult) -> float | None:
    """Return the rate of the whole cluster that the trial describes; None: it has no rate."""
    rate = result.ops_per_s
    if rate is None:
        return None
    by_load = load_ratio(result)
    if by_load is not None:
        return rate * by_load
    full = result.share.nodes.full if result.share else result.nodes
    here = result.nodes or (result.share.nodes.here if result.share else None)
    return rate * full / here if full and here else rate


def of_node(result: TrialResult) -> float | None:
    """Return the rate of one node; None: there is no rate, or nobody knows how many nodes."""
    rate, by_load = result.ops_per_s, load_ratio(result)
    if rate is None:
        return None
    if by_load is not None and result.share is not None and result.share.nodes.full:
        return rate * by_load / result.share.nodes.full
    return rate / result.nodes if result.nodes else None


def load_ratio(result: TrialResult) -> float | None:
    """Return the cluster's load over the load here, where the rate follows it: TPC-C's warehouses.

    None: the rate does not, as without keying and think times.
    """
    warehouses = result.share.warehouses if result.share else None
    told = (result.model_extra or {}).get("tpcc")
    said = told if isinstance(told, Mapping) else {}
    if warehouses is None or not warehouses.here or said.get("keying_and_thinking") is False:
        return None
    return warehouses.full / warehouses.here

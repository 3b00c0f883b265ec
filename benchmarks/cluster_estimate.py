"""On paper: how long a cluster would take, from what one machine was measured to take. An estimate, not a measurement.

Each stage takes as long as its scarcest resource: cores, disks or network. Nothing of that is a law; what it leaves out
and what it takes for granted stands in `assumptions`, beside every estimate that is printed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

GB: Final = 1e9


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The machines. All of them alike, none busy with anything else."""

    nodes: int = 50
    cores: int = 16
    """Of one node, each as fast as one core that was measured."""
    efficiency: float = 0.7
    """Share of the cores' time in which they work: stages end unevenly, tasks are tried again."""
    disk_mb_s: float = 500.0
    """Of one node's local disks, reading and writing together."""
    network_gbit_s: float = 10.0
    """Of one node, in each direction."""
    replicas: int = 3
    """Copies of what is written, on different nodes."""
    captures_read: int = 2
    """How often the captures are read: once for the plan, once for the packets."""
    largest_connection_gb: float = 10.0
    """What the largest single connection carries: where connections are put together it is one task."""


@dataclasses.dataclass(frozen=True)
class StageCost:
    """What a stage took for each GB (1e9 bytes) of captures."""

    name: str
    cpu_s: float
    shuffle_read_gb: float = 0.0
    shuffle_write_gb: float = 0.0
    spilled_gb: float = 0.0


@dataclasses.dataclass(frozen=True)
class Measured:
    """What the run took that the estimate starts from, for each GB of captures."""

    stages: Sequence[StageCost]
    tables_gb: float
    driver_s: float = 0.0
    """Seconds in which no task ran, beyond those of a run over nothing: they do not become fewer with more nodes."""
    start_s: float = 0.0
    """Seconds, whatever the size."""


@dataclasses.dataclass(frozen=True)
class Line:
    """Seconds that a step takes, by resource; it takes as long as the largest."""

    name: str
    compute_s: float = 0.0
    disk_s: float = 0.0
    network_s: float = 0.0
    one_task_s: float = 0.0
    """What its largest task takes, if all of the largest connection is one."""

    @property
    def seconds(self) -> float:
        return max(self.compute_s, self.disk_s, self.network_s, self.one_task_s)


def estimate(measured: Measured, cluster: Cluster, captures_gb: float) -> list[Line]:
    """The steps for `captures_gb` of captures, one after the other."""
    cores = cluster.nodes * cluster.cores * cluster.efficiency
    disk = cluster.nodes * cluster.disk_mb_s / 1000
    network = cluster.nodes * cluster.network_gbit_s / 8
    # Of what is shuffled, all but one node's share goes to another node.
    away = (cluster.nodes - 1) / cluster.nodes
    lines = [Line("captures over the network", network_s=captures_gb * cluster.captures_read / network)]
    for stage in measured.stages:
        through_disk = stage.shuffle_read_gb + stage.shuffle_write_gb + 2 * stage.spilled_gb
        lines.append(
            Line(
                stage.name,
                compute_s=captures_gb * stage.cpu_s / cores,
                disk_s=captures_gb * through_disk / disk,
                network_s=captures_gb * stage.shuffle_read_gb * away / network,
                one_task_s=cluster.largest_connection_gb * stage.cpu_s if stage.shuffle_read_gb else 0.0,
            )
        )
    copies = captures_gb * measured.tables_gb * cluster.replicas
    lines.append(Line("tables, all replicas", disk_s=copies / disk, network_s=copies * away / network))
    lines.append(Line("driver", compute_s=measured.start_s + captures_gb * measured.driver_s))
    return lines


def assumptions(cluster: Cluster) -> list[str]:
    """What an estimate takes for granted, as sentences."""
    return [
        f"{cluster.nodes} nodes with {cluster.cores} cores each, every core as fast as one of the machine that was "
        f"measured and at work {cluster.efficiency:.0%} of the time.",
        f"Each node's disks move {cluster.disk_mb_s:g} MB/s, reading and writing together; its network "
        f"{cluster.network_gbit_s:g} Gbit/s in each direction; nothing between the nodes is slower than that.",
        f"Captures lie in storage that feeds all nodes at their networks' speed, and are read {cluster.captures_read} "
        f"times; tables are written {cluster.replicas} times.",
        "CPU seconds, shuffled and spilled bytes of a stage grow in proportion to the captures. Its CPU seconds are "
        "its share of the time of all tasks, applied to the CPU time of all processes: Java's start and the driver's "
        "work are in them, too.",
        "Stages run one after the other, and each takes as long as its scarcest resource: a stage uses cores, disks "
        "and network at once.",
        f"No connection carries more than {cluster.largest_connection_gb:g} GB; in every stage behind a shuffle this "
        "much is taken to be one task.",
        "The driver's own time is what was measured while no task ran, in proportion; scheduling of many more tasks, "
        "lost nodes and memory that does not suffice are not in it.",
        "The traffic is that of the benchmark: other sizes of messages and codecs have other costs.",
    ]

"""An estimate of how long a cluster would take, calculated from measurements of one machine.

Each stage takes as long as its scarcest resource: cores, disks or network. This is a simple model; `assumptions` lists
what it ignores and assumes, and is printed with every estimate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from kafkasniff.spark.pipeline import MAX_SHARDS
from kafkasniff.spark.source import MAX_PARTS

GB: Final = 1e9
DRIVER: Final = "driver"


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The machines, all alike and otherwise idle."""

    nodes: int = 50
    cores: int = 16
    """Cores of one node, each as fast as one measured core."""
    efficiency: float = 0.7
    """Share of the cores' time in which they work: stages end unevenly, tasks are tried again."""
    disk_mb_s: float = 500.0
    """Local disks of one node, reading and writing together."""
    network_gbit_s: float = 10.0
    """Network of one node, in each direction."""
    replicas: int = 3
    """Copies of written data, on different nodes."""
    captures_read: int = 2
    """How often the captures are read: once for the plan, once for the packets."""
    largest_connection_gb: float = 10.0
    """Size of the largest connection: stages that reassemble connections handle it in one task."""
    capture_mb: float = 100.0
    """Size of a capture."""
    driver_capture_ms: float = 0.2
    """CPU time of the driver for each capture that it plans, as `benchmarks.planning` measures it."""
    driver_task_ms: float = 5.1
    """The same for each task once Java is warm, as `benchmarks.driver --empty` measures it."""
    driver_warm_up_s: float = 46.0
    """The additional CPU time of the first tasks, until then."""
    most_tasks: int = 2 * MAX_PARTS + 5 * MAX_SHARDS
    """Tasks of an export of any size: two stages have one for each split of the captures, five at most for each shard
    (if there are fetch sessions)."""


@dataclasses.dataclass(frozen=True)
class StageCost:
    """What a stage took per GB (1e9 bytes) of captures."""

    name: str
    cpu_s: float
    shuffle_read_gb: float = 0.0
    shuffle_write_gb: float = 0.0
    spilled_gb: float = 0.0


@dataclasses.dataclass(frozen=True)
class Measured:
    """What the run that the estimate starts from took per GB of captures."""

    stages: Sequence[StageCost]
    tables_gb: float
    tasks: float = 0.0
    start_s: float = 0.0
    """Seconds without a running task, whatever the size."""


@dataclasses.dataclass(frozen=True)
class Line:
    """Seconds that a step takes, by resource; it takes as long as the largest."""

    name: str
    compute_s: float = 0.0
    disk_s: float = 0.0
    network_s: float = 0.0
    one_task_s: float = 0.0
    """Duration of its largest task, if all of the largest connection is one task."""

    @property
    def seconds(self) -> float:
        return max(self.compute_s, self.disk_s, self.network_s, self.one_task_s)

    @property
    def limit(self) -> str:
        """The resource that is scarcest, or the driver."""
        if self.name == DRIVER:
            return DRIVER
        seconds = (self.compute_s, self.disk_s, self.network_s, self.one_task_s)
        return ("cores", "disks", "network", "largest connection")[seconds.index(self.seconds)]


def estimate(measured: Measured, cluster: Cluster, captures_gb: float) -> list[Line]:
    """The steps for `captures_gb` of captures, one after the other."""
    cores = cluster.nodes * cluster.cores * cluster.efficiency
    disk = cluster.nodes * cluster.disk_mb_s / 1000
    network = cluster.nodes * cluster.network_gbit_s / 8
    # All shuffled data except one node's share goes to another node.
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
    planning_ms = captures_gb * 1000 / cluster.capture_mb * cluster.driver_capture_ms
    tasks_ms = min(captures_gb * measured.tasks, cluster.most_tasks) * cluster.driver_task_ms
    driver_s = measured.start_s + cluster.driver_warm_up_s + (planning_ms + tasks_ms) / 1000
    lines.append(Line(DRIVER, compute_s=driver_s))
    return lines


def assumptions(cluster: Cluster) -> list[str]:
    """The assumptions of an estimate, as sentences."""
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
        f"No connection carries more than {cluster.largest_connection_gb:g} GB; every stage after a "
        "shuffle handles this much in one task.",
        f"The driver uses one core and works while no task does: {cluster.driver_task_ms:g} ms for each task, "
        f"{cluster.driver_warm_up_s:g} s more while Java warms up, and {cluster.driver_capture_ms:g} ms for each "
        f"capture of {cluster.capture_mb:g} MB. The number of tasks grows in proportion up to {cluster.most_tasks:,}, "
        "by larger splits and shards. Lost nodes and memory that does not suffice are not in it.",
        "The traffic is that of the benchmark: other sizes of messages and codecs have other costs.",
    ]

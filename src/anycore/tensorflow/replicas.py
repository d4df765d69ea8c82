"""Which core a replica of a strategy is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


class Replicas:
    """The replicas of a strategy and the core of each: the number of its device, or 0 where there is one."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        """Raises: ValueError for several replicas that are not on the first CPU devices of this machine."""
        self._strategy = strategy
        if strategy.num_replicas_in_sync == 1:
            self.cores: tuple[int, ...] = (0,)
            return
        devices = [tf.DeviceSpec.from_string(device) for device in strategy.extended.worker_devices]
        self.cores = tuple(device.device_index for device in devices)
        if {device.device_type for device in devices} != {"CPU"} or sorted(self.cores) != [*range(len(self.cores))]:
            raise ValueError(
                "TPUEmbedding works with strategies whose replicas are on the devices CPU:0, CPU:1, … of one machine, "
                f"got {[device.to_string() for device in devices]}"
            )

    def calling_core(self) -> int | None:
        """Returns the core of the replica that calls, None where there are several and none of them calls.

        Raises: RuntimeError in a replica of another strategy that has several.
        """
        replica = tf.distribute.get_replica_context()
        if len(self.cores) == 1:
            if replica is not None and replica.num_replicas_in_sync > 1:
                raise RuntimeError(
                    f"This TPUEmbedding is for one replica, and used in a strategy of {replica.num_replicas_in_sync}. "
                    "Create it in the scope of that strategy."
                )
            return 0
        if replica is None or replica.strategy is not self._strategy:
            return None
        return self.cores[int(tf.get_static_value(replica.replica_id_in_sync_group))]

    def core_of_device(self, device: str) -> int:
        """Returns the core that a device, CPU or TPU, is by its number. Raises: ValueError where there is none."""
        spec = tf.DeviceSpec.from_string(device)
        if spec.device_type not in ("CPU", "TPU"):
            raise ValueError(f"Non-TPU device {device} passed to enqueue.")
        if spec.device_index not in self.cores:
            raise ValueError(f"Device {device} passed to enqueue, its number must be that of a core, {self.cores}.")
        return int(spec.device_index)

    def local_values(self, values: Sequence[Any], replica: int) -> list[Any]:
        """Returns the part of each value that belongs to the replica; what is not distributed belongs to all."""
        return [
            self._strategy.experimental_local_results(value)[replica]
            if isinstance(value, tf.distribute.DistributedValues)
            else value
            for value in values
        ]

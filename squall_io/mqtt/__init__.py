"""MQTT: topics of a broker as streams. Needs the extra `squall[mqtt]`."""

from squall_io.mqtt.sink import MqttSink
from squall_io.mqtt.spout import MqttSpout

__all__ = ["MqttSink", "MqttSpout"]

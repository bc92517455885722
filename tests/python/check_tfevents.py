"""Reads a run folder with the PyPI package tensorboard and prints what it sees as JSON: tag -> [[step, value], ...].

Called by src/telemetry/tfevents_test.cc, which compares. Exit code 77: the package is not installed.
"""
import json
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(77)

folder = sys.argv[1]
accumulator = EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
accumulator.Reload()

scalars = {}
for tag in accumulator.Tags()["scalars"]:
    scalars[tag] = [[event.step, event.value] for event in accumulator.Scalars(tag)]
for tag in accumulator.Tags()["tensors"]:  # newer versions turn simple values into tensors on loading
    scalars[tag] = [[event.step, event.tensor_proto.float_val[0]] for event in accumulator.Tensors(tag)]

# Each file on its own: every record must pass the checksums and parse as an Event, the first must name the version.
files = []
for path in sys.argv[2:]:
    events = [Event.FromString(record) for record in RawEventFileLoader(path).Load()]
    files.append({"records": len(events), "version": events[0].file_version, "starts": [e.step for e in events if e.session_log.status == 1]})

json.dump({"scalars": scalars, "files": files}, sys.stdout)

"""Amazon SQS: fauxqs, which settles a hundred thousand messages in minutes."""

import shutil
from pathlib import Path

from tests.support.brokers.sqs import SqsBroker
from tests.support.npm import folder_of, install

PACKAGE = "fauxqs@1.9.2"
SCRIPT = Path(__file__).with_name("fast_sqs.mjs")


class FastSqsBroker(SqsBroker):
    """Its FIFO queues deliver one message of a group at a time, which those of SQS do not: moto serves other tests."""

    def command(self) -> list[str]:
        with folder_of("fauxqs") as folder:
            install(folder, PACKAGE)
            script = shutil.copy(SCRIPT, str(folder))  # Node looks for packages beside the script
        return ["node", script, str(self.port)]

"""The imports of a runtime at its start."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]


@pytest.mark.parametrize("module", ["runtimes.tensor.api.server", "runtimes.tensor.instances.child"])
def test_a_tensor_runtime_does_not_import_the_schema_of_the_gateway(module: str) -> None:
    """That takes as long as all other imports together."""
    code = f"import sys, {module}; sys.exit('config.schema.config' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

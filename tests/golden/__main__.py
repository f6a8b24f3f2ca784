"""Write the files again: ``python -m tests.golden``."""

from tests.golden import schemas
from tests.golden.outside import FILES, OUTSIDE

for name, write in OUTSIDE.items():
    FILES.joinpath(name).write_text(write())
schemas.update()

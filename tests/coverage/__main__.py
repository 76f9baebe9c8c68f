"""``python -m tests.coverage``: the tables of the layers of both frameworks (`tests.coverage.tables`)."""

import sys

from tests.coverage.tables import main

sys.exit(main())

"""``python -m tests.coverage``: the tables of the layers of both frameworks (`tests.coverage.report`)."""

import sys

from tests.coverage.report import main

sys.exit(main())

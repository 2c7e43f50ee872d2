"""One measurement: `python -m benchmarks.child MODULE NAME [ARGUMENTS]`. Prints one JSON object."""

import importlib
import json
import sys

if __name__ == "__main__":
    module, name, *arguments = sys.argv[1:]
    print(json.dumps(importlib.import_module(f"benchmarks.{module}").MEASUREMENTS[name](*arguments)))

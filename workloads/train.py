"""The bundled training workload: `train.py --config FILE --override a.b=c [d.e=f ...]`, once a rank by torchrun.

Python puts the folder of a script on its import path, so the package beside it is found without PYTHONPATH.
"""

import sys

from aorta_train.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

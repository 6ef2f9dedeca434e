"""test_install - pip installs the package from a checkout, into an environment of its own."""

import os
import subprocess
import sys
import tempfile

from _support import Case, main

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, **options)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


class Install(Case):
    def test_a_fresh_environment_gets_a_package_that_works(self):
        try:
            import ensurepip  # noqa: F401
            import setuptools  # noqa: F401
            import wheel  # noqa: F401
        except ImportError as error:
            self.skipTest(f"{error}: apt-get install python3-venv python3-setuptools python3-wheel")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with tempfile.TemporaryDirectory() as folder:
            run(sys.executable, "-m", "venv", "--system-site-packages", folder, env=environment)
            python = os.path.join(folder, "bin", "python")
            run(python, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index",
                os.path.join(ROOT, "bindings", "python"), env=environment, cwd=folder)
            out = run(python, "-c", "import loam, numpy; loam.numpy.install(); "
                      "print(loam.__version__, loam.owner(numpy.ones(9)).tag, loam.__file__)",
                      env=environment, cwd=folder)
            version, tag, path = out.split()
            self.assertEqual(tag, "numpy.data")
            self.assertTrue(path.startswith(folder), path)
            import loam
            self.assertEqual(version, loam.__version__)
            files = os.listdir(os.path.dirname(path))
            self.assertTrue(os.path.exists(os.path.join(os.path.dirname(path), "include",
                                                        "loam.h")))
            for name in ("py.typed", "_loam.pyi", "numpy.py", "libloam.so.0"):
                self.assertIn(name, files)


if __name__ == "__main__":
    main()

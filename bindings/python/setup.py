"""setup - the package for pip. CMake builds it, as it builds the whole project.

It needs Debian's gcc, cmake, make, pkg-config, luajit and libluajit-5.1-dev, and the headers of the
Python that runs it and of its NumPy. All build files are put in build-python/ of the checkout.
"""

import os
import re
import shutil
import subprocess
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, "build-python")


def version():
    """Returns the version that loam.h defines."""
    with open(os.path.join(ROOT, "core", "include", "loam.h")) as header:
        found = re.findall(r"#define LOAM_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header.read())
    return ".".join(found)


def run(*command):
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        sys.exit(f"loam: {command[0]} is needed to build it: apt-get install {command[0]}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"loam: {' '.join(command[:2])} ended with status {error.returncode}; "
                 "its messages are above (tests/install python installs what it needs)")


class Build(build_py):
    """Builds with CMake, and copies the files of build-python/python/loam into the package."""

    def run(self):
        if not os.path.exists(os.path.join(ROOT, "CMakeLists.txt")):
            sys.exit("loam: the package is built from a checkout: pip install PATH/bindings/python")
        run("cmake", "-S", ROOT, "-B", BUILD, "-DCMAKE_BUILD_TYPE=Release", "-DLOAM_TESTS=OFF",
            "-DLOAM_BENCH=OFF", "-DLOAM_PYTHON_NEEDED=ON", f"-DLOAM_PYTHON={sys.executable}")
        run("cmake", "--build", BUILD, "--target", "loam-python", "--parallel")
        made = os.path.join(BUILD, "python", "loam")
        target = os.path.join(HERE if self.editable_mode else self.build_lib, "loam")
        os.makedirs(target, exist_ok=True)
        os.makedirs(os.path.join(target, "include"), exist_ok=True)
        shutil.copy(os.path.join(made, "include", "loam.h"), os.path.join(target, "include"))
        for name in os.listdir(made):
            there = os.path.exists(os.path.join(target, name)) and self.editable_mode
            if os.path.isfile(os.path.join(made, name)) and (".so" in name or not there):
                shutil.copy(os.path.join(made, name), target)

    def get_outputs(self, include_bytecode=True):
        return []


class Binary(Distribution):
    """Makes a wheel for this version of Python and this kind of machine only."""

    def has_ext_modules(self):
        return True


os.makedirs(BUILD, exist_ok=True)
setup(
    version=version(),
    packages=["loam"],
    distclass=Binary,
    cmdclass={"build_py": Build},
    options={"build": {"build_base": BUILD}, "egg_info": {"egg_base": BUILD},
             "bdist_wheel": {"bdist_dir": os.path.join(BUILD, "wheel")}},
    zip_safe=False,
)

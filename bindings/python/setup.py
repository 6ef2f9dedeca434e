"""setup - makes the wheel and the sdist. CMake builds the files of the wheel.

A wheel holds all that it needs but Python, NumPy and the C library: the modules, libloam, the
command, the preload library, and a copy of LuaJIT. A build needs Debian's packages gcc, cmake,
make, pkg-config, luajit and libluajit-5.1-dev, and the headers of the Python that runs this file
and of its NumPy. All build files are put in build-python/ of the checkout.

An sdist holds this file, and in tree/ the part of the checkout that a build reads.
"""

import os
import re
import shutil
import subprocess
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = os.path.dirname(os.path.abspath(__file__))
IS_SDIST = os.path.isdir(os.path.join(HERE, "tree"))
ROOT = os.path.join(HERE, "tree") if IS_SDIST else os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(HERE if IS_SDIST else ROOT, "build-python")
PACKAGE = "tree/bindings/python/loam" if IS_SDIST else "loam"

# What a build reads of the checkout, and what Python and an editable installation leave there.
SOURCES = ("CMakeLists.txt", "LICENSE", "bindings", "cmake", "core", "lua", "tests/standin/cuda.h")
MADE = ("*.so", "*.so.*", "*.pyc", "__pycache__", "*.egg-info", "dist", "build")
MADE_IN_PACKAGE = ("bin", "include", "LICENSE", "LICENSE.luajit")


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


def copy_built(source, target):
    """Copies a file of an editable installation, but no source over itself or a later edit."""
    if not source.endswith((".py", ".pyi", "py.typed")):
        shutil.copy(source, target)


class Build(build_py):
    """Builds with CMake, and copies the files of build-python/python/loam into the package."""

    def run(self):
        if not os.path.exists(os.path.join(ROOT, "CMakeLists.txt")):
            sys.exit("loam: the package is built from a checkout, by pip install "
                     "PATH/bindings/python, or from an sdist")
        made = os.path.join(BUILD, "python", "loam")
        shutil.rmtree(made, ignore_errors=True)  # an earlier build may have left other files
        run("cmake", "-S", ROOT, "-B", BUILD, "-DCMAKE_BUILD_TYPE=Release", "-DLOAM_TESTS=OFF",
            "-DLOAM_BENCH=OFF", "-DLOAM_INSTALL=OFF", "-DLOAM_WHEEL=ON", "-DLOAM_PYTHON_NEEDED=ON",
            f"-DLOAM_PYTHON={sys.executable}")
        run("cmake", "--build", BUILD, "--target", "loam-python", "--parallel",
            str(os.cpu_count() or 1))
        target = os.path.join(HERE if self.editable_mode else self.build_lib, "loam")
        shutil.copytree(made, target, dirs_exist_ok=True,
                        copy_function=copy_built if self.editable_mode else shutil.copy)

    def get_outputs(self, include_bytecode=True):
        return []


class Sources(sdist):
    """Adds the part of the checkout that a build reads, as the folder tree/."""

    def make_release_tree(self, base_dir, files):
        own = {"setup.py", "pyproject.toml", "README.md", "setup.cfg", "PKG-INFO"}
        super().make_release_tree(base_dir, [name for name in files if name in own])
        # setuptools makes base_dir inside the folder that is copied.
        ignore = shutil.ignore_patterns(os.path.basename(base_dir), *MADE)
        for name in SOURCES:
            source, target = os.path.join(ROOT, name), os.path.join(base_dir, "tree", name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if os.path.isdir(source):
                shutil.copytree(source, target, ignore=ignore)
            else:
                shutil.copy(source, target)
        for name in MADE_IN_PACKAGE:
            path = os.path.join(base_dir, "tree", "bindings", "python", "loam", name)
            shutil.rmtree(path) if os.path.isdir(path) else os.path.exists(path) and os.remove(path)


class Binary(Distribution):
    """Makes a wheel for this version of Python and this kind of machine only."""

    def has_ext_modules(self):
        return True


os.makedirs(BUILD, exist_ok=True)
setup(
    version=version(),
    packages=["loam"],
    package_dir={"loam": PACKAGE},
    distclass=Binary,
    cmdclass={"build_py": Build, "sdist": Sources},
    options={"build": {"build_base": BUILD}, "egg_info": {"egg_base": BUILD},
             "bdist_wheel": {"bdist_dir": os.path.join(BUILD, "wheel")}},
    zip_safe=False,
)

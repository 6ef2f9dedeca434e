"""test_install - an sdist, the wheel that is built from it, and an environment with the wheel.

The environment is in an empty folder. The test uses the package there as its manual says, checks
which system libraries it needs, and removes it.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile

from _support import Case, main

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
HERE = os.path.join(ROOT, "bindings", "python")

# The libraries that every Linux with glibc has, as in the list of manylinux.
SYSTEM = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2",
          "ld-linux-aarch64.so.1"}
GLIBC = (2, 36)  # the version of Debian 12

POLICY = """
local plain  = loam.host { name = "plain" }
local arrays = loam.host { name = "arrays", align = 4096 }
return loam.policy {
  name = "production",
  pick = function(req)
    if req.size >= 1 * loam.MiB then return arrays end
    return plain
  end,
}
"""

# LuaJIT must come from the wheel: a machine without the package libluajit-5.1-2 has no other.
USE = """
import multiprocessing, numpy, loam
loam.policy.load("prod.lua")
loam.numpy.install()
def tell():
    owner = loam.owner(numpy.ones(1 << 20))
    return f"{loam.policy.info().name} {owner.tag} {owner.strategy}"
if __name__ == "__main__":
    print(tell())
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(tell))
    with open("/proc/self/maps") as maps:
        print(*{line.split()[-1] for line in maps if "luajit" in line})
"""


def clean_environment():
    """Returns this process's environment without the variables that lead Python to another loam."""
    return {name: value for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "LOAM_PRELOAD")}


def run(*command, status=0, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=840,
                          env=clean_environment(), **options)
    if done.returncode != status:
        raise AssertionError(f"{' '.join(command)}: status {done.returncode}: "
                             f"{done.stdout}{done.stderr}")
    return done.stdout


def files_below(folder):
    return {os.path.relpath(os.path.join(path, name), folder)
            for path, _, names in os.walk(folder) for name in names}


class Install(Case):
    def setUp(self):
        try:
            import ensurepip  # noqa: F401
            import setuptools  # noqa: F401
            import wheel  # noqa: F401
        except ImportError as error:
            self.skipTest(f"{error}: apt-get install python3-venv python3-setuptools python3-wheel")

    def make_wheel(self, folder):
        """Makes an sdist of the checkout and a wheel of the sdist; returns the wheel's path."""
        run(sys.executable, "-c", "import setuptools.build_meta as backend, sys; "
            "backend.build_sdist(sys.argv[1])", folder, cwd=HERE)
        sdist, = (name for name in os.listdir(folder) if name.endswith(".tar.gz"))
        run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index",
            "--wheel-dir", folder, os.path.join(folder, sdist), cwd=folder)
        wheel, = (name for name in os.listdir(folder) if name.endswith(".whl"))
        return os.path.join(folder, wheel)

    def test_a_wheel_of_an_sdist_works_in_a_fresh_environment_and_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            wheel = self.make_wheel(folder)
            place = os.path.join(folder, "venv")
            run(sys.executable, "-m", "venv", "--system-site-packages", place)
            before = files_below(place)
            python = os.path.join(place, "bin", "python")
            run(python, "-m", "pip", "install", "--no-compile", "--no-index", wheel, cwd=folder)
            package = os.path.dirname(run(python, "-c", "import loam; print(loam.__file__)",
                                          cwd=folder).strip())
            self.assertTrue(package.startswith(place), package)
            self.check_files(package)
            self.use_package(python, package, folder)
            self.use_command(place, folder)
            run(python, "-m", "pip", "uninstall", "--yes", "loam", cwd=folder)
            left = {name for name in files_below(place) - before if not name.endswith(".pyc")}
            self.assertEqual(left, set())

    def check_files(self, package):
        """Checks that the package is complete, and that its binaries need only system libraries."""
        names = files_below(package)
        for name in ("py.typed", "_loam.pyi", "numpy.py", "include/loam.h", "LICENSE",
                     "LICENSE.luajit"):
            self.assertIn(name, names)
        binaries = {name for name in names if ".so" in name or name == "bin/loam"}
        self.assertLessEqual({"libloam.so.1", "libluajit-5.1.so.2", "bin/libloam-preload.so",
                              "bin/loam"}, binaries)
        for name in binaries:
            text = run("readelf", "-dV", os.path.join(package, name))
            needs = set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))
            self.assertLessEqual(needs, SYSTEM | {"libloam.so.1"}, name)
            versions = re.findall(r"GLIBC_(\d+)\.(\d+)", text)
            self.assertLessEqual(max((int(a), int(b)) for a, b in versions), GLIBC, name)
            paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", text)
            self.assertLessEqual(set(paths), {"$ORIGIN", "$ORIGIN/.."}, name)

    def use_package(self, python, package, folder):
        with open(os.path.join(folder, "prod.lua"), "w") as policy:
            policy.write(POLICY)
        with open(os.path.join(folder, "use.py"), "w") as script:
            script.write(USE)
        own, child, luajit = run(python, "use.py", cwd=folder).splitlines()
        self.assertEqual((own, child), ("production numpy.data arrays",) * 2)
        self.assertEqual(luajit, os.path.join(package, "libluajit-5.1.so.2"))

    def use_command(self, place, folder):
        """Uses the command: as a module, and as the program that pip has installed."""
        python, loam = (os.path.join(place, "bin", name) for name in ("python", "loam"))
        with open(os.path.join(folder, "wrong.lua"), "w") as policy:
            policy.write("return 1\n")
        for command in ([python, "-m", "loam"], [loam]):
            self.assertIn("ok", run(*command, "check", "prod.lua", cwd=folder))
            run(*command, "check", "wrong.lua", status=1, cwd=folder)
            run(*command, "no-such-verb", status=2, cwd=folder)
            run(*command, "run", "--policy", "prod.lua", "--", "sh", "-c", "exit 7", status=7,
                cwd=folder)
        # A module that the command runs under a policy obeys it, with the LuaJIT of the wheel.
        told = run(loam, "run", "--policy", "prod.lua", "--", python, "-c",
                   "import loam; print(loam.policy.info().name)", cwd=folder)
        self.assertEqual(told, "production\n")
        # SIGPIPE ends the command without a complaint, although Python ignores the signal.
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([loam, "plan", "prod.lua", "--tag", "a"], stdout=writer, cwd=folder,
                              stderr=subprocess.PIPE, text=True, env=clean_environment())
        os.close(writer)
        self.assertEqual((done.returncode, done.stderr), (-signal.SIGPIPE, ""))


if __name__ == "__main__":
    main()

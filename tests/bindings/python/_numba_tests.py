"""Compares Numba's own tests of memory and of the CUDA driver: plain, and under loam.numba.

    _numba_tests.py [--keep FILE] [--part N/M] [MODULE...]

MODULEs are modules of numba.cuda.tests, such as cudadrv.test_cuda_memory. By default, all modules
run that need no kernels. The program prints the results of each module in a line. --keep writes
each result to a file at once, and does not run a module whose result the file has, so that an
interrupted run can continue. --part runs every Mth module, starting with the Nth.

The tests run on the stand-in for CUDA's driver that LOAM_STANDIN names, or else on the machine's
driver, each module in its own process. Each test must end in the same way both times, except those
that Numba itself skips under any plug-in, and the stand-in must have seen no violation. Debian's
Numba 0.56 cannot compile a kernel for the stand-in, so tests that need one fail both times; the
program prints how many.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import time

# Numba skips tests with these reasons (its decorator skip_if_external_memmgr).
SKIPPED_UNDER_PLUGINS = ("Deallocation specific to Numba memory management",
                         "Ownership not relevant with external memmgr")
QUICK = ["cudadrv.test_" + name for name in (
    "cuda_memory", "deallocations", "emm_plugins", "events", "host_alloc", "pinned", "streams")]
ALL = ["cudadrv.test_" + name for name in (
    "array_attr", "context_stack", "cuda_array_slicing", "cuda_auto_context", "cuda_devicerecord",
    "cuda_driver", "cuda_libraries", "cuda_memory", "cuda_ndarray", "deallocations", "detect",
    "emm_plugins", "events", "host_alloc", "init", "inline_ptx", "ir_patch", "linker",
    "managed_alloc", "nvvm_driver", "pinned", "profiler", "ptds", "reset_device", "runtime",
    "select_device", "streams")] + ["cudapy.test_" + name for name in (
        "array", "cuda_array_interface", "gufunc_scheduling", "ipc", "record_dtype")]

_RESULT = re.compile(r"^(test\w+) \(([\w.]+)\)(?:\n.*?)?? \.\.\. .*?"
                     r"(ok|FAIL|ERROR|skipped '.*?'|expected failure)$", re.M | re.S)
MOST_S = 900  # the limit for one module; some modules take a minute on an idle machine


def environment_of(manager, log):
    environment = {**os.environ, "NUMBA_CUDA_MEMORY_MANAGER": manager, "LOAM_CONTROL": "0",
                   "TMPDIR": os.path.dirname(log),  # Numba leaves folders in it
                   "PYTHONDONTWRITEBYTECODE": "1"}
    driver = os.environ.get("LOAM_STANDIN")
    if driver:
        # LD_LIBRARY_PATH too: numba-cuda, NVIDIA's successor of it, looks only for libcuda.so.
        folders = [os.path.dirname(driver), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        environment.update(NUMBA_CUDA_DRIVER=driver, LOAM_CUDA_DRIVER=driver, STANDIN_LOG=log,
                           LD_LIBRARY_PATH=":".join(folders))
    return environment


def run(module, manager):
    """Runs a module. Returns its tests' verdicts by name, its output, seconds and violations."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        try:
            done = subprocess.run(
                [sys.executable, "-m", "unittest", "-v", "numba.cuda.tests." + module],
                env=environment_of(manager, log), capture_output=True, text=True, timeout=MOST_S,
                cwd=folder)  # an empty folder: Python would import files of this name
            output, end = done.stderr, f"ended with {done.returncode}"
        except subprocess.TimeoutExpired as late:
            output, end = (late.stderr or b"").decode(), f"did not end in {MOST_S} s"
        broken = violations(log)
    verdicts = {place: verdict for _, place, verdict in _RESULT.findall(output)}
    ran = re.search(r"^Ran (\d+) test", output, re.M)
    if not ran:
        verdicts[f"{module} itself"] = f"{end}: {output[-1000:]}"
    elif len(verdicts) != int(ran.group(1)):
        verdicts[f"{module} itself"] = f"{len(verdicts)} results of {ran.group(1)} tests"
    return {"module": module, "manager": manager, "verdicts": verdicts, "output": output,
            "seconds": round(time.monotonic() - begun, 1), "violations": broken}


def violations(log):
    if not os.path.exists(log):  # tests that do not use the driver write none
        return []
    with open(log) as lines:
        return [line.strip() for line in lines if " violation: " in line]


class Kept:
    """Results in a file, one in each line. The last line may be incomplete."""

    def __init__(self, path):
        self.path, self.known = path, {}
        if path and os.path.exists(path):
            with open(path) as lines:
                for line in lines:
                    if line.endswith("\n"):
                        result = json.loads(line)
                        self.known[result["module"], result["manager"]] = result

    def run(self, module, manager):
        if (module, manager) not in self.known:
            result = self.known[module, manager] = run(module, manager)
            if self.path:
                with open(self.path, "a") as lines:
                    lines.write(json.dumps(result) + "\n")
        return self.known[module, manager]


def count(verdicts):
    kinds = collections.Counter(verdict.split()[0] for verdict in verdicts.values())
    return ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds, key=str.swapcase)) or "none"


def differences(plain, under):
    """Yields the differences of two runs of a module, as text."""
    one, other, output = plain["verdicts"], under["verdicts"], under["output"]
    for test in sorted(one.keys() | other.keys()):
        if one.get(test) == other.get(test) or (other.get(test) or "").endswith(tuple(
                f"'{why}'" for why in SKIPPED_UNDER_PLUGINS)):
            continue
        where = output.find(f": {test.rsplit('.', 1)[1]} (")
        yield (f"{test}: {one.get(test)}, and under loam {other.get(test)}\n"
               f"{output[where:where + 3000] if where >= 0 else ''}")
    for line in under["violations"]:
        yield f"{under['module']}: {line}"


def compare(modules, tell=print, keep=None):
    """Returns complaints as text, none if all results agree."""
    complaints, plain_all, loam_all = [], {}, {}
    kept = Kept(keep)
    for number, module in enumerate(modules, 1):
        plain, under = (kept.run(module, manager) for manager in ("default", "loam.numba"))
        found = list(differences(plain, under))
        complaints += found
        plain_all.update(plain["verdicts"])
        loam_all.update(under["verdicts"])
        tell(f"{number:2}/{len(modules)} {module}: {count(plain['verdicts'])} in "
             f"{plain['seconds']} s; under loam "
             f"{f'{len(found)} complaints' if found else 'alike'} in {under['seconds']} s")
    if "ok" not in loam_all.values():
        complaints.append("no test could run")
    tell(f"as Numba is: {count(plain_all)}")
    tell(f"under loam:  {count(loam_all)}")
    return complaints


def main():
    parser = argparse.ArgumentParser(prog="_numba_tests.py")
    parser.add_argument("--keep", metavar="FILE")
    parser.add_argument("--part", metavar="N/M", default="1/1")
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    given = parser.parse_args()
    first, step = map(int, given.part.split("/"))
    modules = (given.modules or ALL)[first - 1::step]
    complaints = compare(modules, lambda line: print(line, flush=True), given.keep)
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())

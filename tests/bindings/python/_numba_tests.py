"""Numba's own tests of memory and of the CUDA driver, as Numba is and under loam.numba, compared.

    _numba_tests.py [MODULE...]    of numba.cuda.tests, as cudadrv.test_cuda_memory; else all that
                                   need no kernels

On the stand-in for CUDA's driver that LOAM_STANDIN names, else on the driver of the machine, each
module in a process of its own. The two must end alike, test by test, but for those that Numba
itself skips under any plug-in, and the stand-in must have seen no violation. Debian's Numba 0.56
cannot compile a kernel for the stand-in, so tests that need one fail both times; how many is
printed.
"""

import collections
import os
import re
import subprocess
import sys
import tempfile

# By its decorator skip_if_external_memmgr, with these reasons.
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


def run(module, manager, log):
    """The results of a module's tests by name."""
    environment = {**os.environ, "NUMBA_CUDA_MEMORY_MANAGER": manager, "LOAM_CONTROL": "0",
                   "PYTHONDONTWRITEBYTECODE": "1"}
    driver = os.environ.get("LOAM_STANDIN")
    if driver:
        environment.update(NUMBA_CUDA_DRIVER=driver, LOAM_CUDA_DRIVER=driver, STANDIN_LOG=log)
    done = subprocess.run([sys.executable, "-m", "unittest", "-v", "numba.cuda.tests." + module],
                          env=environment, capture_output=True, text=True, timeout=500,
                          cwd=tempfile.gettempdir())
    results = {place: verdict for _, place, verdict in _RESULT.findall(done.stderr)}
    ran = re.search(r"^Ran (\d+) test", done.stderr, re.M)
    if not ran:
        results[f"{module} itself"] = f"ended with {done.returncode}: {done.stderr[-1000:]}"
    elif len(results) != int(ran.group(1)):
        results[f"{module} itself"] = f"{len(results)} results of {ran.group(1)} tests"
    return results, done.stderr


def violations(log):
    if not os.path.exists(log):  # of tests that do not use the driver
        return []
    with open(log) as lines:
        return [line.strip() for line in lines if " violation: " in line]


def count(results):
    kinds = collections.Counter(verdict.split()[0] for verdict in results.values())
    return ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds, key=str.swapcase)) or "none"


def compare(modules, tell=print):
    """Complaints, in words; none where all is alike."""
    complaints, plain_all, loam_all = [], {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for module in modules:
            logs = [os.path.join(folder, f"{module}.{which}") for which in ("plain", "loam")]
            plain, _ = run(module, "default", logs[0])
            under, output = run(module, "loam.numba", logs[1])
            plain_all.update(plain)
            loam_all.update(under)
            for test in sorted(plain.keys() | under.keys()):
                one, other = plain.get(test), under.get(test)
                if one != other and not (other or "").endswith(tuple(
                        f"'{why}'" for why in SKIPPED_UNDER_PLUGINS)):
                    where = output.find(f": {test.rsplit('.', 1)[1]} (")
                    complaints.append(f"{test}: {one}, and under loam {other}\n"
                                      f"{output[where:where + 3000] if where >= 0 else ''}")
            complaints += [f"{module}: {line}" for line in violations(logs[1])]
    if "ok" not in loam_all.values():
        complaints.append("no test could run")
    tell(f"as Numba is: {count(plain_all)}")
    tell(f"under loam:  {count(loam_all)}")
    return complaints


if __name__ == "__main__":
    complaints = compare(sys.argv[1:] or ALL)
    for complaint in complaints:
        print(complaint)
    sys.exit(1 if complaints else 0)

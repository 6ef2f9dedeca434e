"""test_numpy - loam as NumPy's allocator: which threads use it, and who owns which array."""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import ctypes
import functools
import gc
import signal
import sys
import tempfile
import threading
import tracemalloc
import types
import unittest.mock
import weakref

import numpy

import loam
from loam import _numpy

from _support import POLICY, Case, main, run_child


def handler_of(array):
    return numpy.core.multiarray.get_handler_name(array)


def tag_now(size=10):
    """Returns the tag of an array that is made here, or None if the array is not loam's."""
    owner = loam.owner(numpy.empty(size))
    return owner and owner.tag


def on_a_thread(function):
    answer = []
    thread = threading.Thread(target=lambda: answer.append(function()))
    thread.start()
    thread.join()
    return answer[0]


class Installed(Case):
    def setUp(self):
        loam.policy.load(text=POLICY)
        loam.numpy.install()
        self.addCleanup(loam.numpy.uninstall)


class Who(Installed):
    def test_this_context_sees_it(self):
        array = numpy.ones(1000)
        self.assertEqual(handler_of(array), "loam")
        self.assertEqual(loam.owner(array).tag, "numpy.data")
        self.assertEqual(loam.owner(array[5:].reshape(5, -1)).address, array.ctypes.data)
        self.assertTrue(loam.numpy.is_installed())

    def test_new_threads_see_it(self):
        self.assertEqual(on_a_thread(tag_now), "numpy.data")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            self.assertEqual(set(pool.map(tag_now, range(10))), {"numpy.data"})

    def test_contexts_made_from_nothing_see_it(self):
        self.assertEqual(contextvars.Context().run(tag_now), "numpy.data")

    def test_executors_of_a_loop_see_it(self):
        async def ask():
            return await asyncio.get_running_loop().run_in_executor(None, tag_now)
        self.assertEqual(asyncio.run(ask()), "numpy.data")

    def test_a_thread_of_c_sees_it(self):
        answer = []
        start = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(
            lambda _: answer.append(tag_now()))
        libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
        libc.pthread_create(ctypes.byref(thread), None, start, None)
        libc.pthread_join(thread, None)
        self.assertEqual(answer, ["numpy.data"])

    def test_a_thread_that_ran_before_sees_it(self):
        loam.numpy.uninstall()
        go, answer = threading.Event(), []

        def wait():
            answer.append(tag_now())
            go.wait()
            answer.append(tag_now())
        thread = threading.Thread(target=wait)
        thread.start()
        while not answer:
            pass
        loam.numpy.install()
        go.set()
        thread.join()
        self.assertEqual(answer, [None, "numpy.data"])

    def test_a_context_with_a_handler_of_its_own_keeps_it(self):
        def choose():
            _numpy.set_handler(_numpy.default_handler())
            with loam.tag("not.heeded"):
                return tag_now()
        self.assertIsNone(contextvars.Context().run(choose))
        self.assertEqual(tag_now(), "numpy.data")

    def test_threads_that_use_numpy_meanwhile_do_no_harm(self):
        stop = threading.Event()
        self.addCleanup(stop.set)

        def work():
            while not stop.is_set():
                numpy.ones(100).sum()
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(50):
            loam.numpy.uninstall()
            self.assertIsNone(tag_now())
            loam.numpy.install()
            self.assertEqual(tag_now(), "numpy.data")
        stop.set()
        for thread in threads:
            thread.join()

    def test_the_variable_holds_what_it_has(self):
        capsule = loam.numpy._default()
        installed = sys.getrefcount(capsule)
        for _ in range(100):
            loam.numpy.uninstall()
            loam.numpy.install()
        self.assertEqual(sys.getrefcount(capsule), installed)
        loam.numpy.uninstall()
        self.assertEqual(sys.getrefcount(capsule), installed - 1)

    def test_one_context_alone_can_be_served(self):
        loam.numpy.uninstall()
        context = contextvars.copy_context()
        context.run(loam.numpy.install, everywhere=False)
        self.assertEqual(context.run(tag_now), "numpy.data")
        self.assertIsNone(tag_now())
        self.assertIsNone(on_a_thread(tag_now))
        context.run(loam.numpy.uninstall)
        self.assertIsNone(context.run(tag_now))


class Arrays(Installed):
    def test_arrays_of_before_and_after_keep_their_own(self):
        loam.numpy.uninstall()
        before = numpy.arange(1000)
        loam.numpy.install()
        within = numpy.arange(1000)
        loam.numpy.uninstall()
        after = numpy.arange(1000)
        self.assertEqual([handler_of(a) for a in (before, within, after)],
                         ["default_allocator", "loam", "default_allocator"])
        for array in (before, within, after):
            array.resize(100_000, refcheck=False)
            self.assertEqual(array[:1000].sum(), 499_500)
        self.assertIsNone(loam.owner(before))
        self.assertEqual(loam.owner(within).tag, "numpy.data")

    def test_a_policy_decides_by_tag(self):
        with loam.tag("aligned.here"):
            array = numpy.empty(100)
        self.assertEqual(array.ctypes.data % 4096, 0)
        self.assertEqual(loam.owner(array).strategy, "aligned")

    def test_an_array_keeps_its_generation_through_a_reload(self):
        array = numpy.empty(100)
        generation = loam.policy.info().generation
        loam.policy.load(text=POLICY.replace("plain", "other"))
        self.assertEqual(loam.owner(array).generation, generation)
        self.assertEqual(loam.owner(numpy.empty(100)).strategy, "other")

    def test_what_the_policy_denies_is_a_memory_error(self):
        with loam.tag("denied"):
            with self.assertRaises(MemoryError):
                numpy.empty(100)
            with self.assertRaises(MemoryError):
                numpy.zeros(100)
        self.assertEqual(tag_now(), "numpy.data")

    def test_arrays_live_and_go_in_the_figures(self):
        with loam.tag("figures"):
            arrays = [numpy.empty(n) for n in (1, 1000, 1_000_000)]

        def row():
            return next(r for r in loam.stats(by="tag") if r["tag"] == "figures")
        self.assertEqual(row()["live_blocks"], 3)
        self.assertGreaterEqual(row()["live_bytes"], 8 * 1_001_001)
        del arrays
        self.assertEqual(row()["live_blocks"], 0)
        self.assertEqual(row()["total_blocks"], 3)

    def test_zeros_are_zero_where_memory_is_used_again(self):
        for size in (1, 7, 100, 5000, 300_000):
            for _ in range(20):
                array = numpy.zeros(size)
                self.assertFalse(array.any())
                array[:] = 1
                del array

    def test_arrays_may_be_freed_on_any_thread(self):
        arrays = [numpy.ones(n) for n in range(1, 2000, 7)]
        on_a_thread(arrays.clear)
        made = on_a_thread(lambda: [numpy.ones(n) for n in range(1, 2000, 7)])
        self.assertEqual(sum(a.sum() for a in made), sum(range(1, 2000, 7)))


class Touching(Installed):
    """Where one array ends at the start of another, NumPy is slow, and last bits differ."""

    def ends_that_touch(self):
        arrays = [numpy.empty(n, "u1") for n in (16, 64, 1024, 4096, 65536, 1 << 20)
                  for _ in range(50)]
        begins = {a.ctypes.data for a in arrays}
        return sum(a.ctypes.data + a.nbytes in begins for a in arrays)

    def test_arrays_do_not_touch(self):
        self.assertEqual(self.ends_that_touch(), 0)

    def test_results_do_not_depend_on_the_neighbour(self):
        inputs = [numpy.full(1024, 0.3) for _ in range(50)]
        self.assertEqual(len({numpy.log10(a).tobytes() for a in inputs}), 1)

    def test_arrays_may_be_asked_to_fill_their_memory(self):
        loam.numpy.install(touch=True)
        self.addCleanup(loam.numpy.install)
        self.assertGreater(self.ends_that_touch(), 0)
        self.assertEqual(loam.owner(numpy.empty(64, "u1")).size, 64)


class Tags(Installed):
    def test_tags_nest_and_end(self):
        with loam.tag("outer"):
            with loam.tag("outer.inner"):
                self.assertEqual((tag_now(), loam.current_tag()), ("outer.inner", "outer.inner"))
            self.assertEqual(tag_now(), "outer")
        self.assertEqual((tag_now(), loam.current_tag()), ("numpy.data", None))

    def test_tags_end_with_an_exception(self):
        with self.assertRaises(KeyError), loam.tag("broken"):
            {}["nothing"]
        self.assertEqual(tag_now(), "numpy.data")

    def test_one_tag_is_entered_in_many_tasks(self):
        shared = loam.tag("shared")

        async def work(turns):
            with shared:
                for _ in range(turns):
                    await asyncio.sleep(0)
                    self.assertEqual(tag_now(), "shared")
            self.assertEqual(tag_now(), "numpy.data")

        async def all_of_them():
            await asyncio.gather(*(work(turns) for turns in (5, 2, 9, 1)))
        asyncio.run(all_of_them())

    def test_one_tag_is_entered_in_two_threads(self):
        shared, found = loam.tag("shared", everywhere=True), []
        entered, left = threading.Event(), threading.Event()

        def work():
            with shared:
                entered.set()
                left.wait()
                found.append(loam.current_tag())
            found.append(loam.current_tag())
        thread = threading.Thread(target=work, daemon=True)
        with shared:  # entered first and left first
            thread.start()
            entered.wait()
        left.set()
        thread.join()
        self.assertEqual(found + [loam.current_tag()], ["shared", None, None])

    def test_generators_leave_one_tag_in_any_order(self):
        def produce(tag):
            with tag:
                yield loam.current_tag()
        shared = loam.tag("shared")
        first, second = produce(shared), produce(shared)
        self.assertEqual([next(first), next(second)], ["shared", "shared"])
        self.assertEqual(list(second) + list(first), [])
        self.assertIsNone(loam.current_tag())

    def test_tags_of_generators_end_in_any_order(self):
        def produce(tag):
            with loam.tag(tag):
                yield tag_now()
                yield tag_now()
        with loam.tag("outer"):
            first, second = produce("first"), produce("second")
            self.assertEqual([next(first), next(second)], ["first", "second"])
            first.close()
            self.assertEqual((tag_now(), loam.current_tag()), ("second", "second"))
        self.assertEqual((next(second), loam.current_tag()), ("second", "second"))
        second.close()
        self.assertEqual((tag_now(), loam.current_tag()), ("numpy.data", None))

    def test_a_tag_that_cannot_be_entered_is_not_in_force(self):
        with unittest.mock.patch.object(loam.tags, "_enter", side_effect=loam.NoMemoryError("no")):
            with self.assertRaises(loam.NoMemoryError):
                loam.tag("refused").__enter__()
        self.assertIsNone(loam.current_tag())

    def test_an_interrupt_at_any_moment_leaves_the_tag(self):
        def interrupt(number, frame):
            raise KeyboardInterrupt
        before = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        for i in range(100):
            with self.assertRaises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 5e-4 + i * 1e-6)
                while True:
                    with loam.tag("interrupted"):
                        pass
            self.assertEqual((loam.current_tag(), tag_now()), (None, "numpy.data"))

    def test_an_interrupt_of_an_uninstall_leaves_no_tag(self):
        class Interrupted:
            get = loam.tags._entered.get

            def set(self, value):
                raise KeyboardInterrupt

        with loam.tag("interrupted"):
            with unittest.mock.patch.object(loam.tags, "_entered", Interrupted()):
                with self.assertRaises(KeyboardInterrupt):
                    loam.numpy.uninstall()
        self.assertIsNone(loam.current_tag())
        loam.numpy.install()
        self.assertEqual(tag_now(), "numpy.data")

    def test_a_task_cannot_leave_the_tag_of_another(self):
        async def produce():
            with loam.tag("others"):
                yield

        async def close(generator):
            with self.assertRaisesRegex(RuntimeError, "another thread or task entered it"):
                await generator.aclose()
            self.assertEqual((tag_now(), loam.current_tag()), ("others", "others"))

        async def both():
            generator = produce()
            await generator.__anext__()
            await asyncio.create_task(close(generator))
        asyncio.run(both())

    def test_a_tag_is_left_where_it_was_entered(self):
        entered = loam.tag("entered")
        entered.__enter__()
        with self.assertRaisesRegex(RuntimeError, "loam.tag\\('entered'\\) is left where"):
            contextvars.Context().run(entered.__exit__, None, None, None)
        entered.__exit__(None, None, None)
        self.assertIsNone(loam.current_tag())

    def test_an_asynchronous_generator_that_is_left_early_is_closed_by_its_task(self):
        async def produce():
            with loam.tag("produced"):
                yield tag_now()
                yield tag_now()

        async def main(close):
            unheard = []
            asyncio.get_running_loop().set_exception_handler(
                lambda _, context: unheard.append(str(context["exception"])))
            async with close(produce()) as produced:
                async for tag in produced:
                    self.assertEqual(tag, "produced")
                    break
            after = loam.current_tag()
            del produced
            for _ in range(3):
                await asyncio.sleep(0)
            return after, unheard
        self.assertEqual(asyncio.run(main(contextlib.aclosing)), (None, []))
        after, unheard = asyncio.run(main(contextlib.nullcontext))
        self.assertEqual((after, tag_now()), ("produced", "numpy.data"))
        self.assertIn("contextlib.aclosing", *unheard)

    def test_a_generator_is_not_decorated(self):
        with self.assertRaisesRegex(TypeError, "the generator .*later: use with inside it"):
            @loam.tag("decorated")
            def later():
                yield

        def produce(count):
            yield count
        with self.assertRaisesRegex(TypeError, "no decorator for the generator functools.partial"):
            loam.tag("decorated")(functools.partial(produce, 3))

    def test_what_is_no_function_is_not_decorated(self):
        with self.assertRaisesRegex(TypeError, "^loam.tag.* decorates functions, not "):
            @loam.tag("decorated")
            class Model:
                pass
        for other in None, 7, classmethod(len):
            with self.assertRaisesRegex(TypeError, "decorates functions, not "):
                loam.tag("decorated")(other)

    def test_tasks_have_each_their_own(self):
        async def work(name):
            with loam.tag(name):
                for _ in range(5):
                    await asyncio.sleep(0)
                    self.assertEqual(tag_now(), name)
            return tag_now()

        async def both():
            return await asyncio.gather(*(work(f"task.{n}") for n in range(10)))
        self.assertEqual(asyncio.run(both()), ["numpy.data"] * 10)

    def test_to_thread_takes_the_tag_along_and_a_new_thread_does_not(self):
        async def ask():
            with loam.tag("along"):
                return await asyncio.to_thread(tag_now), on_a_thread(tag_now)
        self.assertEqual(asyncio.run(ask()), ("along", "numpy.data"))

    def test_a_tag_decorates(self):
        @loam.tag("decorated")
        def plain():
            return tag_now()

        @loam.tag("decorated.later")
        async def later():
            await asyncio.sleep(0)
            return tag_now()
        self.assertEqual(plain(), "decorated")
        self.assertEqual(asyncio.run(later()), "decorated.later")

    def test_a_call_that_nobody_awaits_leaves_no_tag_of_another_call(self):
        @types.coroutine
        def pause():
            yield

        @loam.tag("decorated")
        async def later():
            await pause()
            return tag_now()
        first, second = later(), later()
        contextvars.copy_context().run(first.send, None)
        context = contextvars.copy_context()
        context.run(second.send, None)
        with self.assertRaisesRegex(RuntimeError, "is left where it was not entered"):
            context.run(first.close)
        with self.assertRaises(StopIteration) as end:
            context.run(second.send, None)
        self.assertEqual(end.exception.value, "decorated")

    def test_one_tag_object_may_be_entered_again(self):
        again = loam.tag("again")
        with again, again:
            self.assertEqual(tag_now(), "again")
        self.assertEqual(tag_now(), "numpy.data")

    def test_what_is_no_tag_is_refused(self):
        with self.assertRaises(TypeError):
            loam.tag(7)
        with self.assertRaisesRegex(ValueError, "256 bytes"):
            loam.tag("x" * 256)
        with self.assertRaises(ValueError):
            loam.tag("a\0b")

    def test_an_install_inside_tags_takes_them(self):
        loam.numpy.uninstall()
        with loam.tag("tags.outer"):
            with loam.tag("tags.inner"):
                loam.numpy.install()
                self.assertEqual(tag_now(), "tags.inner")
                loam.numpy.install(sites=True)
                self.assertIn("test_an_install", loam.owner(numpy.empty(10)).func)
            self.assertEqual(tag_now(), "tags.outer")
        loam.numpy.install()
        self.assertEqual(tag_now(), "numpy.data")

    def test_an_uninstall_inside_tags_holds_in_all_of_them(self):
        def switch(everywhere):
            loam.numpy.install(everywhere=everywhere)
            with loam.tag("tags.outer"):
                with loam.tag("tags.inner"):
                    loam.numpy.uninstall()
                    self.assertIsNone(tag_now())
                    with loam.tag("tags.new"):
                        self.assertIsNone(tag_now())
                self.assertEqual((tag_now(), loam.numpy.is_installed()), (None, False))
                loam.numpy.install(everywhere=everywhere)
                self.assertEqual((tag_now(), loam.numpy.is_installed()), ("tags.outer", True))
            self.assertEqual(tag_now(), "numpy.data")
        for everywhere in (True, False):
            contextvars.copy_context().run(switch, everywhere)

    def test_an_install_in_a_task_takes_the_tags_of_its_parent(self):
        async def switch(left):
            await left.wait()
            seen = [tag_now()]
            with loam.tag("tags.task"):
                loam.numpy.uninstall()
                seen.append(tag_now())
                loam.numpy.install()
                seen.append(tag_now())
            return [*seen, tag_now()]

        async def main():
            left = asyncio.Event()
            with loam.tag("tags.parent"):
                task = asyncio.create_task(switch(left))
                await asyncio.sleep(0)
            left.set()
            return await task
        self.assertEqual(asyncio.run(main()), ["tags.parent", None, "tags.task", "tags.parent"])
        self.assertEqual(tag_now(), "numpy.data")

    def test_a_tag_is_only_a_name_where_numpy_is_not_ours(self):
        loam.numpy.uninstall()
        with loam.tag("nobody"):
            self.assertIsNone(tag_now())
            self.assertEqual(loam.current_tag(), "nobody")


class Sites(Installed):
    def setUp(self):
        super().setUp()
        loam.numpy.install(sites=True)

    def test_the_function_outside_numpy_is_named(self):
        def work():
            return numpy.ones(100)
        owner = loam.owner(work())
        self.assertEqual(owner.tag,
                         f"numpy.{__name__}.Sites.test_the_function_outside_numpy_is_named.work")
        self.assertEqual((owner.file, owner.module), (__file__, __name__))
        self.assertEqual(owner.line, work.__code__.co_firstlineno)

    def test_a_long_name_is_cut_behind_a_whole_character(self):
        for letters in ("x", "xy"):
            name = letters + "é" * 200
            space = {"numpy": numpy, "__name__": "typed"}
            exec(f"def {name}(): return numpy.empty(5)", space)
            tag = loam.owner(space[name]()).tag
            self.assertEqual(tag, f"numpy.typed.{name}"[:len(tag)])
            self.assertGreaterEqual(len(tag.encode()), 254)

    def test_a_tag_stays_and_has_a_place(self):
        with loam.tag("named"):
            owner = loam.owner(numpy.zeros(100))
        self.assertEqual(owner.tag, "named")
        self.assertEqual(owner.func, "Sites.test_a_tag_stays_and_has_a_place")

    def test_functions_that_go_leave_no_wrong_names(self):
        for n in range(600):
            space = {"numpy": numpy}
            exec(f"def f{n}(): return numpy.empty(5)", space)
            self.assertEqual(loam.owner(space[f"f{n}"]()).func, f"f{n}")

    def test_code_that_goes_is_not_kept(self):
        gone = []
        for n in range(3):
            code = compile("array = numpy.empty(5)", "typed", "exec")
            gone.append(weakref.ref(code))
            for tag in (None, "first", "second"):
                space = {"numpy": numpy, "__name__": "typed"}
                with loam.tag(tag) if tag else contextlib.nullcontext():
                    exec(code, space)
                    exec(code, space)
                self.assertEqual(loam.owner(space["array"]).tag, tag or "numpy.typed.module")
        del code
        self.assertEqual([ref() for ref in gone], [None] * 3)

    def test_a_policy_sees_the_function(self):
        loam.policy.load(text="""
            local here = loam.host { name = "here" }
            local rest = loam.host { name = "rest" }
            return loam.policy { name = "by function", pick = function(req)
              if req.func == "Sites.test_a_policy_sees_the_function" then return here end
              return rest
            end }""")
        self.assertEqual(loam.owner(numpy.empty(5)).strategy, "here")
        self.assertEqual(loam.owner((lambda: numpy.empty(5))()).strategy, "rest")

    def test_calls_without_the_interpreters_lock_are_served(self):
        text = " ".join(map(str, range(10_000)))  # NumPy grows the array without the lock
        self.assertEqual(numpy.fromstring(text, sep=" ").sum(), 49_995_000)

    def test_a_call_of_the_handler_without_the_lock_is_served(self):
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        words = ctypes.cast(get(_numpy.handler_of(None, True, False), b"mem_handler") + 128,
                            ctypes.POINTER(ctypes.c_void_p))  # ctx, malloc, calloc, realloc, free
        malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(words[1])
        free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(words[4])
        block = malloc(words[0], 100)  # ctypes gives the lock away
        self.assertEqual(loam.owner(block).tag, "numpy.data")
        free(words[0], block, 100)

    def test_a_call_without_the_lock_is_served_where_subinterpreters_were(self):
        out, _ = run_child("""
            import ctypes, loam, numpy
            from loam import _numpy
            try:
                import _interpreters as interpreters
            except ImportError:
                import _xxsubinterpreters as interpreters
            interpreters.destroy(interpreters.create())
            get = ctypes.pythonapi.PyCapsule_GetPointer
            get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            words = ctypes.cast(get(_numpy.handler_of(None, True, False), b"mem_handler") + 128,
                                ctypes.POINTER(ctypes.c_void_p))
            signature = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
            for make in ctypes.CFUNCTYPE, ctypes.PYFUNCTYPE:  # without the lock and with it
                block = make(*signature)(words[1])(words[0], 100)
                print(loam.owner(block).tag)
            """)
        self.assertEqual(out.split(), ["numpy.data", "numpy.__main__.module"])

    def test_no_garbage_is_collected_by_an_allocation(self):
        class Cycle:
            def __del__(self):
                gone.append(1)
        gone, make = [], numpy.empty
        self.addCleanup(gc.set_threshold, *gc.get_threshold())
        self.addCleanup(gc.enable)
        gc.collect()
        gc.disable()
        cycle = Cycle()
        cycle.self = cycle
        del cycle
        kept = [[] for _ in range(20)]
        gc.set_threshold(1)
        gc.enable()
        make(5)
        gc.disable()
        self.assertFalse(gone or len(kept) != 20)
        gc.collect()
        self.assertTrue(gone)


class Neighbours(Installed):
    def test_tracemalloc_counts_numpys_domain(self):
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        only = [tracemalloc.DomainFilter(True, numpy.lib.tracemalloc_domain)]
        arrays = [numpy.empty(1_000_000, dtype="u1"), numpy.zeros(500_000, dtype="u1")]
        arrays[1].resize(2_000_000, refcheck=False)
        traces = tracemalloc.take_snapshot().filter_traces(only).statistics("lineno")
        self.assertEqual(sum(t.size for t in traces), 3_000_000)
        self.assertEqual({t.traceback[0].filename for t in traces}, {__file__})
        arrays.clear()
        self.assertFalse(tracemalloc.take_snapshot().filter_traces(only).statistics("lineno"))

    def test_the_policy_warning_is_numpys_own(self):
        script = """
            import ctypes, sys, numpy
            if sys.argv[1:] != ["plain"]:
                import loam
                loam.numpy.install()
            # What old C code does: an array whose data it tells NumPy to free.
            get = ctypes.pythonapi.PyCapsule_GetPointer
            get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            table = get(numpy.core._multiarray_umath._ARRAY_API, None)
            new = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[93]  # PyArray_New
            new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_int,
                ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int,
                ctypes.c_int, ctypes.c_void_p)(new)
            libc = ctypes.CDLL(None)
            libc.malloc.restype = ctypes.c_void_p
            shape = (ctypes.c_ssize_t * 1)(10)
            array = new(numpy.ndarray, 1, shape, 12, None, libc.malloc(80), 0, 0x501, None)
            ctypes.c_int.from_address(id(array) + 64).value |= 4  # NPY_ARRAY_OWNDATA
            assert array.flags.owndata and array.size == 10
            del array
            numpy.ones(10)
        """
        for before in ("import sys; sys.argv = ['-', 'plain']\n", ""):
            text = before + "\n".join(line[12:] for line in script.splitlines())
            for value, warns in (("1", True), ("0", False), ("", False)):
                _, errors = run_child(text, NUMPY_WARN_IF_NO_MEM_POLICY=value)
                self.assertEqual("a memory policy is not set" in errors, warns, errors)


class Processes(Case):
    def test_without_a_policy_large_arrays_ask_for_huge_pages_as_numpy_does(self):
        script = """
            import loam, numpy
            loam.numpy.install()
            kinds = [loam.owner(numpy.empty(n, "u1")).strategy for n in (1 << 20, 4 << 20)]
            print(loam.policy.info().name or "none", *kinds)
        """
        self.assertEqual(run_child(script)[0], "numpy plain large\n")
        out, _ = run_child(script, NUMPY_MADVISE_HUGEPAGE="0")
        self.assertRegex(out, "^(none|default) default default\n")

    def test_nothing_is_imported_until_it_is_asked_for(self):
        out, _ = run_child("import loam, sys; print('numpy' in sys.modules)")
        self.assertEqual(out, "False\n")

    def test_another_program_starts_it_from_the_environment(self):
        with tempfile.NamedTemporaryFile("w", suffix=".lua") as policy:
            policy.write(POLICY)
            policy.flush()
            out, _ = run_child("""
                import loam, numpy
                loam.numpy.install()
                print(loam.policy.info().name, loam.owner(numpy.empty(3)).strategy)
                """, LOAM_POLICY=policy.name)
        self.assertEqual(out, "test plain\n")


if __name__ == "__main__":
    main()

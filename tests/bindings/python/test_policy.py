"""test_policy - loading, following, checking and explaining policies; figures; events."""

import ctypes
import errno
import logging
import os
import pickle
import tempfile
import threading
import time

import numpy

import loam
from loam import _loam, events

from _support import POLICY, Case, main, run_child

BROKEN = POLICY.replace("req.tag:under", "req.tga:under", 1)
SOFT = """
local soft = loam.host { name = "soft", soft = 1000, limit = 1000000 }
return loam.policy { name = "soft", pick = function(req) return soft end }
"""


class Files(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(loam.policy.unwatch)
        self.path = os.path.join(folder.name, "policy.lua")

    def save(self, text):
        with open(self.path, "w") as file:
            file.write(text)

    def wait_until(self, is_so):
        for _ in range(6000):
            if is_so():
                return
            time.sleep(0.01)
        self.fail(f"a minute was not enough: {loam.policy.info()}")


class Loading(Files):
    def test_a_file_goes_live(self):
        self.save(POLICY)
        before = loam.policy.info().generation
        info = loam.policy.load(self.path)
        self.assertEqual((info.name, info.path, info.generation), ("test", self.path, before + 1))
        self.assertAlmostEqual(info.loaded_at, time.time(), delta=60)
        self.assertEqual(len(info.hash), 16)

    def test_a_refusal_says_file_line_and_why(self):
        self.save(BROKEN)
        before = loam.policy.info().generation
        with self.assertRaises(loam.PolicyError) as caught:
            loam.policy.load(self.path)
        error = caught.exception
        self.assertEqual((error.file, error.line, error.kind), (self.path, 6, "field"))
        self.assertEqual(error.reason, "req has no field 'tga'")
        self.assertIn("did you mean 'tag'?", str(error))
        self.assertEqual(loam.policy.info().generation, before)

    def test_a_policy_that_takes_too_long_is_refused_too(self):
        with self.assertRaises(loam.PolicyError) as caught:
            loam.policy.load(text="\nwhile true do end")
        self.assertEqual((caught.exception.kind, caught.exception.line, caught.exception.status),
                         ("budget", 2, -8))

    def test_a_refusal_without_a_line_says_the_rest(self):
        with self.assertRaises(loam.PolicyError) as caught:
            loam.policy.load(text="", name="empty.lua")
        self.assertEqual(caught.exception.file, "empty.lua")
        self.assertTrue(caught.exception.reason)

    def test_a_missing_file_is_an_os_error(self):
        for function in (loam.policy.load, loam.policy.check):
            with self.assertRaises(OSError) as caught:
                function(self.path)
            self.assertIsInstance(caught.exception, loam.Error)
            self.assertIn(self.path, str(caught.exception))
            again = pickle.loads(pickle.dumps(caught.exception))
            self.assertEqual((again.errno, str(again)), (errno.ENOENT, str(caught.exception)))
        with self.assertRaises(loam.FileError) as caught:
            loam.policy.load("")
        self.assertIsNone(caught.exception.errno)

    def test_the_number_of_an_error_does_not_depend_on_the_language(self):
        out, _ = run_child("""
            import os
            os.strerror = lambda number: "in another language"
            import loam
            try:
                loam.policy.load("missing.lua")
            except loam.FileError as error:
                print(error.errno)
        """)
        self.assertEqual(out, f"{errno.ENOENT}\n")

    def test_paths_of_any_kind_are_taken(self):
        import pathlib
        self.save(POLICY)
        for path in (self.path, os.fsencode(self.path), pathlib.Path(self.path)):
            self.assertEqual(loam.policy.load(path).name, "test")

    def test_what_makes_no_sense_is_refused(self):
        for wrong in ({}, {"path": "a", "text": "b"}):
            with self.assertRaises(TypeError):
                loam.policy.load(**wrong)
        with self.assertRaises(ValueError):
            loam.policy.load("a\0b")
        with self.assertRaises(TypeError):
            loam.policy.load(7)
        self.assertRaisesRegex(TypeError, "a str, not bytes", loam.policy.load, text=b"text")
        self.assertRaisesRegex(TypeError, "watch.. takes a path", loam.policy.watch, None)

    def test_edits_are_followed_and_broken_ones_are_not(self):
        self.save(POLICY)
        self.assertTrue(loam.policy.watch(self.path).watching)
        with self.assertLogs("loam", logging.ERROR) as log:
            self.save(BROKEN)  # a delay between open and write would leave the file empty
            self.wait_until(lambda: any("policy.lua:6: field" in line for line in log.output))
        self.assertEqual(loam.policy.info().name, "test")
        self.save(POLICY.replace('"test"', '"edited"'))
        self.wait_until(lambda: loam.policy.info().name == "edited")
        loam.policy.unwatch()
        self.assertFalse(loam.policy.info().watching)


class Starting(Files):
    def test_a_start_takes_what_the_environment_would_say(self):
        self.save(POLICY)
        out, _ = run_child(f"""
            import loam
            loam.start({self.path!r}, watch=True, control=False)
            print(loam.policy.info().name, loam.policy.info().watching)
            try:
                loam.start()
            except loam.StateError as error:
                print(error)
            """)
        self.assertEqual(out, "test True\nloam is started already\n")

    def test_a_broken_policy_stops_it_unless_lenient(self):
        self.save(BROKEN)
        for lenient in (False, True):
            out, _ = run_child(f"""
                import loam
                try:
                    loam.start({self.path!r}, lenient={lenient})
                except loam.PolicyError as error:
                    print(error.line)
                print(loam.policy.info().generation)
                """)
            self.assertEqual(out, "0\n" if lenient else "6\n0\n")


class Asking(Files):
    def test_check_reports_what_a_load_would(self):
        self.save(POLICY)
        self.assertTrue(loam.policy.check(self.path, tags=["one", "two"]))
        self.save(BROKEN)
        before = loam.policy.info()
        check = loam.policy.check(self.path)
        self.assertFalse(check)
        self.assertEqual(str(check.errors[0]), f"{self.path}:6: field: req has no field 'tga' "
                                               "(did you mean 'tag'?)")
        self.assertEqual(loam.policy.info(), before)

    def test_explain_shows_the_strategy_and_the_lines(self):
        self.save(POLICY)
        found = loam.policy.explain(self.path, "aligned.x", 100, align=64, node=0, live=5)
        self.assertEqual((found.strategy, found.kind, found.line), ("aligned", "host", 6))
        self.assertEqual(found.options, {"align": 4096})
        self.assertEqual(found.path, ((6, 'req.tag:under("aligned")', True),))

    def test_a_question_may_describe_the_machine(self):
        self.save("""
            local plain, tight = loam.host { name = "plain" }, loam.host { name = "tight" }
            local far = loam.host { name = "far" }
            return loam.policy { name = "machine", pick = function(req)
              if loam.pressure() >= 20 then return tight end
              if loam.node(0).free < 5 * loam.MiB then return far end
              return plain
            end }\n""")
        for asked, strategy in (({"pressure": 30}, "tight"), ({"node_free": {0: 10}}, "far"),
                                ({"node_free": {0: 1 << 30}, "pressure": 3}, "plain")):
            with self.subTest(asked=asked):
                found = loam.policy.explain(self.path, "a", 10, **asked)
                self.assertEqual(found.strategy, strategy)
        for wrong in {"pressure": 101}, {"node_free": {99: 1}}, {"device_free": {0: "x"}}:
            with self.assertRaises(ValueError):
                loam.policy.explain(self.path, "a", 10, **wrong)

    def test_a_tag_may_have_lines(self):
        self.save(POLICY)
        found = loam.policy.explain(self.path, "aligned.a\nzero 7", 100)
        self.assertEqual((found.tag, found.strategy), ("aligned.a\nzero 7", "aligned"))
        self.assertTrue(loam.policy.check(self.path, tags=["a\nb"]))
        for tag in ("a\0b", "a\n\0b"):
            with self.subTest(tag=tag), self.assertRaises(ValueError):
                loam.policy.explain(self.path, tag, 1)

    def test_explaining_a_refused_policy_raises(self):
        self.save(BROKEN)
        with self.assertRaises(loam.PolicyError) as caught:
            loam.policy.explain(self.path, "", 1)
        self.assertEqual(caught.exception.line, 6)

    def test_a_question_that_makes_no_sense_is_refused(self):
        self.save(POLICY)
        for size in (-1, "1\n2"):
            with self.assertRaises(ValueError):
                loam.policy.explain(self.path, "a", size)
        for ask in (lambda: loam.policy.explain(self.path, None, 1),
                    lambda: loam.policy.check(self.path, [None])):
            self.assertRaisesRegex(TypeError, "a tag is a string, not NoneType", ask)
        for ask in (lambda: loam.policy.explain(None, "a", 1), lambda: loam.policy.check(None)):
            self.assertRaisesRegex(TypeError, "PathLike object, not NoneType", ask)

    def test_one_tag_may_be_checked_alone(self):
        self.save(POLICY)
        alone, listed = (loam.policy.check(self.path, tags) for tags in ("one", ["one"]))
        self.assertEqual(alone.answer, listed.answer)


class Figures(Case):
    def test_rows_are_what_pandas_takes(self):
        rows = loam.stats(by=("tag", "strategy"))
        for row in rows:
            self.assertEqual(set(row), {"tag", "strategy", "kind", "live_bytes", "live_blocks",
                                        "total_bytes", "total_blocks"})
        kept = loam.Block(100)
        rows = loam.stats(by="generation")
        self.assertEqual(set(rows[0]), {"generation", "live_bytes", "live_blocks"})
        self.assertGreater(sum(row["live_bytes"] for row in rows), len(kept))
        with self.assertRaisesRegex(ValueError, "by 'age': it is of tag, strategy, generation"):
            loam.stats(by="age")

    def test_pandas_takes_them(self):
        try:
            import pandas
        except ImportError:
            self.skipTest("python3-pandas is not installed")
        import numpy
        loam.numpy.install()
        self.addCleanup(loam.numpy.uninstall)
        with loam.tag("frame"):
            array = numpy.ones(1000)
        frame = pandas.DataFrame(loam.stats()).set_index("tag")
        self.assertEqual(frame.loc["frame", "live_blocks"], 1)
        self.assertGreaterEqual(frame.loc["frame", "live_bytes"], array.nbytes)

    def test_totals_are_numbers_by_name(self):
        self.assertGreater(loam.totals()["reserved_bytes"], 0)

    def test_what_is_not_loams_has_no_owner(self):
        self.assertIsNone(loam.owner(bytearray(10)))
        for address in (0, -1, -2**64, 2**64 - 1, 2**64):
            self.assertIsNone(loam.owner(address))
        for wrong, kind in (("text", "str"), (None, "NoneType"), (1.5, "float")):
            with self.assertRaisesRegex(TypeError, f"or an address is needed, not {kind}"):
                loam.owner(wrong)

    def test_a_number_of_numpy_is_an_address(self):
        block = loam.Block(100, "numbered")
        self.assertEqual(loam.owner(numpy.uint64(block.address)).tag, "numbered")

    def test_idle_memory_goes_back(self):
        self.assertGreaterEqual(loam.trim(), 0)


class Events(Case):
    def setUp(self):
        events.start()

    def test_a_load_is_logged_before_it_returns(self):
        with self.assertLogs("loam", logging.INFO) as log:
            loam.policy.load(text=POLICY, name="live.lua")
        event = log.records[0].event
        self.assertEqual((event.kind, event.generation),
                         ("policy_live", loam.policy.info().generation))
        with self.assertLogs("loam", logging.DEBUG) as log, self.assertRaises(loam.PolicyError):
            loam.policy.load(text=BROKEN, name="broken.lua")
        self.assertEqual(log.records[0].event.kind, "policy_refused")
        self.assertEqual(log.records[0].levelno, logging.DEBUG)
        self.assertIn("broken.lua:6", log.records[0].getMessage())

    def test_what_is_raised_and_caught_is_not_printed_too(self):
        _, errors = run_child("""
            import loam
            for use in (lambda: loam.policy.load(text="return 5"),
                        lambda: loam.policy.load("/nowhere/policy.lua"),
                        lambda: loam.policy.watch("/nowhere/policy.lua")):
                for _ in range(20):
                    try:
                        use()
                    except loam.Error:
                        pass
            """)
        self.assertEqual(errors, "")

    def test_a_bad_free_is_logged_from_any_thread(self):
        library = ctypes.CDLL(_loam.__file__)
        library.loam_free.argtypes = [ctypes.c_void_p]
        here = ctypes.create_string_buffer(64)
        address = ctypes.addressof(here) + 16
        with self.assertLogs("loam", logging.ERROR) as log:
            library.loam_free(address)  # without the interpreter's lock
            for _ in range(6000):
                if log.records:
                    break
                time.sleep(0.01)
        self.assertEqual(log.records[0].event.kind, "bad_free")
        self.assertEqual(log.records[0].event.pointer, address)

    def test_the_reason_of_a_refused_request_is_a_warning_once(self):
        heard = []
        loam.on_event(heard.append)
        self.addCleanup(loam.on_event, None)
        with self.assertLogs("loam", logging.DEBUG) as log:
            loam.policy.load(name="limit.lua", text="""
                local first = loam.host { name = "first", limit = 1 * loam.MiB }
                local last = loam.host { name = "last", limit = 2 * loam.MiB }
                return loam.policy { pick = function(_) return first:or_else(last) end }
            """)
            with self.assertRaises(MemoryError):
                loam.Block(3 << 20)
            events.deliver()
        found = [(record.event.kind, record.levelno, "'last'" in record.getMessage())
                 for record in log.records
                 if record.event.kind in ("shortfall", "unserved")]
        self.assertEqual(found, [("shortfall", logging.WARNING, False),
                                 ("unserved", logging.WARNING, True),
                                 ("shortfall", logging.DEBUG, True)])
        kinds = [event.kind for event in heard]
        self.assertEqual((kinds.count("shortfall"), kinds.count("unserved")), (2, 1))

    def test_a_soft_limit_calls_the_host_back(self):
        kept, heard = [], []

        def shrink(event):
            if event.kind == "soft_limit":
                kept.clear()
                heard.append(event)

        with self.assertLogs("loam", logging.INFO) as log:
            loam.policy.load(name="soft.lua", text="""
                local MiB = loam.MiB
                local cache = loam.host { name = "cache", limit = 4 * MiB, soft = 2 * MiB }
                return loam.policy { pick = function(req) return cache end }
                """)
            events.on_event(shrink)
            kept.extend(loam.Block(100_000) for _ in range(25))
            for _ in range(6000):
                if heard:
                    break
                time.sleep(0.01)
            events.on_event(None)
        self.assertEqual(kept, [])
        self.assertIn("soft_limit", [record.event.kind for record in log.records])
        message = heard[-1].message
        self.assertIn("strategy 'cache' has passed its soft limit of 2097152 bytes: ", message)

    def test_a_callback_that_loads_is_not_called_within_itself(self):
        running, heard, ended = [], [], threading.Event()

        def load(event):
            heard.append((len(running), event.kind, event.message))
            running.append(event)
            if len(heard) == 1:
                loam.policy.load(text=POLICY, name="second.lua")
                with self.assertRaises(loam.PolicyError):
                    loam.policy.load(text="no policy", name="third.lua")
            running.pop()
            if len(heard) == 3:
                ended.set()

        self.addCleanup(events.on_event, None)
        with self.assertLogs("loam", logging.DEBUG) as log:
            events.on_event(load)
            loam.policy.load(text=POLICY, name="first.lua")
            self.assertTrue(ended.wait(60))
            events.on_event(None)
        self.assertEqual([(depth, kind) for depth, kind, _ in heard],
                         [(0, "policy_live"), (0, "policy_live"), (0, "policy_refused")])
        self.assertIn("second.lua is live", heard[1][2])
        self.assertEqual(log.records[-1].levelno, logging.DEBUG)  # an exception also reports it

    def test_a_signal_handler_may_load_while_the_thread_starts(self):
        out, _ = run_child(f"""
import loam, signal, threading
signal.signal(signal.SIGUSR1, lambda *_: loam.policy.load(text={POLICY!r}))
class Interrupted(threading.Thread):
    def start(self):
        signal.raise_signal(signal.SIGUSR1)
        super().start()
threading.Thread = Interrupted
signal.alarm(60)
loam.events.start()
print(loam.policy.info().name)
""")
        self.assertEqual(out, "test\n")

    def test_a_callback_that_fails_is_logged(self):
        def fails(event):
            raise ValueError("not today")

        events.on_event(fails)
        with self.assertLogs("loam", logging.ERROR) as log:
            loam.policy.load(text=POLICY, name="fails.lua")
        events.on_event(None)
        self.assertRaisesRegex(TypeError, "a function or None, not int", events.on_event, 5)
        self.assertIn("callback of loam.on_event failed for: fails.lua is live",
                      log.records[0].getMessage())

    def test_a_log_that_fails_does_not_end_the_thread_of_events(self):
        seen, reported = threading.Semaphore(0), []

        def fails(record):
            if record.event.kind == "soft_limit":
                seen.release()
                raise RuntimeError("no log today")
            return True

        self.addCleanup(loam.policy.load, text=POLICY)
        self.addCleanup(events.logger.setLevel, events.logger.level)
        self.addCleanup(events.logger.removeFilter, fails)
        self.addCleanup(setattr, threading, "excepthook", threading.excepthook)
        threading.excepthook = reported.append
        events.logger.setLevel(logging.WARNING)
        events.logger.addFilter(fails)
        for _ in range(2):
            loam.policy.load(text=SOFT)
            block = loam.Block(100_000)
            self.assertTrue(seen.acquire(timeout=20))
            del block
        self.assertIn("no log today", str(reported[0].exc_value))

    def test_a_log_that_fails_loses_no_later_event(self):
        seen = []

        def fails(record):
            if record.event.kind == "policy_live":
                seen.append(record.getMessage())
                if len(seen) == 1:
                    raise RuntimeError("no log today")
            return True

        self.addCleanup(events.logger.setLevel, events.logger.level)
        self.addCleanup(events.logger.removeFilter, fails)
        events.logger.setLevel(logging.INFO)
        events.deliver()
        events.logger.addFilter(fails)
        with self.assertRaisesRegex(RuntimeError, "no log today"), events.reporting():
            for name in ("one", "two", "three"):
                _loam.policy_load_text(name, POLICY)
        events.deliver()
        self.assertEqual(len(seen), 3)

    def test_a_callback_that_exits_does_not_end_the_thread_of_events(self):
        seen = threading.Semaphore(0)

        def exits(event):
            seen.release()
            raise SystemExit(3)

        self.addCleanup(loam.policy.load, text=POLICY)
        self.addCleanup(events.on_event, None)
        for _ in range(2):
            loam.policy.load(text=SOFT)
            events.on_event(exits)
            block = loam.Block(100_000)
            self.assertTrue(seen.acquire(timeout=20))
            events.on_event(None)
            del block

    def test_a_thread_that_cannot_start_is_an_error_and_is_tried_again(self):
        out, errors = run_child("""
            import loam, threading
            from unittest import mock
            refusal = RuntimeError("can't start new thread")
            with mock.patch.object(threading.Thread, "start", side_effect=refusal):
                for _ in range(2):
                    try:
                        loam.on_event(None)
                    except RuntimeError as error:
                        print(error)
            loam.on_event(None)
            print(loam.events._thread.is_alive())
            """)
        self.assertEqual((out, errors), ("can't start new thread\n" * 2 + "True\n", ""))

    def test_functions_of_atexit_need_no_thread(self):
        out, errors = run_child("""
            import atexit, loam, threading
            from unittest import mock

            @atexit.register
            def load():  # Python 3.12 starts no thread here
                refusal = RuntimeError("can't create new thread at interpreter shutdown")
                with mock.patch.object(threading.Thread, "start", side_effect=refusal):
                    loam.on_event(lambda event: print(event.kind))
                    loam.policy.load(text="local any = loam.host {} "
                                          "return loam.policy { pick = function() return any end }")
            """)
        self.assertEqual((out, errors), ("policy_live\n", ""))

    def test_under_loam_run_the_preload_library_reports(self):
        if not os.environ.get("LOAM_PRELOAD"):
            self.skipTest("LOAM_PRELOAD does not name the preload library; ctest sets it")
        out, errors = run_child("""
            import loam, numpy
            loam.numpy.install()
            from loam import events
            print(events._thread, loam.owner(numpy.ones(100)).tag)
            """, LD_PRELOAD=os.environ["LOAM_PRELOAD"])
        self.assertEqual((out, errors), ("None numpy.data\n", ""))


if __name__ == "__main__":
    main()

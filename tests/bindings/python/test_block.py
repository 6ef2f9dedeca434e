"""test_block - loam.Block: counted memory, lent as buffers, to NumPy and by DLPack."""

import gc
import threading
import weakref

import numpy

import loam

from _support import Case, main


class Making(Case):
    def test_a_block_has_size_tag_and_kind(self):
        block = loam.Block(100, "block.small")
        self.assertEqual((len(block), block.tag, block.kind), (100, "block.small", "embedded"))
        self.assertEqual((block.refcount, bytes(loam.Block(5, zero=True))), (1, bytes(5)))
        self.assertEqual(loam.owner(block).tag, "block.small")
        self.assertEqual(loam.owner(loam.Block(1 << 20, "block.large")[7:]).tag, "block.large")
        self.assertEqual(repr(block), "<loam.Block of 100 bytes, embedded, tag 'block.small'>")

    def test_blocks_arrays_and_arenas_have_weak_references(self):
        for make in (lambda: loam.Block(8), lambda: loam.Array("3 * int32"), loam.Arena):
            one, ended = make(), []
            weak = weakref.ref(one, ended.append)
            kept = weakref.WeakValueDictionary(it=one)
            self.assertIs(weak(), one)
            self.assertIs(kept["it"], one)
            del one
            gc.collect()
            self.assertEqual((weak(), ended, len(kept)), (None, [weak], 0))

    def test_the_contexts_tag_is_taken(self):
        with loam.tag("block.context"):
            self.assertEqual(loam.Block(1).tag, "block.context")
        self.assertEqual(loam.Block(1).tag, "python.block")

    def test_alignment_and_zeros_are_kept(self):
        for size in (1, 100, 5000, 1 << 20):
            for align in (16, 64, 4096, 1 << 16):
                block = loam.Block(size, zero=True, align=align)
                self.assertEqual((block.address % align, any(bytes(block))), (0, False))

    def test_what_makes_no_sense_is_refused(self):
        with self.assertRaisesRegex(ValueError, "size -1"):
            loam.Block(-1)
        with self.assertRaisesRegex(ValueError, "align 3"):
            loam.Block(1, align=3)
        with self.assertRaises(ValueError):
            loam.Block(1, "x" * 256)
        with self.assertRaises(MemoryError):
            loam.Block(1 << 60)
        with self.assertRaises(TypeError):
            loam.Block("1")


class Lending(Case):
    def test_numpy_sees_its_bytes_and_keeps_it(self):
        block = loam.Block(80, zero=True)
        array = numpy.frombuffer(block)
        array[:] = 1.5
        self.assertEqual(array.ctypes.data, block.address)
        self.assertEqual(numpy.frombuffer(bytes(block)).sum(), 15)
        del block
        gc.collect()
        self.assertEqual(array.sum(), 15)

    def test_the_array_interface_is_enough(self):
        class Only:
            def __init__(self, block):
                self.block = block
                self.__array_interface__ = block.__array_interface__
        block = loam.Block(10, zero=True)
        array = numpy.asarray(Only(block))
        array[3] = 7
        self.assertEqual(bytes(block)[3], 7)
        self.assertEqual((array.dtype, array.shape), (numpy.uint8, (10,)))

    def test_dlpack_takes_a_reference_and_gives_it_back(self):
        block = loam.Block(1000, zero=True)
        self.assertEqual(block.__dlpack_device__(), (1, 0))
        tensor = numpy.from_dlpack(block)
        self.assertEqual((block.refcount, tensor.ctypes.data), (2, block.address))
        self.assertEqual((tensor.dtype, tensor.shape), (numpy.uint8, (1000,)))
        unused = block.__dlpack__()
        self.assertEqual(block.refcount, 3)
        del unused
        self.assertEqual(block.refcount, 2)
        live = sum(row["live_blocks"] for row in loam.stats())
        block.release()
        self.assertEqual(tensor.sum(), 0)
        del tensor
        self.assertLess(sum(row["live_blocks"] for row in loam.stats()), live)
        with self.assertRaises(BufferError):
            loam.Block(1).__dlpack__(stream=1)

    def test_readers_of_dlpack_1_get_a_tensor_of_version_0(self):
        for one in (loam.Block(8), loam.Array("2 * int32", [1, 2])):
            with self.subTest(one=one):
                capsule = one.__dlpack__(stream=None, max_version=(1, 1), dl_device=(1, 0),
                                         copy=False)
                self.assertIn('"dltensor"', repr(capsule))
                one.__dlpack__(max_version=None, dl_device=None, copy=None)
                for wrong in ({"copy": True}, {"dl_device": (2, 0)}, {"stream": -1}):
                    with self.assertRaises(BufferError):
                        one.__dlpack__(**wrong)
                for wrong in ({"dl_device": 1}, {"dl_device": (1,)}, {"device": None}):
                    with self.assertRaises(TypeError):
                        one.__dlpack__(**wrong)

    def test_a_tensor_may_end_on_another_thread(self):
        tensors = [numpy.from_dlpack(loam.Block(n)) for n in range(1, 3000, 100)]
        thread = threading.Thread(target=tensors.clear)
        thread.start()
        thread.join()

    def test_parts_keep_the_whole(self):
        block = loam.Block(100, zero=True)
        numpy.frombuffer(block, "u1")[:] = numpy.arange(100)
        part = block[10:20][5:]
        self.assertEqual((bytes(part), part.kind), (bytes(range(15, 20)), "slice"))
        block.release()
        self.assertEqual(bytes(part), bytes(range(15, 20)))
        self.assertEqual(len(part[100:]), 0)
        with self.assertRaises(ValueError):
            part[::2]
        with self.assertRaises(TypeError):
            part[0]

    def test_others_memory_is_kept_while_it_is_wrapped(self):
        owner = bytearray(b"abc")
        block = loam.Block.wrap(owner, "block.wrapped")
        part = block[1:]
        self.assertEqual((block.kind, bytes(part)), ("external", b"bc"))
        del block
        with self.assertRaises(BufferError):
            owner.append(1)
        del part
        owner.append(1)
        array = numpy.ones(5)
        gone = weakref.ref(array)
        block = loam.Block.wrap(array)
        del array
        gc.collect()
        self.assertIsNotNone(gone())
        del block
        self.assertIsNone(gone())
        self.assertEqual(loam.Block.wrap(b"abc", tag="block.named").tag, "block.named")
        with self.assertRaises(TypeError):
            loam.Block.wrap(7)


class Arenas(Case):
    def test_pieces_are_buffers_under_the_tag(self):
        arena = loam.Arena("block.arena", zero=True)
        pieces = [arena.alloc(n, align=64) for n in (0, 1, 100, 5000, 100_000)]
        self.assertEqual((len(arena), arena.tag), (105_101, "block.arena"))
        for piece in pieces[1:]:
            self.assertFalse(any(bytes(piece)))
            array = numpy.frombuffer(piece, "u1")
            self.assertEqual(array.ctypes.data % 64, 0)
            self.assertEqual(loam.owner(piece).tag, "block.arena")

    def test_a_piece_keeps_the_arena(self):
        array = numpy.frombuffer(loam.Arena("block.kept").alloc(800))
        array[:] = 2
        gc.collect()
        self.assertEqual(array.sum(), 200)

    def test_the_last_piece_can_be_resized_and_in_a_resizable_arena_any(self):
        for resizable in (False, True):
            arena = loam.Arena(resizable=resizable)
            first, last = arena.alloc(10), arena.alloc(10)
            memoryview(first)[:], memoryview(last)[:] = b"x" * 10, b"y" * 10
            last.resize(1000)
            self.assertEqual(bytes(last)[:10], b"y" * 10)
            if resizable:
                first.resize(2000)
                self.assertEqual((len(first), bytes(first)[:10]), (2000, b"x" * 10))
            else:
                with self.assertRaisesRegex(loam.StateError, "not the last piece"):
                    first.resize(2000)
                self.assertEqual(bytes(first), b"x" * 10)

    def test_a_lent_piece_is_not_resized(self):
        piece = loam.Arena(resizable=True).alloc(10)
        with memoryview(piece), self.assertRaisesRegex(BufferError, "in use by 1 buffer$"):
            piece.resize(20)
        piece.resize(20)

    def test_a_reset_waits_for_the_pieces(self):
        arena = loam.Arena("block.reset")
        piece = arena.alloc(10)
        with self.assertRaises(loam.StateError):
            arena.reset()
        del piece
        arena.reset()
        self.assertEqual(len(arena), 0)
        kept = arena.alloc(10)
        arena.finalize()
        with self.assertRaisesRegex(loam.StateError, "finalized: no piece can be allocated"):
            arena.alloc(1)
        with self.assertRaisesRegex(loam.StateError, "finalized: no piece can be resized"):
            kept.resize(5)
        del kept
        arena.reset()
        last = arena.alloc(10)
        last.resize(1 << 20)                    # moves, and is the last piece still
        last.resize(5)
        self.assertEqual(len(arena), 5)

    def test_what_makes_no_sense_is_refused(self):
        arena = loam.Arena()
        for wrong in ((-1,), (1, 0), (1, 3), (1, -16)):
            with self.assertRaises(ValueError):
                arena.alloc(*wrong)
        with self.assertRaises(ValueError):
            arena.alloc(1).resize(-1)
        with self.assertRaises(TypeError):
            type(arena.alloc(1))()


class Ending(Case):
    def test_a_released_block_says_so(self):
        block = loam.Block(10)
        block.release()
        block.release()
        for use in (len, bytes, lambda b: b.address, lambda b: b.__dlpack__(), lambda b: b[1:],
                    lambda b: b.__array_interface__, lambda b: b.tag, lambda b: b.refcount):
            with self.assertRaisesRegex(ValueError, "released"):
                use(block)
        self.assertEqual(repr(block), "<loam.Block, released>")

    def test_a_lent_block_is_not_released(self):
        block = loam.Block(10)
        view = memoryview(block)
        with self.assertRaisesRegex(BufferError, "in use by 1 buffer$"):
            block.release()
        view.release()
        block.release()

    def test_a_block_whose_address_was_given_is_not_released(self):
        block = loam.Block(10)
        interface = block.__array_interface__
        with self.assertRaisesRegex(BufferError, "__array_interface__"):
            block.release()
        self.assertEqual(interface["data"][0], block.address)

    def test_nothing_stays(self):
        def live():
            gc.collect()
            return [row["live_blocks"] for row in loam.stats("tag")
                    if row["tag"] in ("none", "loam.block")]
        before = live()
        for size in (0, 1, 1000, 100_000):
            block = loam.Block(size, "none")
            kept = [block[n:] for n in range(5)] + [numpy.frombuffer(block, "u1") if size else 0]
            kept.append(numpy.from_dlpack(block))
            kept.append(loam.Block.wrap(bytearray(size), "none"))
            del block, kept
        self.assertEqual([n for n in live() if n], [n for n in before if n])


if __name__ == "__main__":
    main()

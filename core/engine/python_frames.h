/* python_frames.h - the frames of the Python code that the calling thread runs.
 *
 * Only CPython 3.11 is known (Debian 12): its frames are read from the structures of the
 * interpreter, whose form is fixed within a minor version. The public functions for frames are not
 * used, because they make frame objects, which takes memory: a sample may be taken while Python's
 * own allocator is in the middle of a change. Of another version, and of an interpreter that the
 * program loads later by dlopen(3), no frames are known.
 *
 * Frames are read if the calling thread holds the interpreter's lock (the GIL). Many functions of C
 * give the lock up while they allocate, such as numpy.zeros. The frames of a thread without the
 * lock do not change, but another thread may end the interpreter and free its structures. So of
 * the threads without the lock only the main thread is read: it ends the interpreter itself. */
#ifndef LM_PYTHON_FRAMES_H
#define LM_PYTHON_FRAMES_H

#include "os/base.h"

enum {
  LM_PYTHON_FRAMES = 32, /* that are read at most: the innermost */
  LM_PYTHON_TEXT = 512,  /* bytes of a name or a file at most, with the terminator */
};

typedef struct lm_python_frame {
  const void *code; /* a code object; it lives while the frame runs */
  uint32_t line;
  /* The frame was entered from C. So one C frame of the interpreter's loop runs the frames from
   * one that was entered to the frame before the next such frame, seen from outside. */
  bool is_entry;
} lm_python_frame;

/* Fills in the frames, the innermost first, and returns their number; 0: the thread runs no Python
 * code of an interpreter that is known, or its frames may not be read. Allocates nothing. */
uint32_t lm_python_frames_read(lm_python_frame out[LM_PYTHON_FRAMES]);

/* Return the qualified name and the file of a code object, as text objects of Python. */
const void *lm_python_code_name(const void *code);
const void *lm_python_code_file(const void *code);

/* Writes a text object as UTF-8 with a terminator, and returns the bytes that it wrote. A longer
 * text ends with its last character that fits. A byte that Python could not decode, as in the path
 * of a file, is that byte again. A text that is stored in the way of old extensions is "?". */
size_t lm_python_text(const void *text, char out[LM_PYTHON_TEXT]);

#endif

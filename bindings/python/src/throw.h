/* throw.h - C++ exceptions, thrown from C. */
#ifndef THROW_H
#define THROW_H

/* Finds the functions that make PyTorch's exceptions. `library` is a loaded library that depends on
 * PyTorch's. */
void throw_learn(const char *library);

/* Throws c10::OutOfMemoryError, which Python sees as torch.OutOfMemoryError. If throw_learn has not
 * found it, throws std::runtime_error. If there is no C++ runtime either, it returns. */
void throw_out_of_memory(const char *words);

#endif

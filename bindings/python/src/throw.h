/* throw.h - exceptions of C++, thrown from C. */
#ifndef THROW_H
#define THROW_H

/* Looks up what PyTorch's own are made with, in a library that is loaded and needs PyTorch's. */
void throw_learn(const char *library);

/* Throws c10::OutOfMemoryError, which Python has as torch.OutOfMemoryError; where it was not found
 * std::runtime_error, and where the C++ run-time is not there either it returns. */
void throw_out_of_memory(const char *words);

#endif

/* torch_host.cc - PyTorch's caching allocator as two functions of C, for tests/gpu/measure.py. */
#include <c10/cuda/CUDACachingAllocator.h>

extern "C" void *torch_pair_alloc(size_t size, void *stream) {
  try {
    return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(
        size, static_cast<cudaStream_t>(stream));
  } catch (const std::exception &) {
    return nullptr;
  }
}

extern "C" void torch_pair_free(void *ptr, void *) {
  c10::cuda::CUDACachingAllocator::raw_delete(ptr);
}

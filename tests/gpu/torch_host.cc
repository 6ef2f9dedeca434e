/* torch_host.cc - PyTorch's caching allocator as C functions, for tests/gpu/measure.py and for
 * build/bench/device and trace. */
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdio>

/* Starts the allocator, as torch.cuda.init does. Call it before the first allocation if PyTorch has
 * not started. */
extern "C" void torch_start() {
  int count = 0;
  (void)cudaGetDeviceCount(&count);
  c10::cuda::CUDACachingAllocator::init(count);
}

extern "C" void *torch_pair_alloc(size_t size, void *stream) {
  try {
    return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(
        size, static_cast<cudaStream_t>(stream));
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return nullptr;
  }
}

extern "C" void torch_pair_free(void *ptr, void *) {
  c10::cuda::CUDACachingAllocator::raw_delete(ptr);
}

/* Returns all cached memory to the driver. */
extern "C" void torch_trim() { c10::cuda::CUDACachingAllocator::emptyCache(); }

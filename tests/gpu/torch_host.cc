/* torch_host.cc - PyTorch's caching allocator as functions of C, for tests/gpu/measure.py and for
 * build/bench/device and trace. */
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdio>

/* Before the first, where no PyTorch has started: as torch.cuda.init does. */
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

/* All that is cached goes back. */
extern "C" void torch_trim() { c10::cuda::CUDACachingAllocator::emptyCache(); }

/* kernels.cu - the kernels of tests/gpu. One fills a block with a byte; the other counts the bytes
 * of a block that differ from it. */

extern "C" __global__ void write_bytes(unsigned char *at, size_t size, int byte) {
  size_t step = (size_t)gridDim.x * blockDim.x;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < size; i += step) {
    at[i] = (unsigned char)byte;
  }
}

extern "C" __global__ void check_bytes(const unsigned char *at, size_t size, int byte,
                                       unsigned long long *wrong) {
  size_t step = (size_t)gridDim.x * blockDim.x;
  unsigned long long here = 0;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < size; i += step) {
    here += at[i] != (unsigned char)byte;
  }
  if (here) atomicAdd(wrong, here);
}

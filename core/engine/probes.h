/* probes.h - static probes at samples (engine/sample.h), for debuggers and tracers.
 *
 * The names and arguments are those that OpenTelemetry's eBPF profiler reads. gdb, bpftrace and
 * perf find them in the ELF notes of the library (`readelf -n`). A probe is one `nop` until a
 * tracer replaces it. A build on a machine without sys/sdt.h (Debian: systemtap-sdt-dev) has no
 * probes.
 *
 *   otel_memory:alloc(ptr, size, weighted)   a block is a sample; `weighted` is the number of bytes
 *                                            for which it stands
 *   otel_memory:free(ptr)                    a sample is freed or resized */
#ifndef LM_PROBES_H
#define LM_PROBES_H

#include "os/base.h"

#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
LM_INLINE void lm_probe_alloc(uintptr_t p, uint64_t size, uint64_t weighted) {
  DTRACE_PROBE3(otel_memory, alloc, p, size, weighted);
}
LM_INLINE void lm_probe_free(uintptr_t p) { DTRACE_PROBE1(otel_memory, free, p); }
#else
LM_INLINE void lm_probe_alloc(uintptr_t p, uint64_t size, uint64_t weighted) {
  (void)p, (void)size, (void)weighted;
}
LM_INLINE void lm_probe_free(uintptr_t p) { (void)p; }
#endif

#endif

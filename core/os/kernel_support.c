/* kernel_support.c - what this process may do with its memory, found by trying. */
#include "os/kernel_support.h"

#include "os/numa.h"
#include "os/sys.h"

bool lm_kernel_support_probe(lm_kernel_support *out) {
  void *page = NULL;
  int status;
  uint64_t nodes = lm_numa_nodes(), first = nodes & -nodes;
  lm_assert(nodes);
  *out = (lm_kernel_support){ 0 };
  if (lm_sys_map(LM_PAGE, &page)) return false;
  *(volatile char *)page = 1;
  out->mbind = lm_sys_bind(page, LM_PAGE, LM_BIND_PREFERRED, &first);
  out->move_pages = lm_sys_move_pages(&page, NULL, &status, 1);
  out->prefault = lm_sys_prefault(page, LM_PAGE);
  out->huge = lm_sys_advise_huge(page, LM_PAGE, 1);
  out->give_back = lm_sys_purge(page, LM_PAGE);
  out->lock = lm_sys_mlock(page, LM_PAGE);
  if (!out->lock) (void)lm_sys_munlock(page, LM_PAGE);
  lm_sys_unmap(page, LM_PAGE);
  return true;
}

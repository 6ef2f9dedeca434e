/* site_api.c - loam_site_* and loam_scope_*: where a program asks for memory. */
#include "engine/engine.h"
#include "loam.h"
#include "os/error.h"
#include "service/policy.h"

static const char *or_empty(const char *text) { return text ? text : ""; }

/* The policy exists before a start, because a site may be made before. */
loam_site *loam_site_at(const loam_where *w) {
  if (!w) return lm_error_null("where: it is NULL");
  lm_policy_start();
  return lm_site_get(&(loam_where){ or_empty(w->tag), or_empty(w->file), or_empty(w->func),
                                    or_empty(w->module), w->line });
}

loam_site *loam_site_get(const char *tag) { return loam_site_at(&(loam_where){ .tag = tag }); }

static void use_scope(lm_thread *t, loam_site *site) {
  t->site = site;
  t->scoped = site ? LM_SCOPED : 0;
}

void loam_scope_enter(loam_site *site) {
  lm_thread *t = lm_thread_get();
  if (!t) return;
  if (t->depth < LM_SCOPES) use_scope(t, t->scope[t->depth] = site);
  t->depth++;
  lm_assert(t->depth);
}

void loam_scope_leave(void) {
  lm_thread *t = lm_thread_get();
  if (!t || !t->depth) return;
  t->depth--;
  if (t->depth < LM_SCOPES) use_scope(t, t->depth ? t->scope[t->depth - 1] : NULL);
}

loam_site *loam_scope_get(void) {
  const lm_thread *t = lm_thread_self; /* making an area could wait for a fork */
  return t ? t->site : NULL;
}

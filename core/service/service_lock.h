/* service_lock.h - the lock of the service: it guards the service thread's state and the
 * descriptors that the service opens and closes. Taken before any lock of memory. */
#ifndef LM_SERVICE_LOCK_H
#define LM_SERVICE_LOCK_H

/* Takes the lock. Until lm_service_unlock the thread counts as inside loam, so that nothing it does
 * makes a new site, which could want the lock again. */
void lm_service_lock(void);
void lm_service_unlock(void);

/* Makes the lock new, in a forked child. */
void lm_service_lock_renew(void);

#endif

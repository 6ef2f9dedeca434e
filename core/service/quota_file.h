/* quota_file.h - the file with the quotas of a user (heap/quota.h): made, mapped, cleaned of
 * processes that have died.
 *
 * The file is in the folder of the boards and control sockets, so all processes of a user share it,
 * those of several trees and those that are hosts. It has one size, half a megabyte, and all its
 * room is set aside when it is made, so that no store needs room on a full disk. If the file is cut
 * short while processes use it, an access to the missing part ends them by SIGBUS. The file stays
 * until the machine starts again. core/README.md has the reasons. */
#ifndef LM_QUOTA_FILE_H
#define LM_QUOTA_FILE_H

#include "heap/quota.h"
#include "loam.h"

/* The name of the file in the folder. The version is part of it, so that processes of two versions
 * of loam do not replace the file of each other. */
#define LM_QUOTA_FILE "quotas.1"

/* Milliseconds between two calls of lm_quota_file_look by a watcher, or by the service thread of a
 * host. */
enum { LM_QUOTA_LOOK_MS = 50 };

/* Says in which folder this process looks for the file: `folder` is loam_config.control_dir, or
 * NULL. `is_allowed` is false where LOAM_CONTROL=0 forbids to make files: then the process uses a
 * table only if it follows a board, and if the table is there. Called by each start, with no lock
 * held. */
void lm_quota_file_start(const char *folder, bool is_allowed);

/* Makes the file in `folder`, unless it is there. Replaces a file that is no table of quotas of
 * this version, boot and user, and a link, which it never follows. LOAM_EIO: the file cannot be
 * made; or it cannot be opened and read, so it may be a table that other processes use, and stays;
 * or the boot id is not known, because there is no /proc. Maps nothing. Any thread. */
loam_status lm_quota_file_make(const char *folder);
/* Maps the file of the folder in which the board at `path` is, for a process that follows this
 * board. Makes the file if it is missing, unless LOAM_CONTROL=0 forbids that. `boot_id` is the boot
 * id in the head of the board, which was checked. Later policies of the process can then share
 * limits without opening a file. If that fails, lm_quota_file_tell says so as soon as a policy
 * shares a limit. Under the load lock of policy.c. */
void lm_quota_file_follow(const char *path, const char *boot_id);
/* Notes the PID namespace of this process, and the file of its program, which the table of quotas
 * is to have if the process draws from it. A start calls it, so that an edit needs no system call
 * for that; a process without this call asks the system when a policy shares a limit. Under the
 * load lock. */
void lm_quota_file_describe(uint64_t pid_namespace, uint64_t exe_device, uint64_t exe_inode);

/* Gives each shared limit of a policy that is about to become live its quota. A process that
 * follows no board maps the file here if it must; one that follows a board opens nothing. Under the
 * load lock of policy.c. */
void lm_quota_file_bind(void);
/* Tells, as an event, that a shared limit counts this process alone, and why; once in each
 * generation. With no lock held. */
void lm_quota_file_tell(void);

/* Maps the table in `folder` for a process that draws nothing from it. NULL: there is none.
 * lm_quota_file_unmap ends the mapping. */
lm_quota_table *lm_quota_file_map(const char *folder);
void lm_quota_file_unmap(lm_quota_table *table);
/* Ends the places of holders that have ended, as far as /proc shows that. It also shows processes
 * that their parents have not waited for, and processes that are another program since an exec. */
void lm_quota_file_bury(lm_quota_table *table);
/* Calls lm_quota_file_bury if a process has found a quota full since the last call. *refusals is
 * what the last call has left there, and 0 before the first call. */
void lm_quota_file_look(lm_quota_table *table, uint32_t *refusals);

#endif

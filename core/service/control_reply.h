/* control_reply.h - the answers of a host to the requests on its control socket.
 *
 * Requests: `ping`, `status`, `stats`, `reload`, `reload PATH`, `sample BYTES`, `share KEY OFFSET`
 * (heap/share_export.h), `device BASE KEY ADDRESS` (device/device_export.h), `rebalance ORDER`,
 * `demote ORDER`, `moved`, `move stop`, `sleep WHERE tag=TAG`, `wake` and `wake TAG`. An ORDER is a
 * list of words such as `to=cold rate=1000 tag=TAG` (read_order in control_reply.c). */
#ifndef LM_CONTROL_REPLY_H
#define LM_CONTROL_REPLY_H

#include "loam.h"
#include "script/json.h"

/* Makes the service follow another policy file. Returns LOAM_OK, or a status with error words. */
typedef loam_status lm_control_follow_fn(const char *path);

/* Does what the request asks and writes the answer, one JSON object and a newline. *fd is -1 before
 * the call. If a descriptor goes with the answer, it is stored in *fd and the caller closes it.
 * `follow` is called for `reload PATH` in a host that follows its policy file. The caller holds no
 * lock. */
void lm_control_reply(const char *request, lm_control_follow_fn *follow, lm_json *out, int *fd);

#endif

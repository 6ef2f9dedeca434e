/* clients.c - the clients of the control socket. */
#include "service/clients.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/sys.h"
#include "script/json.h"
#include "service/chores.h"
#include "service/service_lock.h"

enum {
  CLIENT_MS = 5000, /* a client has so long for its whole line, and for each part of the answer */
  CROWDED_MS = 200  /* for the line, while no place is left for others */
};

/* A client of the control socket.
 * Law: length <= LM_CONTROL_LINE, and sent <= answer.length. Unless is_connected, `length` is 0,
 *      the answer is empty and the descriptors have no meaning. */
typedef struct client {
  bool is_connected;
  lm_descriptor socket;
  int64_t deadline_ns;
  size_t length;        /* of the part of the request's line that came so far */
  lm_json answer;       /* empty until the line is complete */
  size_t sent;          /* bytes of the answer */
  lm_descriptor passed; /* is sent with the answer's first byte; or none */
} client;

/* The service thread's own. The service lock is held where descriptors change. */
static LM_SPARSE client clients[LM_CLIENTS];
static LM_SPARSE char lines[LM_CLIENTS][LM_CONTROL_LINE];

LM_INLINE bool client_is_valid(const client *c) {
  if (!c->is_connected) return !c->length && !c->sent && !c->answer.length;
  return lm_descriptor_is_valid(&c->socket) && lm_descriptor_is_valid(&c->passed) &&
         c->length <= LM_CONTROL_LINE && c->sent <= c->answer.length;
}

/* Gives the client CLIENT_MS more. */
static void delay_deadline(client *c) {
  c->deadline_ns = lm_sys_clock_ns() + (int64_t)CLIENT_MS * 1000000;
}

/* Ends the connection to a client. */
static void hang_up(client *c) {
  lm_assert(c->is_connected);
  lm_service_lock();
  lm_descriptor_close(&c->socket);
  lm_descriptor_close(&c->passed);
  c->is_connected = false;
  lm_service_unlock();
  lm_json_finish(&c->answer);
  c->length = c->sent = 0;
  lm_assert(client_is_valid(c));
}

/* A place of a client that is not connected; NULL: all places are used. */
static client *free_client(void) {
  for (int i = 0; i < LM_CLIENTS; i++)
    if (!clients[i].is_connected) return &clients[i];
  return NULL;
}

bool lm_clients_have_room(void) { return free_client() != NULL; }

void lm_clients_accept(const lm_control_socket *socket) {
  client *c = free_client();
  lm_service_lock();
  int fd = lm_control_socket_accept(socket);
  int error = fd < 0 ? errno : 0;
  if (fd >= 0 && c && lm_control_is_same_user(fd)) {
    lm_assert(client_is_valid(c));
    c->socket = lm_descriptor_keep(fd);
    c->passed = LM_DESCRIPTOR_NONE;
    c->is_connected = c->socket.fd >= 0;
    delay_deadline(c);
  } else if (fd >= 0) {
    close(fd);
  }
  lm_service_unlock();
  /* With no descriptor left, the listener stays readable: wait, so that the thread does
   * not spin. */
  if (error == EMFILE || error == ENFILE) poll(NULL, 0, 50);
}

/* Sends bytes, with a descriptor unless `passed` is -1. */
static ssize_t send_with(int to, struct iovec *part, int passed) {
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof passed)];
  } control = { .head = { .cmsg_len = CMSG_LEN(sizeof passed),
                          .cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS } };
  struct msghdr message = { .msg_iov = part, .msg_iovlen = 1 };
  memcpy(CMSG_DATA(&control.head), &passed, sizeof passed);
  if (passed >= 0) {
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
  }
  return sendmsg(to, &message, MSG_NOSIGNAL);
}

/* Sends as much of the answer as the socket takes; hangs up after the last byte. */
static void send_answer(client *c) {
  lm_assert(client_is_valid(c) && c->sent < c->answer.length);
  bool has_passed = lm_descriptor_is_ours(&c->passed);
  struct iovec part = { c->answer.text + c->sent, c->answer.length - c->sent };
  ssize_t n = send_with(c->socket.fd, &part, has_passed ? c->passed.fd : -1);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) {
    c->sent += (size_t)n;
    lm_descriptor_close(&c->passed);
    delay_deadline(c);
  }
  if (n < 0 || c->sent == c->answer.length) hang_up(c);
}

static char *line_of(const client *c) { return lines[c - clients]; }

/* Answers the client's line, which ends at `end`. */
static void answer_line(client *c, char *end, lm_control_follow_fn *follow) {
  lm_assert(end >= line_of(c) && end < line_of(c) + LM_CONTROL_LINE);
  *end = 0;
  if (end > line_of(c) && end[-1] == '\r') end[-1] = 0;
  int passed = -1;
  lm_control_reply(line_of(c), follow, &c->answer, &passed);
  lm_service_lock();
  c->passed = lm_descriptor_keep(passed);
  lm_service_unlock();
  delay_deadline(c);
  if (c->answer.failed || !c->answer.length) hang_up(c);
  else send_answer(c);
}

/* Receives more of the client's line, and answers when the line is complete. */
static void receive_line(client *c, lm_control_follow_fn *follow) {
  lm_assert(client_is_valid(c) && c->length < LM_CONTROL_LINE);
  ssize_t n = recv(c->socket.fd, line_of(c) + c->length, LM_CONTROL_LINE - c->length, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) c->length += (size_t)n;
  char *end = memchr(line_of(c), '\n', c->length);
  if (end) answer_line(c, end, follow);
  else if (n <= 0 || c->length == LM_CONTROL_LINE) hang_up(c); /* gone, or the line is too long */
}

static bool is_answered(const client *c) { return c->answer.length > 0; }

/* When the client is hung up if its line is not whole, or if it takes nothing of the answer. */
static int64_t deadline_of(const client *c, bool is_crowded) {
  if (!is_crowded || is_answered(c)) return c->deadline_ns;
  return c->deadline_ns - (int64_t)(CLIENT_MS - CROWDED_MS) * 1000000;
}

/* Serves a client for which poll(2) has reported `events`; 0: nothing came from it. `is_crowded`
 * says that no place is left for another client. */
static void serve(client *c, short events, bool is_crowded, lm_control_follow_fn *follow) {
  if (!lm_descriptor_is_ours(&c->socket)) hang_up(c);
  else if (events && is_answered(c)) send_answer(c);
  else if (events) receive_line(c, follow);
  else if (lm_sys_clock_ns() > deadline_of(c, is_crowded)) hang_up(c);
  lm_assert(client_is_valid(c));
}

void lm_clients_gather(struct pollfd *fds, int *timeout_ms) {
  int64_t now = lm_sys_clock_ns();
  bool is_crowded = !lm_clients_have_room();
  for (int i = 0; i < LM_CLIENTS; i++) {
    const client *c = &clients[i];
    fds[i] = (struct pollfd){ .fd = c->is_connected ? c->socket.fd : -1,
                              .events = is_answered(c) ? POLLOUT : POLLIN };
    int64_t left_ms = (deadline_of(c, is_crowded) - now) / 1000000 + 1;
    if (c->is_connected) *timeout_ms = lm_chores_earlier_ms(*timeout_ms, left_ms);
  }
}

void lm_clients_serve(const struct pollfd *fds, lm_control_follow_fn *follow) {
  lm_assert(follow);
  bool is_crowded = !lm_clients_have_room();
  for (int i = 0; i < LM_CLIENTS; i++)
    if (fds[i].fd >= 0) serve(&clients[i], fds[i].revents, is_crowded, follow);
}

void lm_clients_end(void) {
  for (int i = 0; i < LM_CLIENTS; i++)
    if (clients[i].is_connected) hang_up(&clients[i]);
}

/* The fork may have come at any moment of what the service thread does without the lock. So even a
 * client that is not connected is cleared. */
void lm_clients_fork_child(void) {
  for (int i = 0; i < LM_CLIENTS; i++) {
    if (clients[i].is_connected) {
      lm_descriptor_close(&clients[i].socket);
      lm_descriptor_close(&clients[i].passed);
    }
    clients[i] = (client){ 0 };
  }
}

/* test_sys.c - the contract with the operating system: sys.h. */
#include "os/poison.h"
#include "os/sys_file.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 1 << 20 };

static char *reserve(size_t size) {
  void *at;
  assert_int_equal(lm_sys_reserve(size, &at), 0);
  return at;
}

static char *reserve_and_commit(size_t size) {
  char *at = reserve(size);
  assert_int_equal(lm_sys_commit(at, size), 0);
  return at;
}

static bool is_all(const char *at, size_t size, char byte) {
  for (size_t i = 0; i < size; i++)
    if (at[i] != byte) return false;
  return true;
}

/* Returns whether the range is mapped, with or without access. */
static bool is_taken(void *at, size_t size) {
  void *p = mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (p == MAP_FAILED) return errno == EEXIST;
  munmap(p, size);
  return false;
}

static int touch(void *at) {
  signal(SIGSEGV, SIG_DFL); /* without a sanitizer's handler, which would print a report */
  *(volatile char *)at = 1;
  return 0;
}

static bool has_access(void *at) { return run_in_child(touch, at) == 0; }

/* Reserves `size` bytes at a multiple of a huge page, and some bytes behind them. */
static void *reserve_aligned(size_t size, size_t page) {
  return (void *)lm_align_up((uintptr_t)reserve(size + page), page);
}

static void reserves_address_space_without_access(void **state) {
  (void)state;
  char *at = reserve(3 * LM_PAGE);
  assert_int_equal((uintptr_t)at % LM_PAGE, 0);
  assert_true((uintptr_t)at <= LM_SIZE_MAX - 3 * LM_PAGE);
  assert_true(is_taken(at, LM_PAGE) && is_taken(at + 2 * LM_PAGE, LM_PAGE));
  assert_false(has_access(at));
  lm_sys_unmap(at, 3 * LM_PAGE);
  assert_false(is_taken(at, 3 * LM_PAGE));
}

static void refuses_a_reservation_larger_than_the_address_space(void **state) {
  (void)state;
  void *at = (void *)1;
  assert_int_equal(lm_sys_reserve(SIZE_MAX & ~(LM_PAGE - 1), &at), ENOMEM);
  assert_int_equal(lm_sys_reserve(LM_SIZE_MAX * 2, &at), ENOMEM);
  assert_ptr_equal(at, (void *)1);
}

static void commits_zeroed_memory_and_takes_it_back(void **state) {
  (void)state;
  char *at = reserve(SIZE);
  assert_false(has_access(at));
  assert_int_equal(lm_sys_commit(at, SIZE), 0);
  assert_true(is_all(at, SIZE, 0));
  memset(at, 7, SIZE);
  assert_int_equal(lm_sys_decommit(at, SIZE), 0);
  assert_false(has_access(at));
  assert_true(is_taken(at, SIZE));
  assert_int_equal(lm_sys_commit(at, SIZE), 0);
  assert_true(is_all(at, SIZE, 0));
  lm_sys_unmap(at, SIZE);
}

static void purges_and_keeps_access(void **state) {
  (void)state;
  char *at = reserve_and_commit(SIZE);
  memset(at, 7, SIZE);
  assert_int_equal(lm_sys_purge(at, SIZE), 0);
  assert_true(is_all(at, SIZE, 0));
  lm_sys_unmap(at, SIZE);
}

static void purges_locked_memory_too(void **state) {
  (void)state;
  char *at = reserve_and_commit(2 * LM_PAGE);
  int error = lm_sys_mlock(at, 2 * LM_PAGE);
  if (error) {
    print_message("not tried: memory cannot be locked here (%s)\n", strerror(error));
    lm_sys_unmap(at, 2 * LM_PAGE);
    skip();
  }
  memset(at, 7, 2 * LM_PAGE);
  assert_int_equal(lm_sys_purge(at, 2 * LM_PAGE), 0);
  assert_true(is_all(at, 2 * LM_PAGE, 0));
  lm_sys_unmap(at, 2 * LM_PAGE);
}

/* The pages contain constants of this program. They are backed by a file and not locked. */
static void evicted_pages_of_a_file_are_read_again(void **state) {
  (void)state;
  static const char words[3 * LM_PAGE] = { [LM_PAGE] = 'w', [3 * LM_PAGE - 1] = 'e' };
  uintptr_t from = lm_align_up((uintptr_t)words, LM_PAGE);
  assert_int_equal(lm_sys_evict_file((void *)from, 2 * LM_PAGE), 0);
  assert_int_equal(words[LM_PAGE], 'w');
  assert_int_equal(words[3 * LM_PAGE - 1], 'e');
}

/* Returns whether the page at p is mapped now, so that an access is no page fault. */
static bool is_mapped(const char *p) {
  uint64_t entry;
  int fd = open("/proc/self/pagemap", O_RDONLY);
  assert_int_equal(pread(fd, &entry, sizeof entry, (off_t)((uintptr_t)p / LM_PAGE * 8)), 8);
  close(fd);
  return entry >> 63;
}

/* A debugger writes its breakpoints into pages of code, and a library may change its own code. */
static void pages_of_a_file_that_were_written_to_are_not_evicted(void **state) {
  (void)state;
  static const char words[5 * LM_PAGE] = { 'w' };
  char *from = (char *)lm_align_up((uintptr_t)words, LM_PAGE);
  volatile char *page[] = { from, from + LM_PAGE, from + 2 * LM_PAGE, from + 3 * LM_PAGE };
  assert_int_equal(mprotect(from, 4 * LM_PAGE, PROT_READ | PROT_WRITE), 0);
  *page[1] = 'b';
  *page[3] = 'r';
  assert_int_equal(mprotect(from, 4 * LM_PAGE, PROT_READ), 0);
  for (int i = 0; i < 4; i++) (void)*page[i]; /* every page is mapped now */
  assert_int_equal(lm_sys_evict_file(from, 4 * LM_PAGE), 0);
  assert_false(is_mapped(from) || is_mapped(from + 2 * LM_PAGE));
  assert_int_equal(*page[1], 'b');
  assert_int_equal(*page[3], 'r');
}

static void locked_memory_is_not_evicted(void **state) {
  (void)state;
  if (SANITIZED) {
    print_message("not tried: a sanitizer's mlock locks nothing\n");
    skip();
  }
  static const char words[2 * LM_PAGE] = { [LM_PAGE] = 'w' };
  char *at = (char *)lm_align_up((uintptr_t)words, LM_PAGE);
  int error = lm_sys_mlock(at, LM_PAGE);
  if (error) {
    print_message("not tried: memory cannot be locked here (%s)\n", strerror(error));
    skip();
  }
  assert_int_not_equal(lm_sys_evict_file(at, LM_PAGE), 0);
  assert_true(is_mapped(at));
  assert_int_equal(lm_sys_munlock(at, LM_PAGE), 0);
}

static void maps_zeroed_memory(void **state) {
  (void)state;
  void *at;
  assert_int_equal(lm_sys_map(SIZE, &at), 0);
  assert_true(is_all(at, SIZE, 0));
  lm_sys_unmap(at, SIZE);
  assert_false(is_taken(at, SIZE));
}

static void prefaults_every_page(void **state) {
  (void)state;
  char *at = reserve_and_commit(SIZE);
  int error = lm_sys_prefault(at, SIZE);
  if (error == EINVAL) skip(); /* a kernel before 5.14 */
  assert_int_equal(error, 0);
  unsigned char there[SIZE / 4096];
  assert_int_equal(mincore(at, SIZE, there), 0);
  for (size_t i = 0; i < LM_COUNT(there); i++) assert_true(there[i] & 1);
  lm_sys_unmap(at, SIZE);
}

static void moves_pages_and_leaves_the_source_reserved(void **state) {
  (void)state;
  char *from = reserve_and_commit(SIZE), *to = reserve(SIZE);
  memset(from, 7, SIZE);
  assert_int_equal(lm_sys_move(from, SIZE, to), 0);
  assert_true(is_all(to, SIZE, 7));
  assert_true(is_taken(from, SIZE));
  assert_false(has_access(from));
  lm_sys_unmap(from, SIZE);
  lm_sys_unmap(to, SIZE);
}

/* Makes a range of PIECES mappings, which hold the byte 7. Pages that were moved do not join. */
enum { PIECES = 16, PIECE = SIZE / PIECES };
static char *make_pieces(void) {
  char *at = reserve(SIZE), *elsewhere = reserve(2 * SIZE);
  for (int i = 0; i < PIECES; i++) {
    char *piece = elsewhere + (ptrdiff_t)i * 2 * PIECE;
    assert_int_equal(lm_sys_commit(piece, PIECE), 0);
    memset(piece, 7, PIECE);
    assert_int_equal(lm_sys_move(piece, PIECE, at + (ptrdiff_t)i * PIECE), 0);
  }
  lm_sys_unmap(elsewhere, 2 * SIZE);
  return at;
}

static void moves_several_mappings(void **state) {
  (void)state;
  char *from = make_pieces(), *to = reserve(SIZE);
  assert_int_equal(lm_sys_move(from, SIZE, to), 0);
  assert_true(is_all(to, SIZE, 7));
  assert_true(is_taken(from, SIZE));
  assert_false(has_access(from));
  lm_sys_unmap(from, SIZE);
  lm_sys_unmap(to, SIZE);
}

/* Maps single pages until the process has as many mappings as the kernel allows, and then unmaps
 * `room` of them. Returns 0 if a move that fails has changed nothing; NOT_REACHED: the kernel
 * allows more mappings than this test makes. */
enum { NOT_REACHED = 100 };
static int move_with_room_for(void *rooms) {
  enum { MOST = 1 << 17 };
  static void *page[MOST];
  int n = 0, room = *(int *)rooms;
  char *from = make_pieces(), *to = reserve(SIZE);
  if (lm_sys_commit(to, SIZE)) return 1;
  for (; n < MOST; n++) {
    int access = n % 2 ? PROT_READ : PROT_NONE;
    page[n] = mmap(NULL, LM_PAGE, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page[n] == MAP_FAILED) break;
  }
  if (n == MOST) return NOT_REACHED;
  for (int i = 0; i < room; i++) munmap(page[--n], LM_PAGE);
  bool is_moved = lm_sys_move(from, SIZE, to) == 0;
  return is_all(is_moved ? to : from, SIZE, 7) ? 0 : 1;
}

static void a_move_that_fails_at_the_limit_of_mappings_changes_nothing(void **state) {
  (void)state;
  skip_if_sanitized();
  for (int room = 4; room < 4 + PIECES; room += 4) {
    int outcome = run_in_child(move_with_room_for, &room);
    if (outcome == NOT_REACHED) print_message("not tried: vm.max_map_count is too high\n");
    if (outcome == NOT_REACHED) skip();
    assert_int_equal(outcome, 0);
  }
}

/* A move into a reservation counts for RLIMIT_DATA, and here that is reached in the middle. */
static int move_beyond_the_limit_of_data(void *unused) {
  (void)unused;
  char *from = make_pieces(), *to = reserve(SIZE), text[4096];
  size_t length;
  if (lm_sys_read_file("/proc/self/statm", text, sizeof text, &length)) return 1;
  char *data = text;
  for (int i = 0; i < 5; i++) data = strchr(data, ' ') + 1; /* includes the stack */
  struct rlimit limit;
  getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = strtoul(data, NULL, 10) * LM_PAGE + SIZE / 2;
  if (setrlimit(RLIMIT_DATA, &limit)) return 2;
  lm_poison(to, SIZE); /* as memory that is in no block */
  if (!lm_sys_move(from, SIZE, to)) return 3;
  if (!is_all(from, SIZE, 7)) return 4;
  return is_taken(to, SIZE) && !has_access(to) ? 0 : 5;
}

static void a_move_that_fails_in_the_middle_changes_nothing(void **state) {
  (void)state;
  assert_int_equal(run_in_child(move_beyond_the_limit_of_data, NULL), 0);
}

/* No machine has so many free huge pages of 1 GiB. */
static void a_failed_huge_commit_leaves_the_reservation_whole(void **state) {
  (void)state;
  size_t size = 512 * LM_GIB;
  void *at = reserve_aligned(size, LM_GIB);
  assert_int_not_equal(lm_sys_commit_huge(at, size, LM_GIB), 0);
  assert_true(is_taken(at, LM_PAGE));
  assert_true(is_taken((char *)at + size - LM_PAGE, LM_PAGE));
  lm_sys_unmap(at, size);
}

static void commits_huge_pages_where_the_machine_has_them(void **state) {
  (void)state;
  void *at = reserve_aligned(4 * LM_MIB, 2 * LM_MIB);
  int error = lm_sys_commit_huge(at, 2 * LM_MIB, 2 * LM_MIB);
  if (error) {
    print_message("not tried: no free huge page of 2 MiB (%s)\n", strerror(error));
    lm_sys_unmap(at, 4 * LM_MIB);
    skip();
  }
  assert_int_equal(lm_sys_prefault(at, 2 * LM_MIB), 0);
  memset(at, 7, 2 * LM_MIB);
  assert_int_equal(lm_sys_decommit(at, 2 * LM_MIB), 0);
  assert_false(has_access(at));
  lm_sys_unmap(at, 4 * LM_MIB);
}

static void binds_to_a_node_that_exists(void **state) {
  (void)state;
  skip_if_none_is_placed();
  char *at = reserve_and_commit(SIZE);
  uint64_t nodes;
  assert_int_equal(lm_sys_nodes_allowed(&nodes), 0);
  assert_int_not_equal(nodes, 0);
  uint64_t first = nodes & -nodes, none = 0;
  assert_int_equal(lm_sys_bind(at, SIZE, 2, &first), 0);
  assert_int_equal(lm_sys_bind(at, SIZE, 4, NULL), 0);
  assert_int_equal(lm_sys_bind(at, SIZE, 2, &none), EINVAL);
  lm_sys_unmap(at, SIZE);
}

static void reports_the_node_of_the_cpu(void **state) {
  (void)state;
  for (int i = 0; i < 100; i++) {
    unsigned before, after, told;
    assert_int_equal(getcpu(NULL, &before), 0);
    told = lm_sys_node();
    assert_int_equal(getcpu(NULL, &after), 0);
    if (before == after) assert_int_equal(told, before);
  }
}

/* A sanitizer needs the real getauxval. */
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
/* Replaces the function of the C library. Acts like on a kernel before Linux 6.3. */
unsigned long getauxval(unsigned long type) {
  (void)type;
  errno = ENOENT;
  return 0;
}
#endif

static void keeps_errno_where_the_kernel_does_not_keep_the_node(void **state) {
  (void)state;
  skip_if_sanitized();
  ptrdiff_t before = lm_sys_rseq;
  lm_sys_rseq = LM_SYS_RSEQ_UNKNOWN;
  errno = 0;
  (void)lm_sys_node();
  assert_int_equal(errno, 0);
  assert_int_equal(lm_sys_rseq, LM_SYS_RSEQ_NONE);
  lm_sys_rseq = before;
}

static void keeps_errno(void **state) {
  (void)state;
  char *at = reserve(SIZE);
  char text[8];
  size_t length;
  uint64_t none = 0;
  errno = 4711;
  assert_int_not_equal(lm_sys_bind(at, SIZE, 2, &none), 0);
  assert_int_not_equal(lm_sys_read_file("/no/such", text, sizeof text, &length), 0);
  assert_int_not_equal(lm_sys_read_file("/", text, sizeof text, &length), 0);
  assert_int_not_equal(lm_sys_move(at + 1, SIZE, at), 0);
  assert_int_not_equal(lm_sys_commit((char *)LM_PAGE, SIZE), 0);
  assert_int_equal(lm_sys_open_below(-1, "/no/such"), -1);
  assert_false(lm_sys_thread_lives(0x3fffffff));
  lm_sys_unmap(at + 1, SIZE);
  lm_sys_membarrier();
  (void)lm_sys_random();
  assert_int_equal(errno, 4711);
  lm_sys_unmap(at, SIZE);
}

static int needs_barrier(void *unused) {
  (void)unused;
  return lm_sys_membarrier();
}

static void has_a_barrier_in_a_forked_child_too(void **state) {
  (void)state;
  if (lm_sys_membarrier()) skip(); /* a kernel without membarrier(2) */
  assert_int_equal(run_in_child(needs_barrier, NULL), 0);
}

static _Atomic uint32_t word, thread_number;

static void *sleep_until_told(void *unused) {
  (void)unused;
  thread_number = (uint32_t)lm_sys_thread_id();
  while (word == 0) lm_sys_wait(&word, 0);
  return NULL;
}

static void sleeps_until_woken_and_knows_who_lives(void **state) {
  (void)state;
  pthread_t thread = start_thread(sleep_until_told, NULL);
  while (thread_number == 0) sched_yield();
  lm_sys_sleep(1000000);
  assert_true(lm_sys_thread_lives((int)thread_number));
  word = 1;
  lm_sys_wake(&word);
  pthread_join(thread, NULL);
  while (lm_sys_thread_lives((int)thread_number))
    lm_sys_sleep(100000); /* the kernel ends the thread soon after the join */
}

static void a_wait_for_a_changed_word_returns(void **state) {
  (void)state;
  _Atomic uint32_t changed = 1;
  lm_sys_wait(&changed, 0);
}

static void reads_small_files_whole_and_long_ones_in_part(void **state) {
  (void)state;
  char path[] = "/tmp/loam-test-XXXXXX";
  int fd = mkstemp(path);
  assert_int_equal(write(fd, "one\ntwo\n", 8), 8);
  close(fd);
  char text[16];
  size_t length = 99;
  assert_int_equal(lm_sys_read_file(path, text, sizeof text, &length), 0);
  assert_int_equal(length, 8);
  assert_string_equal(text, "one\ntwo\n");
  assert_int_equal(lm_sys_read_file(path, text, 4, &length), 0);
  assert_int_equal(length, 3);
  assert_string_equal(text, "one");
  unlink(path);
  assert_int_equal(lm_sys_read_file(path, text, sizeof text, &length), ENOENT);
  assert_int_equal(lm_sys_read_file("/", text, sizeof text, &length), EISDIR);
  assert_int_equal(length, 3);
}

enum { CUT = 4095 }; /* the most bytes of a line that the visitor gets */

/* The lengths and the last bytes of the lines that were visited. */
typedef struct seen {
  size_t n, length[8];
  char last[8];
} seen;

static void see(void *ctx, const char *line) {
  seen *s = ctx;
  assert_true(s->n < LM_COUNT(s->length));
  assert_null(strchr(line, '\n'));
  s->length[s->n] = strlen(line);
  s->last[s->n++] = *line ? line[strlen(line) - 1] : 0;
}

static void put_line(FILE *file, size_t length, char last) {
  for (size_t i = 1; i < length; i++) fputc('x', file);
  if (length) fputc(last, file);
  fputc('\n', file);
}

static void cuts_a_long_line_and_drops_its_rest(void **state) {
  (void)state;
  char path[] = "/tmp/loam-lines-XXXXXX";
  const size_t length[] = { 600, CUT - 1, CUT, CUT + 1, 3 * CUT + 7, 0, 5 };
  seen s = { 0 };
  FILE *file = fdopen(mkstemp(path), "w");
  assert_non_null(file);
  for (size_t i = 0; i < LM_COUNT(length); i++) put_line(file, length[i], (char)('0' + i));
  fclose(file);
  assert_int_equal(lm_sys_each_line(path, see, &s), 0);
  assert_int_equal(s.n, LM_COUNT(length));
  for (size_t i = 0; i < LM_COUNT(length); i++) {
    bool is_cut = length[i] > CUT;
    assert_int_equal(s.length[i], is_cut ? CUT : length[i]);
    assert_int_equal(s.last[i], is_cut ? 'x' : length[i] ? '0' + i : 0);
  }
  unlink(path);
}

/* The host may have put a pipe of its own at the number of loam's file. */
static void takes_nothing_out_of_a_pipe(void **state) {
  (void)state;
  char path[64], text[5] = "";
  int ends[2];
  size_t length;
  assert_int_equal(pipe(ends), 0);
  assert_int_equal(write(ends[1], "kept", 4), 4);
  snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
  assert_int_equal(lm_sys_read_file(path, text, sizeof text, &length), ESPIPE);
  assert_int_equal(read(ends[0], text, 4), 4);
  assert_string_equal(text, "kept");
  close(ends[0]);
  close(ends[1]);
}

static void returns_the_time_and_random_bytes(void **state) {
  (void)state;
  int64_t a = lm_sys_clock_ns();
  lm_sys_sleep(2000000);
  assert_true(lm_sys_clock_ns() - a >= 2000000);
  assert_true(lm_sys_unix_ns() > (int64_t)1600000000 * 1000000000);
  assert_true(lm_sys_random() != lm_sys_random());
}

/* Without the check of the limit, the kernel would end the process with SIGXFSZ. */
static int append_beyond_the_limit(void *path) {
  struct rlimit limit = { 8, 8 };
  if (setrlimit(RLIMIT_FSIZE, &limit)) return 1;
  if (lm_sys_file_append(path, "123456", 6)) return 2;
  if (lm_sys_file_append(path, "789", 3) != EFBIG) return 3;
  return lm_sys_file_append(path, "78", 2) ? 4 : 0;
}

static int write_beyond_the_limit(void *path) {
  struct rlimit limit = { 8, 8 };
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0 || setrlimit(RLIMIT_FSIZE, &limit)) return 1;
  if (lm_sys_file_write(fd, 4, "5678", 4)) return 2;
  return lm_sys_file_write(fd, 8, "9", 1) == EFBIG ? 0 : 3;
}

static void bytes_that_would_make_a_file_too_long_are_not_written(void **state) {
  (void)state;
  char path[] = "/tmp/loam-write-XXXXXX", read[16] = "";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(run_in_child(write_beyond_the_limit, path), 0);
  assert_int_equal(pread(fd, read, sizeof read, 0), 8);
  close(fd);
  unlink(path);
}

static void a_line_that_would_make_a_file_too_long_is_not_written(void **state) {
  (void)state;
  char path[] = "/tmp/loam-append-XXXXXX", read[16] = "";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(run_in_child(append_beyond_the_limit, path), 0);
  assert_int_equal(pread(fd, read, sizeof read, 0), 8);
  assert_string_equal(read, "12345678");
  close(fd);
  unlink(path);
}

static void refuses_the_nth_call_once(void **state) {
  (void)state;
  void *at;
  lm_sys_refuse(2);
  assert_int_equal(lm_sys_map(LM_PAGE, &at), 0);
  void *none = NULL;
  assert_int_equal(lm_sys_map(LM_PAGE, &none), ENOMEM);
  assert_null(none);
  assert_int_equal(lm_sys_purge(at, LM_PAGE), 0);
  lm_sys_refuse(1);
  assert_int_equal(lm_sys_commit(at, LM_PAGE), ENOMEM);
  lm_sys_refuse(0);
  lm_sys_unmap(at, LM_PAGE);
}

static int break_a_promise(void *fd) {
  signal(SIGABRT, SIG_DFL);
  dup2(*(int *)fd, STDERR_FILENO);
  lm_require(1 + 1 == 3);
  return 0;
}

static void a_broken_promise_is_named_and_aborts(void **state) {
  (void)state;
  int pipe_fd[2];
  assert_int_equal(pipe(pipe_fd), 0);
  assert_int_equal(run_in_child(break_a_promise, &pipe_fd[1]), -SIGABRT);
  char said[256] = { 0 };
  assert_true(read(pipe_fd[0], said, sizeof said - 1) > 0);
  assert_non_null(strstr(said, "test_sys.c:"));
  assert_non_null(strstr(said, ": not true: 1 + 1 == 3\n"));
  close(pipe_fd[0]);
  close(pipe_fd[1]);
}

static void *read_when_cancelled(void *was_over) {
  char text[100];
  size_t length;
  pthread_cancel(pthread_self());
  lm_sys_cancel_off();
  *(bool *)was_over = lm_sys_read_file("/proc/self/comm", text, sizeof text, &length) == 0 &&
                      !sleep(0);
  lm_sys_cancel_restore();
  (void)lm_sys_random();
  *(bool *)was_over &= lm_sys_read_file("/proc/self/comm", text, sizeof text, &length) == 0;
  pthread_testcancel();
  return NULL;
}

static void no_system_call_ends_a_cancelled_thread_amid_things(void **state) {
  (void)state;
  bool was_over = false;
  void *end;
  pthread_t thread = start_thread(read_when_cancelled, &was_over);
  assert_int_equal(pthread_join(thread, &end), 0);
  assert_true(was_over && end == PTHREAD_CANCELED);
}

/* Exits with 0 if lm_sys_process_close_from has closed all descriptors from `first` on. If
 * `is_refused`, close_range(2) fails first. */
static void close_all_from(int first, bool is_refused) {
  int high = fcntl(first, F_DUPFD, first + 200);
  if (high < 0) _exit(2);
  if (is_refused) lm_sys_refuse(1);
  lm_sys_process_close_from(first);
  bool is_lower_open = fcntl(first - 1, F_GETFD) >= 0;
  bool is_one_open = fcntl(first, F_GETFD) >= 0 || fcntl(high, F_GETFD) >= 0;
  _exit(!is_lower_open || is_one_open);
}

static void closes_descriptors_also_where_the_kernel_cannot_close_a_range(void **state) {
  (void)state;
  for (int is_refused = 0; is_refused < 2; is_refused++) {
    int status, lower = open("/dev/null", O_RDONLY), first = fcntl(lower, F_DUPFD, lower + 1);
    if (first != lower + 1) fail_msg("descriptor %d is taken", lower + 1);
    pid_t pid = fork();
    if (!pid) close_all_from(first, is_refused);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(first);
    close(lower);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(reserves_address_space_without_access),
    cmocka_unit_test(closes_descriptors_also_where_the_kernel_cannot_close_a_range),
    cmocka_unit_test(refuses_a_reservation_larger_than_the_address_space),
    cmocka_unit_test(commits_zeroed_memory_and_takes_it_back),
    cmocka_unit_test(purges_and_keeps_access),
    cmocka_unit_test(purges_locked_memory_too),
    cmocka_unit_test(evicted_pages_of_a_file_are_read_again),
    cmocka_unit_test(pages_of_a_file_that_were_written_to_are_not_evicted),
    cmocka_unit_test(locked_memory_is_not_evicted),
    cmocka_unit_test(maps_zeroed_memory),
    cmocka_unit_test(prefaults_every_page),
    cmocka_unit_test(moves_pages_and_leaves_the_source_reserved),
    cmocka_unit_test(moves_several_mappings),
    cmocka_unit_test(a_move_that_fails_at_the_limit_of_mappings_changes_nothing),
    cmocka_unit_test(a_move_that_fails_in_the_middle_changes_nothing),
    cmocka_unit_test(a_failed_huge_commit_leaves_the_reservation_whole),
    cmocka_unit_test(commits_huge_pages_where_the_machine_has_them),
    cmocka_unit_test(binds_to_a_node_that_exists),
    cmocka_unit_test(reports_the_node_of_the_cpu),
    cmocka_unit_test(keeps_errno),
    cmocka_unit_test(keeps_errno_where_the_kernel_does_not_keep_the_node),
    cmocka_unit_test(has_a_barrier_in_a_forked_child_too),
    cmocka_unit_test(sleeps_until_woken_and_knows_who_lives),
    cmocka_unit_test(a_wait_for_a_changed_word_returns),
    cmocka_unit_test(reads_small_files_whole_and_long_ones_in_part),
    cmocka_unit_test(cuts_a_long_line_and_drops_its_rest),
    cmocka_unit_test(takes_nothing_out_of_a_pipe),
    cmocka_unit_test(returns_the_time_and_random_bytes),
    cmocka_unit_test(a_line_that_would_make_a_file_too_long_is_not_written),
    cmocka_unit_test(bytes_that_would_make_a_file_too_long_are_not_written),
    cmocka_unit_test(refuses_the_nth_call_once),
    cmocka_unit_test(a_broken_promise_is_named_and_aborts),
    cmocka_unit_test(no_system_call_ends_a_cancelled_thread_amid_things),
  };
  return cmocka_run_group_tests_name("sys", tests, NULL, NULL);
}

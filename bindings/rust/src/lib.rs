//! loam - memory policies for Rust: a global allocator with tags.
//!
//! ```
//! #[global_allocator]
//! static MEMORY: loam::Loam = loam::Loam;
//!
//! let site = loam::Site::new("index.words").unwrap();
//! let words = loam::with(site, || vec![0u8; 1000]);
//! assert_eq!(loam::owner(words.as_ptr()).unwrap().tag, "index.words");
//! ```
//!
//! All memory of the program is then loam's. What is allocated inside a scope has the tag of the scope's
//! site; what is allocated outside every scope has the tag `""`. A block that grows keeps its tag, in
//! whichever scope it grows.
//!
//! A policy decides which memory each tag gets: [`load_policy`], or `LOAM_POLICY` in the environment.

#[allow(non_camel_case_types)]
pub mod ffi;

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{CStr, CString};
use std::fmt;
use std::marker::PhantomData;
use std::os::raw::{c_char, c_void};
use std::path::Path;
use std::ptr;

/// The alignment that loam's plain allocations have at least.
const PLAIN_ALIGNMENT: usize = 16;

/// loam as the allocator of a program: `#[global_allocator] static MEMORY: Loam = Loam;`.
///
/// A request that the policy refuses, or for which there is no memory, makes `alloc` return null, as
/// for any global allocator: Rust then ends the program, and `Vec::try_reserve` returns an error.
#[derive(Debug, Clone, Copy, Default)]
pub struct Loam;

unsafe impl GlobalAlloc for Loam {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= PLAIN_ALIGNMENT {
            ffi::loam_malloc(ptr::null_mut(), layout.size()) as *mut u8
        } else {
            ffi::loam_aligned_alloc(ptr::null_mut(), layout.align(), layout.size()) as *mut u8
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        ffi::loam_free_sized(block as *mut c_void, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= PLAIN_ALIGNMENT {
            return ffi::loam_calloc(ptr::null_mut(), 1, layout.size()) as *mut u8;
        }
        let block = self.alloc(layout);
        if !block.is_null() {
            ptr::write_bytes(block, 0, layout.size());
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= PLAIN_ALIGNMENT {
            return ffi::loam_realloc(ptr::null_mut(), block as *mut c_void, size) as *mut u8;
        }
        // loam_realloc does not promise a greater alignment.
        let grown = ffi::loam_aligned_alloc(site_of(block), layout.align(), size) as *mut u8;
        if !grown.is_null() {
            ptr::copy_nonoverlapping(block, grown, layout.size().min(size));
            self.dealloc(block, layout);
        }
        grown
    }
}

/// Returns the site of a live block. Null, which means the current scope, if loam does not know it.
unsafe fn site_of(block: *const u8) -> *mut ffi::loam_site {
    let mut info = std::mem::MaybeUninit::<ffi::loam_owner_info>::uninit();
    if ffi::loam_owner(block as *const c_void, info.as_mut_ptr()) != 0 {
        return ptr::null_mut();
    }
    let ffi::loam_owner_info { tag, file, func, module, line, .. } = info.assume_init();
    ffi::loam_site_at(&ffi::loam_where { tag, file, func, module, line })
}

/// A failure, in the words of `loam_error()`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    words: String,
}

impl Error {
    /// The last failure of this thread: after `try_reserve` has returned an error, it says which limit
    /// was passed. Its text is allocated for the tag `""`, because the scope may be at its limit.
    pub fn last() -> Error {
        let _untagged = scope(Site { site: unsafe { ffi::loam_site_get(b"\0".as_ptr() as *const c_char) } });
        // To allocate the copy is a call of loam. It succeeds, or it ends the program: the text stays.
        Error { words: text(unsafe { ffi::loam_error() }) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.words)
    }
}

impl std::error::Error for Error {}

/// Returns a C string of loam as text; an empty one for null. Bytes that are not UTF-8 are replaced.
fn text(of: *const c_char) -> String {
    if of.is_null() {
        return String::new();
    }
    unsafe { CStr::from_ptr(of) }.to_string_lossy().into_owned()
}

fn c_string(of: impl Into<Vec<u8>>) -> Result<CString, Error> {
    CString::new(of).map_err(|refused| {
        let text = String::from_utf8_lossy(&refused.into_vec()).into_owned();
        Error { words: format!("text {text:?}: it has a zero byte") }
    })
}

/// A site: a tag that memory is allocated for. Sites live as long as the process; equal tags have one
/// site. Any thread may use a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    site: *mut ffi::loam_site,
}

unsafe impl Send for Site {}
unsafe impl Sync for Site {}

impl Site {
    /// Looks up the site of a tag. Fails if the tag has more than 255 bytes or a zero byte, or if there
    /// is no memory for the site. Look a site up once and keep it.
    pub fn new(tag: &str) -> Result<Site, Error> {
        let tag = c_string(tag)?;
        let site = unsafe { ffi::loam_site_get(tag.as_ptr()) };
        if site.is_null() {
            return Err(Error::last());
        }
        Ok(Site { site })
    }
}

/// A scope of this thread: while it lives, the thread's memory is allocated for its site. Scopes nest up
/// to 64 deep, and end in reverse order. A scope stays in its thread.
///
/// A scope must not live across an `.await`: until the task goes on, other tasks of the thread would
/// use it. So a task enters its scope each time when it is polled, and its memory has the tag in
/// whichever thread it runs:
///
/// ```
/// use std::{future::Future, pin::Pin, task::{Context, Poll}};
///
/// struct Tagged<F> {
///     site: loam::Site,
///     task: Pin<Box<F>>,
/// }
///
/// impl<F: Future> Future for Tagged<F> {
///     type Output = F::Output;
///     fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
///         loam::with(self.site, || self.task.as_mut().poll(context))
///     }
/// }
///
/// let site = loam::Site::new("query.scan").unwrap();
/// let task = Tagged { site, task: loam::with(site, || Box::pin(async { vec![0u8; 1000] })) };
/// # struct Quiet;
/// # impl std::task::Wake for Quiet {
/// #     fn wake(self: std::sync::Arc<Self>) {}
/// # }
/// # #[global_allocator]
/// # static MEMORY: loam::Loam = loam::Loam;
/// # let waker = std::sync::Arc::new(Quiet).into();
/// # let mut task = Box::pin(task);
/// # assert_eq!(loam::owner(&*task.task as *const _).unwrap().tag, "query.scan");
/// # match task.as_mut().poll(&mut Context::from_waker(&waker)) {
/// #     Poll::Ready(made) => assert_eq!(loam::owner(made.as_ptr()).unwrap().tag, "query.scan"),
/// #     Poll::Pending => unreachable!(),
/// # }
/// ```
#[must_use = "a scope ends when it is dropped"]
pub struct Scope {
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Scope {
    fn drop(&mut self) {
        unsafe { ffi::loam_scope_leave() }
    }
}

/// Begins a scope, which ends when the returned value is dropped. [`with`] cannot end scopes in a wrong
/// order, so prefer it.
pub fn scope(site: Site) -> Scope {
    unsafe { ffi::loam_scope_enter(site.site) };
    Scope { of_this_thread: PhantomData }
}

/// Calls a function inside a scope and returns its result. The scope also ends if the function panics.
///
/// The hook that reports a panic runs inside the scope. If the tag is at its limit, Rust may get no
/// memory for a backtrace (`RUST_BACKTRACE=1`): it then waits for ever for a lock that it holds. So a
/// program whose tags have limits moves its hook out of all scopes:
///
/// ```
/// let untagged = loam::Site::new("").unwrap();
/// let hook = std::panic::take_hook();
/// std::panic::set_hook(Box::new(move |info| loam::with(untagged, || hook(info))));
/// ```
pub fn with<R>(site: Site, run: impl FnOnce() -> R) -> R {
    let _scope = scope(site);
    run()
}

/// The owner of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The tag of the block.
    pub tag: String,
    /// The name of the strategy that serves it.
    pub strategy: String,
    /// The generation of the policy that decided.
    pub generation: u64,
    /// The address of the block.
    pub base: usize,
    /// The usable bytes of the block.
    pub size: usize,
}

/// Returns the owner of the block that an address lies in; `None` if it is in no live block of loam.
pub fn owner<T: ?Sized>(address: *const T) -> Option<Owner> {
    let mut info = std::mem::MaybeUninit::<ffi::loam_owner_info>::uninit();
    let status = unsafe { ffi::loam_owner(address as *const c_void, info.as_mut_ptr()) };
    if status != 0 {
        return None;
    }
    let info = unsafe { info.assume_init() };
    Some(Owner {
        tag: text(info.tag),
        strategy: text(info.strategy),
        generation: info.generation,
        base: info.base as usize,
        size: info.size,
    })
}

/// The figures of one tag and strategy. Live figures are exact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// The tag of the memory.
    pub tag: String,
    /// The name of the strategy that serves it.
    pub strategy: String,
    /// The usable bytes of live blocks.
    pub live_bytes: u64,
    /// The number of live blocks.
    pub live_blocks: u64,
    /// The bytes that were ever allocated.
    pub total_bytes: u64,
    /// The number of blocks that were ever allocated.
    pub total_blocks: u64,
    /// The limit of the strategy, for all its tags; 0 without one.
    pub limit: u64,
    /// The bytes of the strategy that count for the limit, of all its tags.
    pub limit_used: u64,
}

unsafe extern "C" fn add_row(rows: *mut c_void, row: *const ffi::loam_stats_row) {
    let (rows, row) = (&mut *(rows as *mut Vec<Stats>), &*row);
    rows.push(Stats {
        tag: text(row.tag),
        strategy: text(row.strategy),
        live_bytes: row.live_bytes,
        live_blocks: row.live_blocks,
        total_bytes: row.total_bytes,
        total_blocks: row.total_blocks,
        limit: row.limit,
        limit_used: row.limit_used,
    });
}

/// Returns the figures of each pair of tag and strategy, the most live bytes first.
pub fn stats() -> Result<Vec<Stats>, Error> {
    let mut rows: Vec<Stats> = Vec::new();
    match unsafe { ffi::loam_stats_each(add_row, &mut rows as *mut Vec<Stats> as *mut c_void) } {
        0 => Ok(rows),
        _ => Err(Error::last()),
    }
}

/// Loads the policy in a file: it decides for memory to come. A policy that is refused leaves the policy
/// in force, and the error says why.
pub fn load_policy(path: impl AsRef<Path>) -> Result<(), Error> {
    use std::os::unix::ffi::OsStrExt;
    let path = c_string(path.as_ref().as_os_str().as_bytes())?;
    match unsafe { ffi::loam_policy_load(path.as_ptr()) } {
        0 => Ok(()),
        _ => Err(Error::last()),
    }
}

/// Like [`load_policy`], for a policy that is text. `name` stands for the file in messages.
pub fn load_policy_text(name: &str, text: &str) -> Result<(), Error> {
    let (name, text) = (c_string(name)?, c_string(text)?);
    match unsafe { ffi::loam_policy_load_text(name.as_ptr(), text.as_ptr()) } {
        0 => Ok(()),
        _ => Err(Error::last()),
    }
}

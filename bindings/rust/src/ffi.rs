//! ffi.rs - the declarations of loam.h that this crate uses. A test compares them with loam.h, so a
//! declaration stands on one line, or on one line for each field.
use std::os::raw::{c_char, c_int, c_uint, c_void};

/// A call-site: a tag, and a place in the program where it is known.
#[repr(C)]
pub struct loam_site {
    _private: [u8; 0],
}

/// The description of a site; see loam.h.
#[repr(C)]
pub struct loam_where {
    pub tag: *const c_char,
    pub file: *const c_char,
    pub func: *const c_char,
    pub module: *const c_char,
    pub line: c_int,
}

/// The owner of an address; see loam.h.
#[repr(C)]
pub struct loam_owner_info {
    pub tag: *const c_char,
    pub file: *const c_char,
    pub func: *const c_char,
    pub module: *const c_char,
    pub strategy: *const c_char,
    pub kind: *const c_char,
    pub handler: *const c_char,
    pub line: c_int,
    pub generation: u64,
    pub base: *mut c_void,
    pub size: usize,
    pub device: c_int,
    pub stream: *mut c_void,
    pub handler_version: c_uint,
}

/// A row of figures; see loam.h.
#[repr(C)]
pub struct loam_stats_row {
    pub tag: *const c_char,
    pub strategy: *const c_char,
    pub kind: *const c_char,
    pub generation: u64,
    pub live_bytes: u64,
    pub live_blocks: u64,
    pub total_bytes: u64,
    pub total_blocks: u64,
    pub limit: u64,
    pub limit_used: u64,
}

/// Receives a row of figures. It must not panic.
pub type loam_row_fn = unsafe extern "C" fn(ctx: *mut c_void, row: *const loam_stats_row);

extern "C" {
    pub fn loam_error() -> *const c_char;
    pub fn loam_policy_load(path: *const c_char) -> c_int;
    pub fn loam_policy_load_text(name: *const c_char, text: *const c_char) -> c_int;
    pub fn loam_site_get(tag: *const c_char) -> *mut loam_site;
    pub fn loam_site_at(place: *const loam_where) -> *mut loam_site;
    pub fn loam_scope_enter(site: *mut loam_site);
    pub fn loam_scope_leave();
    pub fn loam_malloc(site: *mut loam_site, size: usize) -> *mut c_void;
    pub fn loam_calloc(site: *mut loam_site, count: usize, size: usize) -> *mut c_void;
    pub fn loam_aligned_alloc(site: *mut loam_site, alignment: usize, size: usize) -> *mut c_void;
    pub fn loam_realloc(site: *mut loam_site, ptr: *mut c_void, size: usize) -> *mut c_void;
    pub fn loam_free_sized(ptr: *mut c_void, size: usize);
    pub fn loam_owner(ptr: *const c_void, out: *mut loam_owner_info) -> c_int;
    pub fn loam_stats_each(callback: loam_row_fn, ctx: *mut c_void) -> c_int;
}

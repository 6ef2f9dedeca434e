//! memory - the crate with loam as the allocator of the test program itself.
use loam::{owner, with, Site};
use std::alloc::{alloc_zeroed, dealloc, realloc, Layout};
use std::collections::HashMap;
use std::thread;

#[global_allocator]
static MEMORY: loam::Loam = loam::Loam;

fn tag_of<T>(address: *const T) -> String {
    owner(address).expect("the memory is loam's").tag
}

#[test]
fn a_scope_gives_its_tag() {
    let outer = Site::new("rust.outer").unwrap();
    let inner = Site::new("rust.inner").unwrap();
    let (first, second, third) = with(outer, || {
        let first = vec![1u8; 100];
        let second = with(inner, || vec![2u8; 100]);
        (first, second, vec![3u8; 100])
    });
    assert_eq!(tag_of(first.as_ptr()), "rust.outer");
    assert_eq!(tag_of(second.as_ptr()), "rust.inner");
    assert_eq!(tag_of(third.as_ptr()), "rust.outer");
    assert_eq!(tag_of(vec![4u8; 100].as_ptr()), "");
}

#[test]
fn a_panic_ends_the_scope() {
    let site = Site::new("rust.panic").unwrap();
    let caught = std::panic::catch_unwind(|| with(site, || panic!("as the test wants")));
    assert!(caught.is_err());
    assert_eq!(tag_of(vec![4u8; 100].as_ptr()), "");
}

#[test]
fn a_scope_is_of_one_thread() {
    let site = Site::new("rust.thread").unwrap();
    let _scope = loam::scope(site);
    let other = thread::spawn(|| tag_of(vec![1u8; 100].as_ptr())).join().unwrap();
    assert_eq!(other, "");
    assert_eq!(tag_of(vec![1u8; 100].as_ptr()), "rust.thread");
}

#[test]
fn a_block_that_grows_keeps_its_tag_and_bytes() {
    let site = Site::new("rust.grows").unwrap();
    let mut bytes = with(site, || vec![7u8; 10]);
    for _ in 0..100_000 {
        bytes.push(7);
    }
    bytes.shrink_to_fit();
    assert_eq!(tag_of(bytes.as_ptr()), "rust.grows");
    assert!(bytes.iter().all(|byte| *byte == 7));
}

#[test]
fn a_block_of_a_large_alignment_keeps_its_tag_and_bytes() {
    #[repr(align(64))]
    struct Line([u8; 64]);
    let site = Site::new("rust.lines").unwrap();
    let mut lines = with(site, || vec![Line([7; 64])]);
    let other = Site::new("rust.other").unwrap();
    with(other, || lines.resize_with(1000, || Line([7; 64])));
    assert_eq!(tag_of(lines.as_ptr()), "rust.lines");
    lines.truncate(10);
    lines.shrink_to_fit();
    assert_eq!(tag_of(lines.as_ptr()), "rust.lines");
    assert_eq!(lines.as_ptr() as usize % 64, 0);
    assert!(lines.iter().all(|line| line.0 == [7; 64]));
}

#[test]
fn alignments_are_kept() {
    for align in [1, 8, 16, 32, 64, 4096] {
        for size in [1, 40, 1000, 100_000] {
            let layout = Layout::from_size_align(size, align).unwrap();
            unsafe {
                let block = alloc_zeroed(layout);
                assert_eq!(block as usize % align, 0);
                assert!((0..size).all(|i| *block.add(i) == 0));
                block.write_bytes(5, size);
                let grown = realloc(block, layout, 3 * size);
                assert_eq!(grown as usize % align, 0);
                assert!((0..size).all(|i| *grown.add(i) == 5));
                dealloc(grown, Layout::from_size_align(3 * size, align).unwrap());
            }
        }
    }
}

#[test]
fn what_cannot_be_had_is_an_error() {
    assert!(Vec::<u8>::new().try_reserve(1 << 60).is_err());
    assert!(Site::new(&"x".repeat(300)).is_err());
    let zero = Site::new("a\0b").unwrap_err();
    assert_eq!(zero.to_string(), r#"text "a\0b": it has a zero byte"#);
    let refused = loam::load_policy_text("bad.lua", "return loam.policy {").unwrap_err();
    assert!(refused.to_string().starts_with("bad.lua:"), "{refused}");
    let missing = loam::load_policy("/nowhere.lua").unwrap_err();
    assert!(missing.to_string().contains("/nowhere.lua"), "{missing}");
}

#[test]
fn figures_tell_the_memory_of_a_tag() {
    let site = Site::new("rust.figures").unwrap();
    let blocks = with(site, || (vec![1u8; 1000], vec![2u8; 3000]));
    let row = |tag: &str| loam::stats().unwrap().into_iter().find(|row| row.tag == tag);
    let live = row("rust.figures").unwrap();
    assert_eq!((live.live_blocks, live.total_blocks), (2, 2));
    assert!(live.live_bytes >= 4000 && live.live_bytes < 8000);
    assert!(!live.strategy.is_empty());
    assert_eq!(row("rust.unknown"), None);
    drop(blocks);
    let ended = row("rust.figures").unwrap();
    assert_eq!((ended.live_blocks, ended.live_bytes, ended.total_blocks), (0, 0, 2));
}

#[test]
fn threads_and_collections_work() {
    let threads: Vec<_> = (0..8)
        .map(|number| {
            thread::spawn(move || {
                let site = Site::new(&format!("rust.thread{number}")).unwrap();
                let map: HashMap<u32, String> =
                    with(site, || (0..2000).map(|i| (i, format!("number {i}"))).collect());
                assert_eq!(map[&1999], "number 1999");
                map
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap().len(), 2000);
    }
}

#[test]
fn memory_of_others_has_no_owner() {
    let here = 3;
    assert_eq!(owner(&here as *const i32), None);
}

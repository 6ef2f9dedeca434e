//! panic - a panic in a scope whose tag gets no memory for a backtrace is reported with its backtrace,
//! if the hook is moved out of all scopes. The program has one test, because a process has one hook.
use loam::{with, Site};

#[global_allocator]
static MEMORY: loam::Loam = loam::Loam;

const POLICY: &str = r#"
local plain = loam.host { name = "plain" }
local none = loam.deny()

return loam.policy {
  name = "panic",
  pick = function(req)
    if req.tag:under("query") and req.size >= 1024 then return none end
    return plain
  end,
}
"#;

#[test]
fn a_panic_without_memory_for_a_backtrace_is_reported() {
    std::env::set_var("RUST_BACKTRACE", "1");
    let untagged = Site::new("").unwrap();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| with(untagged, || hook(info))));

    loam::load_policy_text("panic.lua", POLICY).unwrap();
    let query = Site::new("query").unwrap();
    let caught = std::panic::catch_unwind(|| with(query, || panic!("as the test wants")));
    assert!(caught.is_err());
}

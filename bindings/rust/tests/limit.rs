//! limit - tags with a limit: requests that pass it are errors, and what happens then needs no memory
//! of the tag.
use loam::{with, Site};

#[global_allocator]
static MEMORY: loam::Loam = loam::Loam;

const POLICY: &str = r#"
local plain = loam.host { name = "plain" }
local query = loam.host { name = "query", limit = loam.MiB }

return loam.policy {
  name = "limit",
  pick = function(req)
    if req.tag:under("query") then return query end
    return plain
  end,
}
"#;

/// Takes all memory that the limit allows, down to the smallest blocks.
fn fill(kept: &mut Vec<Vec<u8>>) {
    let mut size = 1 << 20;
    while size > 0 {
        let mut block = Vec::new();
        match block.try_reserve_exact(size) {
            Ok(()) => kept.push(block),
            Err(_) => size /= 2,
        }
    }
}

#[test]
fn a_tag_at_its_limit_gets_errors_with_words() {
    loam::load_policy_text("limit.lua", POLICY).unwrap();
    let query = Site::new("query.7").unwrap();
    let mut kept = Vec::with_capacity(1 << 20);
    let words = with(query, || {
        fill(&mut kept);
        loam::Error::last()
    });
    assert!(words.to_string().contains("under tag 'query.7'"), "{words}");
    assert!(words.to_string().contains("this would pass its limit"), "{words}");
    let row = loam::stats().unwrap().into_iter().find(|row| row.tag == "query.7").unwrap();
    assert_eq!((row.strategy.as_str(), row.limit), ("query", 1 << 20));
    assert!(row.limit_used <= row.limit);
}

//! tags - a program whose Vecs have tags by scopes, under a policy that treats two of them apart.
use loam::{owner, with, Site};

#[global_allocator]
static MEMORY: loam::Loam = loam::Loam;

const POLICY: &str = r#"
local plain = loam.host { name = "plain" }
local words = loam.host { name = "words", align = 64 }

return loam.policy {
  name = "tags",
  pick = function(req)
    if req.tag:under("index") then return words:or_else(plain) end
    return plain
  end,
}
"#;

fn main() -> Result<(), loam::Error> {
    loam::load_policy_text("tags.lua", POLICY)?;
    let index = Site::new("index.words")?;
    let cache = Site::new("cache")?;

    let mut words: Vec<u64> = with(index, || Vec::with_capacity(1000));
    let pages: Vec<u8> = with(cache, || vec![0; 4096]);
    let plain: Vec<u8> = vec![1; 100];
    words.extend(0..10_000); // it grows outside the scope, and keeps its tag

    for (what, address) in [
        ("words", words.as_ptr() as usize),
        ("pages", pages.as_ptr() as usize),
        ("plain", plain.as_ptr() as usize),
    ] {
        let owner = owner(address as *const u8).expect("the memory is loam's");
        println!("{what}: tag '{}', strategy {}", owner.tag, owner.strategy);
    }
    Ok(())
}

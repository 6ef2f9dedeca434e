-- manifest_spec.lua - finding the policy in a manifest of Kubernetes.

local manifest = require("loam.command.manifest")

local function of(data)
  return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\ndata:\n" .. data
end

describe("a manifest", function()
  it("is known by the ending of its path", function()
    assert.is_true(manifest.is_one("a/b.yaml"))
    assert.is_true(manifest.is_one("b.yml"))
    assert.is_false(manifest.is_one("b.lua"))
    assert.is_false(manifest.is_one("b.yaml.lua"))
  end)

  it("has its policy at the lines that it has in the file", function()
    local text = of("  prod.lua: |\n    one\n\n      two\n    three\n  other: 1\n")
    assert.equal("\n\n\n\n\n\none\n\n  two\nthree\n", manifest.policy(text))
  end)

  it("may have other keys, other objects, quotes, and lines that end as on Windows", function()
    local data = "  note: x\n  'p.lua': |+\n      one\n      two\n---\nkind: Pod\n"
    local text = "kind: Pod\n---\n" .. of(data)
    assert.equal(("\n"):rep(9) .. "one\ntwo\n", manifest.policy((text:gsub("\n", "\r\n"))))
  end)

  it("may have a comment behind the sign of the block", function()
    assert.equal(("\n"):rep(6) .. "one\n", manifest.policy(of("  p.lua: | # ours\n    one\n")))
  end)

  it("may have an empty policy", function()
    assert.equal(("\n"):rep(6), manifest.policy(of("  prod.lua: |\n")))
  end)

  it("has the exact text that a mounted ConfigMap has, as the sign of the block says", function()
    for sign, exact in pairs { ["|"] = "one\n\ntwo\n", ["|+"] = "one\n\ntwo\n\n\n" } do
      local text = of("  a.lua: " .. sign .. "\n    one\n\n    two\n\n\n  b.txt: x\n")
      assert.equal(exact, (select(2, manifest.policy(text))))
    end
    assert.equal("one\n\n\n", (select(2, manifest.policy(of("  a.lua: |+\n    one\n\n\n")))))
    assert.equal("", (select(2, manifest.policy(of("  a.lua: |\n")))))
  end)

  local function refuses(text, words)
    local policy, why = manifest.policy(text)
    assert.is_nil(policy)
    assert.equal(words, why)
  end

  it("has the exact text where the block begins with empty lines", function()
    for _, blank in ipairs { "", " ", "    " } do
      local text = of("  a.lua: |\n" .. blank .. "\n\n    one\n      two\n")
      assert.equal("\n\none\n  two\n", (select(2, manifest.policy(text))))
    end
  end)

  it("has the exact text where a comment of YAML follows the block", function()
    local text = of("  a.lua: |\n      one\n      # two\n    # of YAML\n  b.txt: x\n")
    assert.equal("one\n# two\n", (select(2, manifest.policy(text))))
  end)

  it("is refused where the policy would have no newline at its end", function()
    local text = of("  a.lua: |\n    one\n    two")
    assert.matches("^8: file: the last line has no newline", (select(2, manifest.policy(text))))
    assert.equal("one\ntwo\n", (select(2, manifest.policy(text .. "\n"))))
    assert.equal("one\n", (select(2, manifest.policy(of("  a.lua: |\n    one\n  b.txt: x")))))
  end)

  it("is refused where a tab stands for blanks", function()
    assert.equal("7: file: a tab is not indentation in YAML: write blanks",
      (select(2, manifest.policy(of("  a.lua: |\n\tone\n")))))
  end)

  it("is refused without a ConfigMap or without a policy", function()
    refuses("kind: Pod\n", "file: it has no ConfigMap (a line `kind: ConfigMap`)")
    refuses(of("  a.txt: |\n    x\n"), "file: its ConfigMap has no key that ends in .lua")
  end)

  it("is refused with two policies, and with a text that is no literal block", function()
    refuses(of("  a.lua: |\n    x\n  b.lua: |\n    y\n"),
      "8: file: it has 2 policies, 'a.lua' and 'b.lua'; put each into a manifest of its own")
    local words = "6: file: 'a.lua' is no literal block: write `a.lua: |`, and the policy below "
      .. "it, indented"
    refuses(of("  a.lua: |-\n    x\n"), "6: file: 'a.lua: |-' cuts the last newline off, and "
      .. "programs refuse such a policy as cut off: write `a.lua: |`")
    refuses(of("  a.lua: \"return 1\"\n"), words)
    refuses(of("  a.lua: >\n    x\n"), words)
  end)
end)

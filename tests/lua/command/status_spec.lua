-- status_spec.lua - `loam status` prints the policy that a program obeys.

local canned_context = require("canned_context")
local hosts = require("loam.command.hosts")

local run = canned_context.run

-- Returns the status of a process on a board, with some members changed.
local function on_board(changes)
  local row = { pid = 42, program = "python3", loam = "1.0.0", state = "running", generation = 2,
                name = "prod", path = "/p.lua", loaded_at = 0, loads = 2, refused = 0, plans = 1,
                sites = 1, tags_refused = 0, announced = false, ended_at = 0, since_ms = 5,
                uid = 1000, updated_at = 0 }
  for key, value in pairs(changes) do row[key] = value end
  return row
end

describe("loam status", function()
  it("prints the policy that is obeyed, and names and prints the one before it", function()
    local now, before = ("a"):rep(16), ("b"):rep(16)
    local row = on_board { hash = now, board = "/run/b", published = 2,
      latest = { number = 2, hash = now, at = 990e9 },
      before = { number = 1, hash = before, at = 940e9 } }
    local answers = { boards = { row }, board = "/run/b", texts = { [now] = "new\n" } }
    local _, context = run("status 42", answers)
    assert.matches("\nbefore    hash " .. before .. ", published 1 minute ago\n", context.out, 1,
      true)
    local status
    status, context = run("status 42 --text", answers)
    assert.equal(0, status)
    assert.equal("new\n", context.out)
    status, context = run("status --text " .. before:upper() .. " 42", answers)
    assert.equal(1, status)
    assert.matches("python3 (42) has no policy with hash " .. before, context.err, 1, true)
    answers.texts[before] = "old\n"
    _, context = run("status 42 --text " .. before, answers)
    assert.equal("old\n", context.out)
    assert.equal(2, (run("status 42 --text --json", answers)))
    row.before.hash = now
    _, context = run("status 42", answers)
    assert.not_matches("before", context.out, 1, true)
  end)

  it("shows no control characters of a policy on a terminal", function()
    local hash = ("a"):rep(16)
    local row = on_board { hash = hash, board = "/run/b", published = 1,
      latest = { number = 1, hash = hash, at = 990e9 } }
    local text = "\tx -- \27[2J\n"
    for is_terminal, shown in pairs { [false] = text, [true] = "\tx -- \\027[2J\n" } do
      local _, context = run("status 42 --text", { boards = { row }, board = "/run/b",
        texts = { [hash] = text } }, nil, nil, function(made) made.terminal = is_terminal end)
      assert.equal(shown, context.out)
    end
  end)

  it("says where the text of a program is that loads its policy itself", function()
    local row = on_board { hash = ("a"):rep(16) }
    local _, context = run("status 42 --text", { boards = { row } })
    assert.equal("loam: python3 (42) loads its policy itself, so no board has its text; its file "
      .. "is /p.lua\n", context.err)
    row.path = ""
    _, context = run("status 42 --text", { boards = { row } })
    assert.equal("loam: python3 (42) loads its policy itself, so no board has its text; it has no "
      .. "file\n", context.err)
  end)

  it("says that a program under loam has no board, and is not another program", function()
    local context = canned_context.new {}
    context.exists = { ["/proc/42"] = true }
    context.files["/proc/42/maps"] = "7-9 r-xp 0 0 9 /usr/lib/loam/libloam-preload.so\n"
    context.api.ask = function()
      return nil, "process 42 cannot be asked by this user: nothing listens at /run/42.sock"
    end
    assert.equal("python3 (42) runs under loam, but has neither a board nor a control socket: "
      .. "it asked for none, as LOAM_CONTROL=0 does, or what it printed at its start says why; "
      .. "`loam stats 42` reads its memory",
      select(2, hosts.ask(context, 42, "status")))
  end)

  it("says that a program is on a board of another version", function()
    local other = { other_version = "7-1-2.board", folder = "/var/run/loam" } -- through a link
    local context = canned_context.new { boards = { other } }
    context.exists = { ["/proc/42"] = true }
    context.files["/proc/42/maps"] = "7-9 r-xp 0 0 9 /usr/lib/loam/libloam-preload.so\n"
      .. "9-a rw-s 0 0 9 /run/loam/7-1-2.board\n"
    context.api.ask = function()
      return nil, "process 42 cannot be asked by this user: nothing listens at /run/42.sock"
    end
    assert.equal("python3 (42) runs under loam, but its board /var/run/loam/7-1-2.board has "
      .. "another version of loam than this command, 1.2.3: start the program again",
      select(2, hosts.ask(context, 42, "status")))
  end)

  it("shows a program without a name as two quotation marks", function()
    local _, context = run("status 42", { boards = { on_board { program = "" } } })
    assert.matches('^program *"" %(42%), loam 1.0.0\n', context.out)
  end)

  it("warns of boards of other versions where it chooses the only program", function()
    local status, context = run("status", { boards = {
      on_board {}, { other_version = "7-1-2.board", folder = "/run/loam" },
    } })
    assert.equal(0, status)
    assert.matches("python3 (42)", context.out, 1, true)
    assert.equal("loam status: /run/loam/7-1-2.board: programs on this board have another version "
      .. "of loam than this command, 1.2.3, and are not listed until they are started again\n",
      context.err)
  end)

  it("does not choose a program of another version that has a socket", function()
    local others = { { other_version = "7-1-2.board", folder = "/run/loam" } }
    local status, context = run("status", { hosts = { 42 }, boards = others }, nil, nil,
      function(context)
        context.files["/proc/42/maps"] = "9-a rw-s 0 0 9 /run/loam/7-1-2.board\n"
      end)
    assert.equal(1, status)
    assert.matches("no program of yours runs under this version of loam\n", context.err, 1, true)
  end)

  it("says that LOAM_CONTROL_DIR names no folder where no program is seen", function()
    for _, line in ipairs { "status", "ps", "wait --hash 1234567890abcdef", "top --count 1" } do
      for folder, words in pairs {
        ["/run/none\n"] = "; LOAM_CONTROL_DIR names /run/none\\010, which is no folder",
        ["/run/loam"] = "",
      } do
        local _, context = run(line, {}, { LOAM_CONTROL_DIR = folder }, nil, function(context)
          context.exists["/run/loam/."] = true
        end)
        assert.matches("no program of yours runs under loam" .. words .. "\n", context.err, 1, true)
      end
    end
  end)
end)

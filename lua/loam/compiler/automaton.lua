-- automaton.lua - the questions of a policy about a string, as automata that read it byte by byte;
-- and a string that gives chosen answers.
--
-- Every question of symbolic/site.lua is a regular language, so "is there a tag for which these
-- questions have these answers?" can be decided: run the automata of all questions beside each
-- other, and search the states that they reach together. (Rabin and Scott, Finite
-- automata and their decision problems, 1959.) States are made when they are first reached.
--
-- Only bytes that some automaton tells apart are tried, and one byte for all others. An automaton
-- whose answer no later byte can change is left out of the search, or ends it. So 200 questions
-- `under` cost as much as the few prefixes that agree with the string so far.

local automaton = {}

local byte, char = string.byte, string.char

local DOT, STAR, ANY = byte("."), byte("*"), byte("?")

---@class loam.Automaton
---@field start integer state
---@field states table[] by number: { raw, next = byte -> state, ends, fixed, bytes, left }
---  ends: the answer if the string ends here; fixed: the answer, if no later byte can change it;
---  bytes: those that lead to other states than all others; left: how many further bytes a string
---  needs at least for an answer other than false, where that is known

-- A spec describes an automaton by values that are no states yet: start, step(raw, byte),
-- key(raw), ends(raw), fixed(raw), bytes(raw), and perhaps left(raw). This makes the automaton of a
-- spec.
local function new(spec)
  local made = { spec = spec, states = {}, by_key = {} }
  function made.state(raw)
    local key = spec.key(raw)
    local number = made.by_key[key]
    if not number then
      number = #made.states + 1
      made.by_key[key] = number
      made.states[number] = {
        raw = raw, next = {}, ends = spec.ends(raw), fixed = spec.fixed(raw),
        bytes = spec.bytes(raw), left = spec.left and spec.left(raw),
      }
    end
    return number
  end
  made.start = made.state(spec.start)
  return made
end

local function step(made, number, b)
  local state = made.states[number]
  local next_number = state.next[b]
  if not next_number then
    next_number = made.state(made.spec.step(state.raw, b))
    state.next[b] = next_number
  end
  return next_number
end

-- ---- one word, and the words below it

local DEAD, ALL = -1, -2 -- no longer a beginning of the word; below the word

local function same(raw) return raw end

local function of_is(word)
  return {
    start = 0, key = same,
    step = function(at, b) return byte(word, at + 1) == b and at >= 0 and at + 1 or DEAD end,
    ends = function(at) return at == #word end,
    fixed = function(at) if at == DEAD then return false end end,
    bytes = function(at) return at >= 0 and at < #word and { byte(word, at + 1) } or {} end,
  }
end

local function of_under(prefix)
  if prefix == "" then
    return { start = ALL, key = same, step = same, ends = function() return true end,
             fixed = function() return true end, bytes = function() return {} end }
  end
  return {
    start = 0, key = same,
    step = function(at, b)
      if at == ALL or at == #prefix and b == DOT then return ALL end
      return at >= 0 and byte(prefix, at + 1) == b and at + 1 or DEAD
    end,
    ends = function(at) return at == #prefix or at == ALL end,
    fixed = function(at)
      if at == ALL then return true end
      if at == DEAD then return false end
    end,
    bytes = function(at)
      if at < 0 then return {} end
      return { at == #prefix and DOT or byte(prefix, at + 1) }
    end,
  }
end

-- ---- patterns: a state is the list of places in the pattern that can be reached, sorted

local function closed(pattern, places)
  local seen, out = {}, {}
  local function add(place)
    if seen[place] then return end
    seen[place] = true
    out[#out + 1] = place
    if byte(pattern, place + 1) == STAR then add(place + 1) end
  end
  for _, place in ipairs(places) do add(place) end
  table.sort(out)
  return out
end

local function of_glob(pattern)
  local literals = {}
  for i = 1, #pattern do
    local b = byte(pattern, i)
    if b ~= STAR and b ~= ANY then literals[#literals + 1] = b end
  end
  local function matches_rest(places)
    local last = places[#places]
    if last ~= #pattern then return false end
    return #places > 1 and places[#places - 1] == #pattern - 1 and byte(pattern, -1) == STAR
  end
  return {
    start = closed(pattern, { 0 }),
    key = function(places) return table.concat(places, ",") end,
    step = function(places, b)
      local out = {}
      for _, place in ipairs(places) do
        local want = byte(pattern, place + 1)
        if want == STAR then
          out[#out + 1] = place
        elseif want == b or want == ANY then
          out[#out + 1] = place + 1
        end
      end
      return closed(pattern, out)
    end,
    ends = function(places) return places[#places] == #pattern end,
    fixed = function(places)
      if #places == 0 then return false end
      if matches_rest(places) then return true end
    end,
    bytes = function() return literals end,
  }
end

-- ---- keys of a table: a state is a node of the trie of all keys, or NOWHERE
--
-- The keys are sorted, so those below a node are neighbours: the node is the first and the last of
-- them and how many bytes they share. Nodes are made when they are first reached, because the whole
-- trie of a thousand long keys takes more memory than a policy may use.

local NOWHERE = { first = 1, last = 0, depth = 0 }

-- Returns the node of the keys below `node` that go on with byte b.
local function child_of(words, node, b)
  local at = node.depth + 1
  local first = node.first
  while first <= node.last and byte(words[first], at) ~= b do first = first + 1 end
  if first > node.last then return NOWHERE end
  local last = first
  while last < node.last and byte(words[last + 1], at) == b do last = last + 1 end
  return { first = first, last = last, depth = at }
end

---@return integer[] the bytes with which keys go on below a node
local function bytes_of(words, node)
  local list = {}
  for i = node.first, node.last do
    local b = byte(words[i], node.depth + 1)
    if b and b ~= list[#list] then list[#list + 1] = b end
  end
  return list
end

-- Returns how many bytes the shortest key below a node has more than the node.
local function bytes_left(words, node)
  local least = math.huge
  for i = node.first, node.last do least = math.min(least, #words[i] - node.depth) end
  return least
end

---@param keys loam.Keys
local function of_key(keys)
  local words = keys.words
  return {
    start = words[1] and { first = 1, last = #words, depth = 0 } or NOWHERE,
    key = function(node)
      if node == NOWHERE then return 0 end
      return node.depth * (#words + 1) + node.first
    end,
    step = function(node, b) return child_of(words, node, b) end,
    ends = function(node)
      local word = words[node.first] -- the shortest key below the node stands first
      return node.last >= node.first and #word == node.depth and keys.first[word]
    end,
    fixed = function(node) if node == NOWHERE then return false end end,
    bytes = function(node) return bytes_of(words, node) end,
    left = function(node) return bytes_left(words, node) end,
  }
end

-- ---- parts

-- Whether the string has a part `index`: for 1, whether it is not empty.
local function of_part(index)
  return {
    start = index == 1 and 0 or 1, key = same, -- the number of parts so far
    step = function(n, b) return n == 0 and 1 or b == DOT and n + 1 or n end,
    ends = function(n) return n >= index end,
    fixed = function(n) if n >= index then return true end end,
    bytes = function(n) return n > 0 and { DOT } or {} end,
  }
end

-- A state before part `index` is the number of the part that it is in; 0 is the empty string.
-- Within the part it is a state of `inner`. After the part, or when no byte of the part can change
-- it, it is the answer.
local function of_part_of(index, inner)
  local function inside(number)
    local fixed = inner.states[number].fixed
    if fixed ~= nil then return { answer = fixed } end
    return { inner = number }
  end
  local function after(number) return { answer = inner.states[number].ends } end
  local function begin(n) return n == index and inside(inner.start) or { before = n } end
  return {
    start = index == 1 and { before = 0 } or { before = 1 },
    key = function(raw)
      if raw.inner then return "in " .. raw.inner end
      if raw.before then return "before " .. raw.before end
      return "after " .. type(raw.answer) .. " " .. tostring(raw.answer) -- a key may be "false"
    end,
    step = function(raw, b)
      if raw.before == 0 then raw = begin(1) end
      if raw.inner then
        return b == DOT and after(raw.inner) or inside(step(inner, raw.inner, b))
      end
      if raw.before and b == DOT then return begin(raw.before + 1) end
      return raw
    end,
    ends = function(raw)
      if raw.inner then return inner.states[raw.inner].ends end
      return raw.answer or false
    end,
    fixed = function(raw) return raw.answer end,
    bytes = function(raw)
      if raw.answer ~= nil then return {} end
      local list = { DOT }
      local number = raw.inner or raw.before == 0 and inner.start
      for _, b in ipairs(number and inner.states[number].bytes or {}) do list[#list + 1] = b end
      return list
    end,
    left = function(raw) return raw.inner and inner.states[raw.inner].left end,
  }
end

local SPECS = { is = of_is, under = of_under, glob = of_glob, key = of_key, part = of_part }

-- Makes the automaton of an observation. It answers what the observation answers.
---@param observation loam.Observation
---@return loam.Automaton
function automaton.of(observation)
  local made = new(SPECS[observation.how](observation.about))
  if observation.part then made = new(of_part_of(observation.part, made)) end
  return made
end

---@return any the answer for a string
function automaton.answer(made, text)
  local number = made.start
  for i = 1, #text do number = step(made, number, byte(text, i)) end
  return made.states[number].ends
end

-- ---- the search

local PLAIN = "xabcdefghijklmnopqrstuvwyz0123456789_-/ABCDEFGHIJKLMNOPQRSTUVWXYZ"

-- Returns a byte that is not in `seen`; nil if all are.
local function other_byte(seen)
  for i = 1, #PLAIN do
    if not seen[byte(PLAIN, i)] then return byte(PLAIN, i) end
  end
  for b = 1, 255 do
    if not seen[b] then return b end
  end
  return nil
end

-- Returns the bytes to try after the present states: one for all that no automaton tells apart, and
-- each of the others.
local function bytes_after(live)
  local seen, list = {}, {}
  for _, entry in ipairs(live) do
    for _, b in ipairs(entry.made.states[entry.number].bytes) do
      if not seen[b] and b ~= 0 then -- a string of a site ends at its first 0
        seen[b] = true
        list[#list + 1] = b
      end
    end
  end
  table.sort(list)
  local other = other_byte(seen)
  if other then table.insert(list, 1, other) end
  return list
end

-- Returns about how many bytes are missing until an automaton in a state has the wanted answer.
local function missing_in(state, wanted)
  if state.ends == wanted then return 0 end
  return wanted ~= false and math.max(state.left or 1, 1) or 1
end

-- Adds an automaton in a state to `live`. Leaves out an automaton whose answer is fixed. Returns
-- false if that is not the wanted answer.
local function add_live(live, made, number, wanted)
  local state = made.states[number]
  if state.fixed ~= nil then return state.fixed == wanted end
  live[#live + 1] = { made = made, number = number, wanted = wanted }
  live.missing = live.missing + missing_in(state, wanted)
  return true
end

local function advanced(live, b)
  local out = { missing = 0 }
  for _, entry in ipairs(live) do
    if not add_live(out, entry.made, step(entry.made, entry.number, b), entry.wanted) then
      return nil
    end
  end
  return out
end

-- Names the states of all automata. Those that are left out have the wanted answer in every string
-- that begins so, so states without them are equal to states with them.
local function name_of(live)
  local names = {}
  for i, entry in ipairs(live) do names[i] = entry.made.id .. ":" .. entry.number end
  return table.concat(names, " ")
end

-- Returns the states at the start; nil if no string has the wanted answers. Answers other than
-- false stand first: these few automata exclude most bytes before the search asks the many others.
local function starts(wanted)
  local live, id = { missing = 0 }, 0
  for pass = 1, 2 do
    for _, one in ipairs(wanted) do
      if (one[2] ~= false) == (pass == 1) then
        id = id + 1
        one[1].id = id
        if not add_live(live, one[1], one[1].start, one[2]) then return nil end
      end
    end
  end
  return live
end

-- States that wait to be looked at: a list for each number of missing bytes.
local function push(waiting, missing, entry)
  local list = waiting[missing] or { first = 1, last = 0 }
  waiting[missing] = list
  list.last = list.last + 1
  list[list.last] = entry
  if missing < waiting.least then waiting.least = missing end
  if missing > waiting.most then waiting.most = missing end
end

local function pop(waiting)
  for missing = waiting.least, waiting.most do
    local list = waiting[missing]
    if list and list.first <= list.last then
      local entry = list[list.first]
      list[list.first], list.first = nil, list.first + 1
      waiting.least = missing
      return entry
    end
  end
  return nil
end

-- Looks at the states in the order of `rank(live)`. Returns a string, or nil; and whether a string
-- was too long to go on from, so that states beyond it were not seen. After `most` states the
-- search ends without a string.
local function search(live, longest, rank, most)
  local seen, cut, waiting = { [name_of(live)] = true }, false, { least = 0, most = 0 }
  local left = most or math.huge
  push(waiting, rank(live), { live = live, text = "" })
  for from in pop, waiting do
    left = left - 1
    if left < 0 then return nil, true, most end
    if #from.text == longest then
      cut = true
    else
      for _, b in ipairs(bytes_after(from.live)) do
        local to = advanced(from.live, b)
        local name = to and name_of(to)
        if to and not seen[name] then
          seen[name] = true
          local text = from.text .. char(b)
          if to.missing == 0 then return text, cut, most and most - left end
          push(waiting, rank(to), { live = to, text = text })
        end
      end
    end
  end
  return nil, cut, most and most - left
end

local function by_missing(live) return live.missing end
local function by_length() return 0 end

-- Finds a string with the wanted answers, of at most `longest` bytes; nil if there is none. It is
-- short: states with the fewest missing bytes are looked at first, and shorter strings first
-- among them. So a search among many long keys goes straight to one of them. Where that gives only
-- strings that are too long, the search is repeated for a shortest string.
---@param wanted table[] pairs { automaton, answer }
---@return string|nil
function automaton.search(wanted, longest)
  local live = starts(wanted)
  if not live then return nil end
  if live.missing == 0 then return "" end
  local text, cut = search(live, longest, by_missing)
  if text or not cut then return text end
  return (search(live, longest, by_length))
end

-- Like automaton.search, but the string is a shortest one. This can take longer, so the result is
-- nil also after `most` states.
---@param wanted table[] pairs { automaton, answer }
---@return string|nil
---@return integer how many states were looked at
function automaton.shortest(wanted, longest, most)
  local live = starts(wanted)
  if not live then return nil, 0 end
  if live.missing == 0 then return "", 0 end
  local text, _, states = search(live, longest, by_length, most)
  return text, states
end

return automaton

-- hex.lua - strings of any bytes as words of one line: "h" and two hexadecimal digits a byte.

local hex = {}

---@return string word
function hex.encode(text)
  return "h" .. string.gsub(text, ".", function(c) return string.format("%02x", string.byte(c)) end)
end

---@return string the text of a word that hex.encode made
function hex.decode(word)
  return (string.gsub(string.sub(word, 2), "%x%x", function(digits)
    return string.char(tonumber(digits, 16))
  end))
end

return hex

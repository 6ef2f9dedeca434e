-- numbers.lua - numbers objects in the order in which they are first met, so that a text can name
-- them.

local numbers = {}

---@return fun(object: any): integer the number of an object, from 1; the same one at each call
function numbers.new()
  local number_of, count = {}, 0
  return function(object)
    if not number_of[object] then
      count = count + 1
      number_of[object] = count
    end
    return number_of[object]
  end
end

return numbers

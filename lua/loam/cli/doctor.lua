-- doctor - what this machine offers to policies, and what to do about what it does not.

local doctor = { options = {} }

return doctor

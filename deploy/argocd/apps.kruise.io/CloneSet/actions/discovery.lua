local own = obj.spec.updateStrategy or {}
local rolling = own.rollingUpdate or own
local paused = rolling.paused == true
return {
  ["pause"] = { ["disabled"] = paused },
  ["resume"] = { ["disabled"] = not paused },
  ["restart"] = {},
}

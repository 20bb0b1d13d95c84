-- Healthy once every container runs again, Degraded when one does not or the request ended for another reason.
local status = obj.status
if status == nil or status.phase == nil or status.phase == "" then
  return { status = "Progressing", message = "no agent has taken the request yet" }
end
local states = status.containerRecreateStates or {}
local done, problem = 0, nil
for _, state in ipairs(states) do
  if state.phase == "Succeeded" then
    done = done + 1
  elseif state.phase == "Failed" and problem == nil then
    problem = string.format("%s: %s", state.name or "?", state.message or "failed")
  end
end
local wanted = obj.spec ~= nil and obj.spec.containers ~= nil and #obj.spec.containers or #states
local counts = string.format("%d of %d containers were recreated", done, wanted)
if status.phase ~= "Completed" then
  return { status = "Progressing", message = status.phase .. ": " .. counts }
end
if problem == nil and status.message ~= nil and status.message ~= "" then
  problem = status.message
end
if problem == nil and done < wanted then
  problem = "ended before all were"
end
if problem ~= nil then
  return { status = "Degraded", message = counts .. "; " .. problem }
end
return { status = "Healthy", message = counts }

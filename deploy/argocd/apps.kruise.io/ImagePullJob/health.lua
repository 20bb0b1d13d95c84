-- Healthy once every node has the image, Degraded when nodes are left without it, Suspended while nothing may be pulled.
local function condition(status, kind)
  for _, item in ipairs(status.conditions or {}) do
    if item.type == kind and item.status == "True" then
      return item
    end
  end
end

local function waits(status)
  for _, item in ipairs(status.conditions or {}) do
    if item.reason == "FeatureGateDisabled" then
      return item
    end
  end
end

local status = obj.status
if status == nil or status.desired == nil then
  return { status = "Progressing", message = "no manager has looked at the job yet" }
end
local spec = obj.spec or {}
local desired = status.desired or 0
local succeeded = status.succeeded or 0
local failed = status.failed or 0
local counts = string.format("%d of %d nodes have the image", succeeded, desired)
if failed > 0 then
  counts = counts .. string.format(", %d failed", failed)
end
if status.message ~= nil and status.message ~= "" then
  counts = counts .. ": " .. status.message
end

local off = waits(status)
if off ~= nil and status.completionTime == nil then
  return { status = "Suspended", message = off.message or counts }
end
local never = spec.completionPolicy ~= nil and spec.completionPolicy.type == "Never"
local ended = status.completionTime ~= nil
if ended or (never and succeeded + failed >= desired) then
  if failed > 0 or condition(status, "Failed") ~= nil then
    return { status = "Degraded", message = counts }
  end
  return { status = "Healthy", message = counts }
end
if spec.parallelism == 0 or spec.parallelism == "0" then
  return { status = "Suspended", message = "paused: parallelism is 0; " .. counts }
end
return { status = "Progressing", message = counts }

-- Healthy once every image is on every node, Degraded when a job of an image failed.
local status = obj.status
if status == nil or status.desired == nil then
  return { status = "Progressing", message = "no manager has looked at the list yet" }
end
local failures = status.failedImageStatuses or {}
local counts = string.format("%d of %d images are done", status.completed or 0, status.desired or 0)
if failures[1] ~= nil then
  counts = counts .. string.format(", %d failed; the first: %s", #failures, failures[1].name or "?")
  if failures[1].message ~= nil and failures[1].message ~= "" then
    counts = counts .. ": " .. failures[1].message
  end
end
local spec = obj.spec or {}
local never = spec.completionPolicy ~= nil and spec.completionPolicy.type == "Never"
if status.completionTime ~= nil or never then
  if failures[1] ~= nil then
    return { status = "Degraded", message = counts }
  end
  if status.completionTime ~= nil or (status.succeeded or 0) >= status.desired then
    return { status = "Healthy", message = counts }
  end
end
if spec.parallelism == 0 or spec.parallelism == "0" then
  return { status = "Suspended", message = "paused: parallelism is 0; " .. counts }
end
return { status = "Progressing", message = counts }

-- For v1alpha1 and v1beta1. A number that is left out of the status is zero.
local function strategy(spec)
  local own = spec.updateStrategy or {}
  local rolling = own.rollingUpdate or own
  return own.type, rolling.paused, rolling.partition
end

-- How many pods stay on an older revision.
local function held_back(partition, replicas)
  if partition == nil then
    return 0
  end
  if type(partition) == "number" then
    return math.min(partition, replicas)
  end
  local percent = string.match(partition, "^([%d%.]+)%%$")
  if percent == nil then
    return math.min(tonumber(partition) or 0, replicas)
  end
  local held = math.ceil(replicas * tonumber(percent) / 100)
  -- Less than all of them leaves at least one pod to be updated.
  if tonumber(percent) < 100 and held >= replicas and replicas > 1 then
    held = replicas - 1
  end
  return math.min(held, replicas)
end

local status = obj.status
local generation = obj.metadata.generation or 0
if status == nil or (status.observedGeneration or 0) < generation then
  return { status = "Progressing", message = "the last change has not been looked at yet" }
end
for _, item in ipairs(status.conditions or {}) do
  local failed = (item.type == "FailedScale" or item.type == "FailedUpdate") and item.status == "True"
  local late = item.type == "Progressing" and item.reason == "ProgressDeadlineExceeded"
  if failed or late then
    return { status = "Degraded", message = item.message or item.reason or item.type }
  end
end

local spec = obj.spec or {}
local replicas = spec.replicas
if replicas == nil then
  replicas = 1
end
local kind, paused, partition = strategy(spec)
local held = held_back(partition, replicas)
local wanted = replicas - held
local updated = status.updatedReplicas or 0
local counts = string.format("%d of %d pods are updated", updated, wanted)

if (status.replicas or 0) ~= replicas then
  return { status = "Progressing", message = string.format("%d of %d pods exist", status.replicas or 0, replicas) }
end
if kind == "OnDelete" and updated < replicas then
  return { status = "Suspended", message = string.format("%d of %d pods are updated; others are when they are deleted", updated, replicas) }
end
if updated < wanted then
  if paused then
    return { status = "Suspended", message = "paused: " .. counts }
  end
  return { status = "Progressing", message = counts }
end
if (status.updatedAvailableReplicas or 0) < wanted then
  return {
    status = "Progressing",
    message = string.format("%d of %d updated pods are available", status.updatedAvailableReplicas or 0, wanted),
  }
end
if (status.readyReplicas or 0) < replicas then
  return { status = "Progressing", message = string.format("%d of %d pods are ready", status.readyReplicas or 0, replicas) }
end
if held > 0 and status.currentRevision ~= status.updateRevision then
  return { status = "Suspended", message = counts .. string.format(", %d stay behind the partition", held) }
end
if paused and status.currentRevision ~= status.updateRevision then
  return { status = "Suspended", message = "paused: " .. counts }
end
return { status = "Healthy", message = counts }

local os = require("os")
local meta = obj.spec.template.metadata or {}
obj.spec.template.metadata = meta
meta.annotations = meta.annotations or {}
meta.annotations["kubectl.kubernetes.io/restartedAt"] = os.date("!%Y-%m-%dT%XZ")
return obj

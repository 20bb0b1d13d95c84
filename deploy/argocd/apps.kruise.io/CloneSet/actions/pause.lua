local own = obj.spec.updateStrategy or {}
obj.spec.updateStrategy = own
if obj.apiVersion == "apps.kruise.io/v1alpha1" then
  own.paused = true
else
  own.rollingUpdate = own.rollingUpdate or {}
  own.rollingUpdate.paused = true
end
return obj

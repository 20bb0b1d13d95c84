local own = obj.spec.updateStrategy or {}
obj.spec.updateStrategy = own
if obj.apiVersion == "apps.kruise.io/v1alpha1" then
  own.paused = false
else
  own.rollingUpdate = own.rollingUpdate or {}
  own.rollingUpdate.paused = false
end
return obj
